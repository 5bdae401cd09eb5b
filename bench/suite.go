package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
)

// part is a part of the suite.
type part struct {
	name, group string
	site        bool // it needs the site's tables
	durable     bool // Redis appends to a file, and syncs it every second
	run         func(*suite, context.Context) error
}

// allParts returns the parts in the order in which they run. The backlog is the
// last, because its tasks stay in the table.
func allParts() []part {
	return []part{
		{name: "reads", group: "index", site: true, run: (*suite).benchReads},
		{name: "plain", group: "index", run: (*suite).benchPlain},
		{name: "large", group: "large", run: (*suite).benchLarge},
		{name: "rows", group: "index", site: true, run: (*suite).benchRows},
		{name: "endpoint", group: "index", site: true, run: (*suite).benchEndpoint},
		{name: "fanout", group: "index", site: true, run: (*suite).benchFanOut},
		{name: "broadcast", group: "index", site: true, run: (*suite).benchBroadcast},
		{name: "cluster", group: "index", site: true, run: (*suite).benchCluster},
		{name: "refill", group: "index", site: true, run: (*suite).benchRefill},
		{name: "memory", group: "index", run: (*suite).benchMemory},
		{name: "friends", group: "index", site: true, run: (*suite).benchFriends},
		{name: "batches", group: "index", site: true, durable: true, run: (*suite).benchBatches},
		{name: "save", group: "index", run: (*suite).benchSave},
		{name: "throughput", group: "queue", site: true, durable: true, run: (*suite).benchThroughput},
		{name: "wake", group: "queue", durable: true, run: (*suite).benchWake},
		{name: "cost", group: "queue", run: (*suite).benchCost},
		{name: "snapshot", group: "queue", run: (*suite).benchSnapshot},
		{name: "once", group: "once", run: (*suite).benchOnce},
		{name: "deliveries", group: "push", durable: true, run: (*suite).benchDeliveries},
		{name: "latency", group: "push", durable: true, run: (*suite).benchLatency},
		{name: "mixture", group: "push", durable: true, run: (*suite).benchMixture},
		{name: "audience", group: "push", durable: true, run: (*suite).benchAudience},
		{name: "producer", group: "push", durable: true, run: (*suite).benchProducer},
		{name: "neighbours", group: "push", durable: true, run: (*suite).benchNeighbours},
		{name: "failover", group: "push", durable: true, run: (*suite).benchFailover},
		{name: "classes", group: "overload", site: true, run: (*suite).benchClasses},
		{name: "loads", group: "overload", site: true, run: (*suite).benchOverload},
		{name: "slow", group: "overload", site: true, run: (*suite).benchSlow},
		{name: "herd", group: "overload", site: true, run: (*suite).benchHerd},
		{name: "pace", group: "pace", site: true, run: (*suite).benchPace},
		{name: "backlog", group: "queue", run: (*suite).benchBacklog},
	}
}

// partNames are what partsNamed takes.
func partNames() string {
	names := []string{"all", "index", "queue", "push"}
	for _, p := range allParts() {
		names = append(names, p.name)
	}
	return strings.Join(names, ", ")
}

// partsNamed returns the parts in a comma-separated list of parts and groups.
func partsNamed(list string) ([]part, error) {
	names := strings.Split(list, ",")
	in := func(p part, name string) bool { return name == p.name || name == p.group || name == "all" }
	for _, name := range names {
		if !slices.ContainsFunc(allParts(), func(p part) bool { return in(p, name) }) {
			return nil, fmt.Errorf("no part %q: want some of %s", name, partNames())
		}
	}
	return slices.DeleteFunc(allParts(), func(p part) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return in(p, name) })
	}), nil
}

// suite is a run of the benchmark.
type suite struct {
	*backend
	options  options
	meter    *meter
	results  *results
	out      io.Writer // progress
	store    *contacts.MySQL
	push     *pushBench // nil: no part has needed it yet
	overload *overload  // likewise
	wired    *through   // likewise
}

// newSuite starts the servers, and makes the site if a part needs it. The caller
// closes it.
func newSuite(ctx context.Context, o options, out io.Writer) (s *suite, err error) {
	s = &suite{options: o, out: out, results: &results{Site: o.site, Rounds: o.rounds}}
	if s.backend, err = newBackend(ctx); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.store = contacts.NewMySQL(s.db)
	if s.results.Machine, err = describe(ctx, s.backend); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(o.parts, func(p part) bool { return p.site }) {
		if err := loadSite(ctx, s.backend, o.site, out); err != nil {
			return nil, err
		}
	}
	s.meter, err = newMeter(ctx, s.backend, s.client)
	return s, err
}

// measure runs the parts that the options name.
func measure(ctx context.Context, o options, out io.Writer) (_ *results, err error) {
	s, err := newSuite(ctx, o, out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for _, p := range o.parts {
		start := time.Now()
		s.results.bench = p.name
		if err := s.appendOnly(ctx, p.durable); err != nil {
			return nil, err
		}
		if err := p.run(s, ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(out, "%s took %.0f s\n", p.name, time.Since(start).Seconds())
	}
	return s.results, nil
}

// runs measures contenders in turn, run by run.
func (s *suite) runs(ctx context.Context, list []contender) (map[string]samples, error) {
	return s.meter.alternate(ctx, schedule{rounds: s.options.rounds, calls: 1, out: s.out}, list)
}

// calls measures the times of single calls of contenders, in turn: n of each in a
// round, which ends early once it took so long.
func (s *suite) calls(ctx context.Context, n int, longest time.Duration, list []contender) (map[string]samples, error) {
	return s.meter.alternate(ctx, schedule{rounds: s.options.rounds, calls: n, longest: longest, timesOnly: true, out: s.out}, list)
}

// fill writes the sets of users as a service does.
func (s *suite) fill(ctx context.Context, users []member.ID) error {
	handler := &tasks.RefillHandler{Index: s.index, Store: s.store}
	return inParallel(ctx, 1, refillBatch, users, refillOf(handler))
}
