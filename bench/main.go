// Command bench measures activityd beside what one would use instead of it, on
// private servers that it starts and removes. It is a module of its own, so that
// what it compares with is no dependency of activityd.
//
//	go run . all              reads, fan-out and what belongs to them: half an hour
//	go run . queue            the queue beside asynq: a quarter of an hour
//	go run . fanout --quick   a part of the first with small numbers: seconds
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
	"slices"
	"strings"
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

// errUsage names the benchmarks.
var errUsage = fmt.Errorf("want a benchmark: queue, all, or one of its parts: %s", strings.Join(suiteParts(), ", "))

// outcome is what a benchmark found.
type outcome interface {
	text() string
	writeJSON(file string) error
}

// bench runs the benchmark that the arguments name. Results go to out, progress
// to log.
func bench(ctx context.Context, args []string, out, log io.Writer) error {
	var found outcome
	var file string
	var err error
	switch {
	case len(args) > 0 && args[0] == "queue":
		found, file, err = runQueue(ctx, args, log)
	case len(args) > 0 && (args[0] == "all" || slices.Contains(suiteParts(), args[0])):
		found, file, err = runSuite(ctx, args, log)
	default:
		return errUsage
	}
	if err != nil {
		return err
	}
	fmt.Fprint(out, found.text())
	if file == "" {
		return nil
	}
	return found.writeJSON(file)
}

func runQueue(ctx context.Context, args []string, log io.Writer) (outcome, string, error) {
	o, err := parseOptions(args[1:], log)
	if err != nil {
		return nil, "", err
	}
	r, err := benchQueue(ctx, o, log)
	return r, o.json, err
}

func runSuite(ctx context.Context, args []string, log io.Writer) (outcome, string, error) {
	o, err := parseSuite(args, log)
	if err != nil {
		return nil, "", err
	}
	r, err := benchSuite(ctx, o, log)
	return r, o.json, err
}
