// Command testsummary runs "go test" and reports what came of it: the line of
// each package, everything that failing tests said, the tests that were
// skipped, and at the end one line
//
//	N passed, N failed, N skipped
//
// that counts tests and subtests. It fails when a test failed, and also when
// one was skipped or when none ran at all, which "go test" would let pass: a
// green run says that everything was tested.
//
// Usage:
//
//	testsummary [-allow-skip package.Test,…] [--] arguments of go test
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	// go test hears a ^C as well, being in the same process group; we only have
	// to outlive it in order to report.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the tests and returns the exit code: 0 when all of them ran and
// passed, 2 when the arguments are wrong, and otherwise 1.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("testsummary", flag.ContinueOnError)
	flags.SetOutput(stderr)
	allowed := flags.String("allow-skip", "", "comma-separated `tests` that may be skipped, each as package.Test")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	s := newSummary(stdout, strings.Split(*allowed, ","))
	err := goTest(ctx, flags.Args(), s, stderr)
	if err != nil {
		fmt.Fprintf(stderr, "testsummary: go test: %v\n", err)
	}
	if problems := s.finish(); len(problems) > 0 || err != nil {
		for _, problem := range problems {
			fmt.Fprintf(stderr, "testsummary: %s\n", problem)
		}
		return 1
	}
	return 0
}

// goTest runs "go test -json" and feeds what it reports to s. The error says
// that it failed, for whatever reason.
func goTest(ctx context.Context, args []string, s *summary, stderr io.Writer) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
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
	if err := cmd.Wait(); err != nil {
		return err
	}
	return readErr
}
