// Command testsummary runs "go test" and prints the line of each package, the output of tests
// that failed, the tests that were skipped, and at the end the line
//
//	N passed, N failed, N skipped
//
// that counts tests and subtests. It fails when a test failed. It also fails when a test was
// skipped or when no test ran, although "go test" succeeds then.
//
// Usage:
//
//	testsummary arguments of go test
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
)

func main() {
	// go test gets a ^C as well, being in the same process group; this process must
	// outlive it to report.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run returns the exit code: 0 when all tests ran and passed, otherwise 1.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	s := &summary{out: stdout, running: map[string]*pkg{}}
	err := goTest(ctx, args, s, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "testsummary: go test: %v\n", err)
	}
	problems := s.finish()
	for _, problem := range problems {
		fmt.Fprintf(stderr, "testsummary: %s\n", problem)
	}
	if len(problems) > 0 || err != nil {
		return 1
	}
	return 0
}

// goTest runs "go test -json" and passes its events to s. It fails if go test does.
//
// As many packages run at a time as there are processors, unless args say otherwise: with more
// packages, tests wait longer, as their servers share the machine. The packages share a folder,
// in which the first server of MySQL leaves its new data for the next servers. They collect
// garbage less often.
func goTest(ctx context.Context, args []string, s *summary, stderr io.Writer) (err error) {
	data, err := os.MkdirTemp("", "activityd-data-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	packages := "-p=" + strconv.Itoa(runtime.NumCPU())
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json", packages}, args...)...)
	cmd.Env = append(os.Environ(), "ACTIVITYD_TEST_DATA="+data, "GOGC="+cmp.Or(os.Getenv("GOGC"), "400"))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	readErr := s.read(out)
	return cmp.Or(cmd.Wait(), readErr)
}
