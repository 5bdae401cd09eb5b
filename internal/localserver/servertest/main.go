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
	if err := sharedMySQL.close(); err != nil {
		code = complain(code, err)
	}
	// After a failure a leak is no news: the test that failed left it behind.
	if code == 0 {
		if err := goleak.Find(opts...); err != nil {
			code = complain(code, err)
		}
	}
	os.Exit(code)
}

// complain reports err and returns the exit code, which is no longer zero.
func complain(code int, err error) int {
	fmt.Fprintf(os.Stderr, "servertest: %v\n", err)
	return max(1, code)
}
