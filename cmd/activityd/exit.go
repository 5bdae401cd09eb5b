package main

import "errors"

// The exit codes of the process. A command that has others than the first two says
// so in its help.
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
