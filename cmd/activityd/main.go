// Command activityd keeps, beside a photo site's MySQL, an index in Redis of
// each member's most recently active contacts, and answers from both what the
// newest photos of the contact are who was active last.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(run(os.Args[1:], os.Environ(), os.Stdout, os.Stderr))
}

// run runs one command and returns the exit code of the process.
func run(args, environ []string, stdout, stderr io.Writer) int {
	stdout, stderr = escaper{stdout}, escaper{stderr}
	ctx, stop := untilSignalled(stderr)
	defer stop()
	root := newRoot(environ, stdout, stderr)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "activityd: %v\n", err)
	}
	return exitCode(err)
}

// untilSignalled returns a context that the first SIGINT or SIGTERM ends, so
// that everything drains; the second one ends the process.
func untilSignalled(stderr io.Writer) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		defer signal.Stop(signals)
		select {
		case s := <-signals:
			_, _ = fmt.Fprintf(stderr, "activityd: %v: finishing what is under way; once more to stop at once\n", s)
			cancel()
		case <-ctx.Done():
			return
		}
		<-signals
		os.Exit(1)
	}()
	return ctx, cancel
}
