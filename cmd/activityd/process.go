package main

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// processConfig is the part about the work of a process, and about the time it may take to end.
type processConfig struct {
	role    string
	workers map[string]int
	grace   time.Duration
	drain   time.Duration

	// For tests.
	lease, poll time.Duration
	fanOutPart  int
}

// The roles of a process.
const (
	roleAll     = "all"
	roleAPI     = "api"
	roleWorkers = "workers"
)

// defaultDrain: load balancers ask every second or two, and take two or three failures for an answer.
const defaultDrain = 5 * time.Second

func (c *processConfig) processFlags(f *pflag.FlagSet) {
	f.Var(settings.NewChoice(&c.role, roleAll, roleAPI, roleWorkers), "role", "what this process does")
	f.StringToIntVar(&c.workers, "workers", nil, "workers of each queue, `queue=number,…`, 0 to 1000; standard queues that are not named keep theirs")
	c.workers, f.Lookup("workers").DefValue = defaultWorkers()
	f.Var(settings.NewNumber(&c.grace, queue.DefaultGrace, time.Millisecond, time.Hour, ""), "grace", "how long requests may take to finish at the stop, and then tasks")
	f.Var(settings.NewNumber(&c.drain, defaultDrain, 0, time.Hour, ""), "drain", "how long requests are served on after SIGTERM, while /readyz is 503 and load balancers notice")
	settings.NoFlag(f, "drain")
	// Tests of crashes would be slow without the settings below. A shorter lease or poll only costs more statements, a
	// larger part of a fan-out only holds its worker for longer.
	f.Var(settings.NewNumber(&c.lease, queue.DefaultLease, time.Second, queue.MaxLease, ""), "task-lease", "lease of claimed tasks")
	f.Var(settings.NewNumber(&c.poll, queue.DefaultPoll, time.Millisecond, time.Hour, ""), "poll", "interval at which idle workers look for tasks")
	f.Var(settings.NewNumber(&c.fanOutPart, tasks.DefaultPartSize, 1, 20_000, ""), "fan-out-part", "followers that one task of a fan-out updates")
	settings.ForTests(f, "task-lease", "poll", "fan-out-part")
}

// defaultWorkers returns how many workers each queue has, also as text in the order of [tasks.DefaultWorkers].
func defaultWorkers() (counts map[string]int, text string) {
	counts = make(map[string]int)
	var words []string
	for _, w := range tasks.DefaultWorkers() {
		counts[w.Queue] = w.Count
		words = append(words, fmt.Sprintf("%s=%d", w.Queue, w.Count))
	}
	return counts, strings.Join(words, ",")
}

func (c *processConfig) checkProcess(want wanted) {
	for _, name := range slices.Sorted(maps.Keys(c.workers)) {
		want("workers", name != "" && len(name) <= queue.MaxQueueName, "queue %q: want a name of 1 to %d bytes", name, queue.MaxQueueName)
		want("workers", c.workers[name] >= 0 && c.workers[name] <= 1000, "%s=%d: want 0 to 1000", name, c.workers[name])
	}
	total := 0
	for _, w := range c.poolOptions().Workers {
		total += w.Count
	}
	want("workers", total > 0 || c.role == roleAPI, "there is none: no task would ever be done; want --role=api for that")
}

// claimGap is the distance of claims that are not full: the tasks that a site enqueues in that time are done together, for half of
// the statements.
const claimGap = 15 * time.Millisecond

func (c *processConfig) poolOptions() queue.PoolOptions {
	workers := tasks.DefaultWorkers()
	named := maps.Clone(c.workers)
	for i := range workers {
		if count, ok := named[workers[i].Queue]; ok {
			workers[i].Count = count
			delete(named, workers[i].Queue)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		workers = append(workers, queue.Workers{Queue: name, Count: named[name], Batch: tasks.DefaultBatch})
	}
	return queue.PoolOptions{Workers: workers, Lease: c.lease, Poll: c.poll, Grace: c.grace, Gap: claimGap}
}

// ownQueues are the queues of activityd's own tasks. Workers by HTTP get nothing from them.
func (c *processConfig) ownQueues() (names []string) {
	for _, w := range c.poolOptions().Workers {
		names = append(names, w.Queue)
	}
	return names
}

// processName is the owner of the leases of this process.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%d@%s", os.Getpid(), host)
}
