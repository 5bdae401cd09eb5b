// Command bench measures activityd beside what one would use instead of it, on
// private servers that it starts and removes. It is a module of its own, so that
// what it compares with is no dependency of activityd.
//
//	go run . all                      everything: an hour
//	go run . index                    reads, fan-out, refill, memory, saves: half an hour
//	go run . queue                    the queue beside asynq: an hour
//	go run . push                     notifications, beside bare loops and apns2: ten minutes
//	go run . once                     locks beside SET NX, redislock and redsync: ten minutes
//	go run . overload                 more reads than fit, beside other limits; servers that are slow: half an hour
//	go run . pace                     a backfill beside reads: five minutes
//	go run . scale                    what single operations cost, and loads on sites of three sizes
//	go run . capacity                 what a site needs, computed from that; docs/scale.md shows it
//	go run . reads,backlog --quick    two parts with small numbers: seconds
//	go run . table a.json b.json      the tables of docs/benchmarks, from what --json wrote
//
// docs/benchmarks.md says what came out.
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

// bench measures what the arguments ask for. Results go to out, progress to log.
func bench(ctx context.Context, args []string, out, log io.Writer) error {
	if len(args) > 0 {
		switch args[0] {
		case "scale":
			return measureScale(ctx, args[1:], log)
		case "serve":
			return serveBehind(ctx, args[1:], log)
		case "capacity":
			return reportCapacity(args[1:], out, log)
		case "table":
			return tables(args[1:], out, log)
		}
	}
	o, err := parseOptions(args, log)
	if err != nil {
		return err
	}
	if err := o.chooseServers(); err != nil {
		return err
	}
	r, err := measure(ctx, o, log)
	if err != nil {
		return err
	}
	fmt.Fprint(out, r.text())
	if o.json == "" {
		return nil
	}
	return r.writeJSON(o.json)
}
