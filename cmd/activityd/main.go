// Command activityd keeps, beside a photo site's MySQL, an index in Redis of
// each member's most recently active contacts, and answers from both what the
// newest photos of the contact are who was active last.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run runs one command and returns the exit code of the process. The first SIGINT or
// SIGTERM ends the command's context; a second one ends the process.
func run(args, environ []string, stdout, stderr io.Writer) int {
	stdout, stderr = escaper{stdout}, escaper{stderr}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		stop() // the next signal has its default effect
		_, _ = fmt.Fprintf(stderr, "activityd: %v: finishing what is under way; once more to stop at once\n", context.Cause(ctx))
	})()
	root := newRoot(environ, stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "activityd: %v\n", err)
	}
	return exitCode(err)
}

// The exit codes of the process. A command with others than the first two says so in
// its help.
const (
	exitOK     = 0
	exitFailed = 1 // it could not be done
	exitWrong  = 2 // it was done, and what it found is wrong
)

// exitError is an error that ends the process with a code of its own.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// exitCode returns the code with which an error ends the process.
func exitCode(err error) int {
	if err == nil {
		return exitOK
	}
	if own, ok := errors.AsType[*exitError](err); ok {
		return own.code
	}
	return exitFailed
}
