package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// options say what is measured, and how much of it.
type options struct {
	rounds int
	site   siteSize
	json   string
	mysqld string // program; empty: what the environment says, or is installed
	redis  string // likewise
	parts  []part

	reads     int           // of each viewer in each round
	circles   int           // viewers with contacts, whose walks are counted
	members   [2]int        // of the sites on which a read is compared with plain SQL
	circlesOf []int         // contacts of the viewers there, ascending
	plain     time.Duration // for each viewer there and each way in each round, after which none begins
	requests  int           // to the endpoint in each run
	conns     int           // to the endpoint
	sets      int           // in the index that is saved
	pace      time.Duration // between two reads while it is saved
	quiet     time.Duration // time for which sets are read without a save
	instances int           // of Redis, beside one

	tasks       int           // in each run
	producers   int           // goroutines that enqueue one task at a time
	concurrency []int         // of asynq
	wakes       int           // samples in each round of the time from enqueuing to the start
	idle        time.Duration // maximum pause before each of them
	pairs       int           // of acquire and done in each run on Redis; a tenth on MySQL
	holders     []int         // goroutines that do them
	backlog     [2]int        // waiting tasks: few and many
	repetitions int           // of each operation with such a backlog
	snapshot    time.Duration // for which a transaction holds one

	followers int           // with a device each
	pushes    int           // deliveries in each run
	rate      int           // notifications a second, of which the latency is measured
	paced     time.Duration // how long, in each run
	urgents   int           // urgent events in each run
	entries   int           // that a producer adds to the stream in each round
	held      int           // deliveries that a process holds when it is killed
	hostile   int           // push services of a member that fail

	step      time.Duration // of each load of the overload
	multiples []float64     // of the capacity
	compared  []float64     // likewise, for all limiters
	widgets   int           // that wake up together
	beside    []float64     // of the reads that fit, beside a backfill
}

func fullOptions() options {
	return options{
		rounds: 5, site: fullSite(),
		reads: 1000, circles: 200, members: [2]int{100_000, 10_000_000}, circlesOf: []int{10, 300, 10_000, 100_000}, plain: 400 * time.Millisecond, requests: 15_000, conns: 16,
		sets: 3_000_000, pace: time.Millisecond, quiet: 10 * time.Second, instances: 4,
		tasks: 20_000, producers: 16, concurrency: []int{10, 20, 50},
		wakes: 20, idle: time.Second, pairs: 20_000, holders: []int{1, 16}, backlog: [2]int{1000, 1_000_000}, repetitions: 30, snapshot: 30 * time.Minute,
		followers: 100_000, pushes: 20_000, rate: 2000, paced: 8 * time.Second, urgents: 20, entries: 10_000, held: 100, hostile: 600,
		step: time.Minute, multiples: []float64{1, 2, 4, 10}, compared: []float64{4, 10}, widgets: 100_000, beside: []float64{0.25, 0.5},
	}
}

func quickOptions() options {
	return options{
		rounds: 1, site: quickSite(),
		reads: 50, circles: 4, members: [2]int{2000, 10_000}, circlesOf: []int{10, 300, 2000}, plain: 20 * time.Millisecond, requests: 500, conns: 16,
		sets: 20_000, pace: time.Millisecond, quiet: 200 * time.Millisecond, instances: 4,
		tasks: 1000, producers: 8, concurrency: []int{20},
		wakes: 5, idle: 20 * time.Millisecond, pairs: 2000, holders: []int{1, 16}, backlog: [2]int{100, 2000}, repetitions: 3, snapshot: 2 * time.Second,
		followers: 3000, pushes: 2000, rate: 200, paced: time.Second, urgents: 3, entries: 500, held: 20, hostile: 60,
		step: 2 * time.Second, multiples: []float64{1, 4}, compared: []float64{4}, widgets: 2000, beside: []float64{0.25},
	}
}

// parseOptions reads the parts to measure, which come first, and the flags.
func parseOptions(args []string, log io.Writer) (options, error) {
	full := fullOptions()
	flags := flag.NewFlagSet("bench all|PART,...", flag.ContinueOnError)
	flags.SetOutput(log)
	quick := flags.Bool("quick", false, "small numbers, to see that it works")
	rounds := flags.Int("rounds", 0, fmt.Sprintf("measurements of each contender (default %d)", full.rounds))
	tasks := flags.Int("tasks", 0, fmt.Sprintf("tasks in each run (default %d)", full.tasks))
	file := flags.String("json", "", "file that the results are also written to")
	mysqld := flags.String("mysqld", "", "MySQL or MariaDB server to start (default $ACTIVITYD_TEST_MYSQLD, or the installed one)")
	redisServer := flags.String("redis-server", "", "Redis or Valkey server to start (default $ACTIVITYD_TEST_REDIS, or the installed one)")
	step := flags.Duration("step", 0, fmt.Sprintf("how long each load of the overload is offered, at least 1s (default %v)", full.step))
	snapshot := flags.Duration("snapshot", 0, fmt.Sprintf("how long a transaction holds a snapshot beside the queue (default %v)", full.snapshot))
	named := flags.String("only", "", "parts to measure in place of the first argument: "+partNames())
	names := ""
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		names, args = args[0], args[1:]
	}
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o := full
	if *quick {
		o = quickOptions()
	}
	o.rounds, o.tasks = cmp.Or(*rounds, o.rounds), cmp.Or(*tasks, o.tasks)
	o.step, o.snapshot = cmp.Or(*step, o.step), cmp.Or(*snapshot, o.snapshot)
	o.json, o.mysqld, o.redis = *file, *mysqld, *redisServer
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unexpected arguments %q", flags.Args())
	}
	var err error
	if o.parts, err = partsNamed(cmp.Or(*named, names)); err != nil {
		return o, err
	}
	only := func(group string) bool {
		return !slices.ContainsFunc(o.parts, func(p part) bool { return p.group != group })
	}
	switch {
	case *quick:
	case only("overload"):
		o.site = overloadSite()
	case only("pace"):
		o.site = paceSite()
	}
	return o, o.check()
}

// chooseServers makes internal/testing/localserver start the servers that were named.
func (o options) chooseServers() error {
	for variable, program := range map[string]string{"ACTIVITYD_TEST_MYSQLD": o.mysqld, "ACTIVITYD_TEST_REDIS": o.redis} {
		if program == "" {
			continue
		}
		if err := os.Setenv(variable, program); err != nil {
			return err
		}
	}
	return nil
}

func (o options) check() error {
	switch most := o.site.Refills * fewestContacts / 2; {
	case o.rounds < 1:
		return fmt.Errorf("--rounds %d: want at least 1", o.rounds)
	case o.tasks < 1 || o.tasks > most:
		return fmt.Errorf("--tasks %d: want 1 to %d", o.tasks, most)
	case o.step < time.Second:
		return fmt.Errorf("--step %v: want at least 1s", o.step)
	case o.snapshot < 0:
		return fmt.Errorf("--snapshot %v: want more than 0", o.snapshot)
	}
	return o.site.check()
}
