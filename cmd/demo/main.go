// Command demo shows activityd on a made-up photo site with live traffic, on a page that updates
// as one watches: the same question answered by activityd and by plain SQL, and how long each takes.
//
// Where mariadbd (or mysqld) and redis-server are installed, it starts private ones in a temporary
// folder; elsewhere tables in memory and a Redis inside this process stand in for them, without
// the phone and the console.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
)

func main() {
	o := demo.Options{World: world.Demo()}
	f := flag.NewFlagSet("demo", flag.ContinueOnError)
	f.StringVar(&o.Listen, "listen", "127.0.0.1:8080", "`address` of the page; it must be one of this machine alone")
	f.BoolVar(&o.Embedded, "embedded", false, "stand in for the servers even where they are installed")
	f.Float64Var(&o.Rate, "rate", 2, "changes on the made-up site in a second")
	err := f.Parse(os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q: see --help", f.Arg(0))
	case err == nil && o.Rate <= 0:
		err = fmt.Errorf("--rate %g: want more than 0", o.Rate)
	}
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		context.AfterFunc(ctx, stop) // a second one ends the process at once
		err = demo.Run(ctx, o, os.Stdout, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
		stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}
