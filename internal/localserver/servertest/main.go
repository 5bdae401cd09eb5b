package servertest

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// Main runs the tests of a package, stops the servers that they shared, and
// ends the process: with an error when a test failed, when a server could not
// be stopped, or when goroutines are left that opts do not excuse.
func Main(m *testing.M, opts ...goleak.Option) {
	code := m.Run()
	err := sharedMySQL.close()
	if code == 0 && err == nil { // a test that failed may leave a goroutine behind
		err = goleak.Find(opts...)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "servertest: %v\n", err)
		code = max(1, code)
	}
	os.Exit(code)
}
