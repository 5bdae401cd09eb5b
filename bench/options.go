package main

import (
	"flag"
	"fmt"
	"io"
	"time"
)

// options say how much is measured.
type options struct {
	rounds      int
	tasks       int           // of each contender in each round
	samples     int           // of the time from enqueuing to the start
	idle        time.Duration // the longest pause before each of them
	backlog     [2]int        // waiting tasks: few and many
	repetitions int           // of each operation with such a backlog
	members     int
	contacts    int // of each member
	producers   int // goroutines that enqueue one by one
	concurrency []int
	json        string
	only        string // one part alone: throughput, wake or backlog
}

func fullOptions() options {
	return options{
		rounds: 5, tasks: 20_000, samples: 200, idle: time.Second, backlog: [2]int{1000, 1_000_000}, repetitions: 30,
		members: 5000, contacts: 200, producers: 16, concurrency: []int{10, 20, 50},
	}
}

func quickOptions() options {
	return options{
		rounds: 1, tasks: 1000, samples: 5, idle: 20 * time.Millisecond, backlog: [2]int{100, 2000}, repetitions: 3,
		members: 200, contacts: 20, producers: 8, concurrency: []int{20},
	}
}

func parseOptions(args []string, log io.Writer) (options, error) {
	full := fullOptions()
	flags := flag.NewFlagSet("bench queue", flag.ContinueOnError)
	flags.SetOutput(log)
	quick := flags.Bool("quick", false, "small numbers, to see that it works")
	rounds := flags.Int("rounds", 0, fmt.Sprintf("how often each contender runs (default %d)", full.rounds))
	tasks := flags.Int("tasks", 0, fmt.Sprintf("tasks of each run (default %d)", full.tasks))
	file := flags.String("json", "", "write the results to this file, too")
	only := flags.String("only", "", "measure one part alone: throughput, wake or backlog")
	if err := flags.Parse(args); err != nil {
		return options{}, err
	}
	o := full
	if *quick {
		o = quickOptions()
	}
	if *rounds > 0 {
		o.rounds = *rounds
	}
	if *tasks > 0 {
		o.tasks = *tasks
	}
	o.json, o.only = *file, *only
	return o, o.check(flags.Args())
}

func (o options) check(rest []string) error {
	switch most := o.members * o.contacts; {
	case len(rest) > 0:
		return fmt.Errorf("unexpected arguments %q", rest)
	case o.tasks > most:
		return fmt.Errorf("--tasks %d: want at most %d, one for each contact", o.tasks, most)
	case o.only != "" && o.only != partThroughput && o.only != partWake && o.only != partBacklog:
		return fmt.Errorf("--only %q: want %s, %s or %s", o.only, partThroughput, partWake, partBacklog)
	}
	return nil
}

// The parts of the benchmark.
const (
	partThroughput = "throughput"
	partWake       = "wake"
	partBacklog    = "backlog"
)

// wants tells whether a part is to be measured.
func (o options) wants(part string) bool { return o.only == "" || o.only == part }
