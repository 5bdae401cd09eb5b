// Command bench measures activityd beside the programs that a site would use instead, on private
// servers that it starts and removes. It runs the program itself, and the public packages. It is
// a module of its own, so that activityd does not depend on its contenders.
//
//	go run . reads        reads over HTTP beside two statements of plain SQL
//	go run . fanout       the uploads of a member beside pipelined ZADDs
//	go run . refill       all sets after a loss beside a query and a ZADD for each member
//	go run . queue        the queue beside asynq
//	go run . push         notifications beside apns2, and a mixture of small events
//	go run . once         locks beside SET NX, redislock and redsync
//	go run . overload     more reads than fit
//	go run . all          everything: half an hour; with --quick a minute, to see that it works
//
// A figure is the median of its rounds, in which the contenders run in turn. The tables are
// Markdown; docs/limits.md has some of them.
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
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// size is how much is measured.
type size struct {
	rounds    int
	members   int           // with photos
	readers   int           // of them with contacts, and followers of the uploader
	contacts  []int         // of the viewers whose reads are compared, ascending
	reads     int           // of each viewer and way in each round,
	longest   time.Duration // or as many as begin within this time
	private   int           // newest photos of the owner who hides them
	tasks     int           // in each run
	wakes     int           // tasks that an idle worker is given
	followers int           // with a device each
	events    int           // small events, in each run
	rate      int           // of them in a second
	pairs     int           // acquired and ended in each run on Redis; a tenth on MySQL
	step      time.Duration // of each load of the overload
}

var (
	full = size{
		rounds: 5, members: 100_000, readers: 50_000, contacts: []int{10, 300, 10_000, 100_000}, reads: 1000, longest: 400 * time.Millisecond, private: 50_000,
		tasks: 20_000, wakes: 20, followers: 20_000, events: 6400, rate: 800, pairs: 20_000, step: 12 * time.Second,
	}
	quick = size{
		rounds: 1, members: 3000, readers: 1000, contacts: []int{10, 300, 3000}, reads: 50, longest: 100 * time.Millisecond, private: 1000,
		tasks: 1000, wakes: 3, followers: 1000, events: 200, rate: 200, pairs: 1000, step: time.Second,
	}
)

// parts are all parts that can be measured, in the order in which they run.
var parts = []struct {
	name string
	run  func(*bench, context.Context) error
}{
	{"reads", (*bench).benchReads},
	{"fanout", (*bench).benchFanOut},
	{"refill", (*bench).benchRefill},
	{"queue", (*bench).benchQueue},
	{"push", (*bench).benchPush},
	{"once", (*bench).benchOnce},
	{"overload", (*bench).benchOverload},
}

// bareCommand has this program serve the read by hand, as a contender.
const bareCommand = "bare"

// run measures the parts that the arguments name. Tables go to out, progress to log.
func run(ctx context.Context, args []string, out, log io.Writer) (err error) {
	flags := flag.NewFlagSet("bench all|PART,...", flag.ContinueOnError)
	flags.SetOutput(log)
	small := flags.Bool("quick", false, "small numbers, to see that it works")
	rounds := flags.Int("rounds", 0, "measurements of each contender (default 5, or 1 with --quick)")
	file := flags.String("json", "", "`file` that the figures are also written to")
	mysqld := flags.String("mysqld", os.Getenv("ACTIVITYD_TEST_MYSQLD"), "MySQL or MariaDB `program` to start instead of the installed one")
	redisServer := flags.String("redis-server", os.Getenv("ACTIVITYD_TEST_REDIS"), "Redis or Valkey `program`, likewise")
	if slices.Equal(args, []string{bareCommand}) {
		return serveBare(ctx, log)
	}
	names := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		names, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := partsNamed(names)
	if err != nil {
		return err
	}
	if flags.NArg() > 0 || *rounds < 0 {
		return fmt.Errorf("unexpected arguments %q, --rounds=%d", flags.Args(), *rounds)
	}
	s := full
	if *small {
		s = quick
	}
	if *rounds > 0 {
		s.rounds = *rounds
	}
	if err := errors.Join(os.Setenv("ACTIVITYD_TEST_MYSQLD", *mysqld), os.Setenv("ACTIVITYD_TEST_REDIS", *redisServer)); err != nil {
		return err
	}
	b, err := newBench(ctx, s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	if err := b.measure(ctx, chosen); err != nil {
		return err
	}
	b.report.write(out)
	if *file != "" {
		return b.report.writeJSON(*file)
	}
	return nil
}

// measure runs the parts of these names.
func (b *bench) measure(ctx context.Context, names []string) error {
	for _, p := range parts {
		if !slices.Contains(names, p.name) {
			continue
		}
		fmt.Fprintf(b.log, "%s\n", p.name)
		if err := p.run(b, ctx); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	return nil
}

// partsNamed returns the names in a comma-separated list, in which "all" stands for every part.
func partsNamed(list string) (chosen []string, err error) {
	var all []string
	for _, p := range parts {
		all = append(all, p.name)
	}
	if list == "all" {
		return all, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if !slices.Contains(all, name) {
			return nil, fmt.Errorf("no part %q: want all, or some of %s", name, strings.Join(all, ","))
		}
		chosen = append(chosen, name)
	}
	return chosen, nil
}
