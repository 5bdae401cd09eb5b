// Command bench measures activityd beside what one would use instead of it, on
// private servers that it starts and removes. It is a module of its own, so that
// what it compares with is no dependency of activityd.
//
//	go run . queue            the queue beside asynq: minutes
//	go run . queue --quick    the same with small numbers: seconds
//
// docs/benchmarks.md says what is measured and what came out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := bench(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("want a benchmark: queue")

// bench runs the benchmark that the arguments name. Results go to out, progress
// to log.
func bench(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) == 0 || args[0] != "queue" {
		return errUsage
	}
	o, err := parseOptions(args[1:], log)
	if err != nil {
		return err
	}
	r, err := benchQueue(ctx, o, log)
	if err != nil {
		return err
	}
	fmt.Fprint(out, r.text())
	if o.json == "" {
		return nil
	}
	return r.writeJSON(o.json)
}
