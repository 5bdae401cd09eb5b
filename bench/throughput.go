package main

import (
	"context"
	"fmt"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/tasks"
)

// The classes of variants, which activityd's are compared with.
const (
	simple  = "simple"  // a handler as one would write it: the fastest and the least safe
	safe    = "safe"    // activityd's handler
	durable = "durable" // Redis syncs each write
	changed = "changed" // after the transaction of the change
)

// variant is a queue with one way to enqueue tasks in it.
type variant struct {
	name      string
	system    system
	producers int // goroutines that enqueue
	batch     int // tasks in each call of enqueue
	enqueue   func(ctx context.Context, pairs []contacts.Pair) error
	changes   bool     // enqueue also makes the change that the task is about
	class     string   // that others are compared with
	against   []string // classes that it is compared with
}

// variants returns all that are compared, in the order of the report.
func (s *suite) variants() []variant {
	many, our := s.options.producers, newActivityd(s.backend)
	list := []variant{
		{name: "activityd, Enqueue of 1000", system: our, producers: 1, batch: 1000, enqueue: our.enqueue, against: []string{simple, safe, durable}},
		{name: "activityd, plain SQL", system: our, producers: many, batch: 1, enqueue: our.insert, against: []string{simple}},
		{name: "activityd, change and task in a transaction", system: our, producers: many, batch: 1, enqueue: our.insertWithChange, changes: true, against: []string{changed}},
	}
	for _, n := range s.options.concurrency {
		a := newAsynq(s.backend, n)
		list = append(list, variant{name: fmt.Sprintf("asynq, concurrency %d", n), system: a, producers: many, batch: 1, enqueue: a.enqueue, class: simple})
	}
	n := s.options.concurrency[len(s.options.concurrency)/2]
	plain, guarded := newAsynq(s.backend, n), newAsynq(s.backend, n)
	guarded.pairs = &tasks.PairHandler{Index: s.index, Store: s.store}
	return append(list,
		variant{name: "asynq, change, then task", system: plain, producers: many, batch: 1, enqueue: plain.enqueueAfterChange, changes: true, class: changed},
		variant{name: "asynq, activityd's handler", system: guarded, producers: many, batch: 1, enqueue: guarded.enqueue, class: safe},
		variant{name: "asynq, appendfsync always", system: plain, producers: many, batch: 1, enqueue: plain.enqueue, class: durable},
	)
}

// taskRun runs tasks through a variant.
type taskRun struct {
	*suite
	variant
	tasks int    // in each run
	round uint64 // seeds the choice of the pairs: all variants get the same ones
	pairs []contacts.Pair
	done  *countdown
	stop  func() error // ends the workers; nil: there are none
}

// The phases of a task, each of which is measured by itself.
const (
	endToEnd    = ", end to end"     // workers wait when the first task is enqueued
	enqueueOnly = ", enqueuing only" // there are no workers
	workOff     = ", working off"    // all tasks are in the queue when the workers start
)

// endToEnd returns a contender that runs n tasks end to end.
func (s *suite) endToEnd(v variant, n int) (*taskRun, contender) {
	r := &taskRun{suite: s, variant: v, tasks: n}
	return r, contender{name: v.name + endToEnd, prepare: r.choose, run: r.all, after: r.end(0)}
}

// phases returns a contender that runs n tasks end to end, and then in two steps.
func (s *suite) phases(v variant, n int) contender {
	r, c := s.endToEnd(v, n)
	c.next = &contender{
		name: v.name + enqueueOnly, run: r.enqueueAll, after: r.end(n),
		next: &contender{name: v.name + workOff, run: r.workAll, after: r.end(0)},
	}
	return c
}

// choose chooses the pairs of a round, and how Redis syncs.
func (r *taskRun) choose(ctx context.Context) error {
	r.round++
	r.pairs = r.options.site.pairs(r.tasks, r.round, r.changes)
	sync := "everysec"
	if r.class == durable {
		sync = "always"
	}
	return r.client.ConfigSet(ctx, "appendfsync", sync).Err()
}

func (r *taskRun) all(ctx context.Context) (int, error) {
	if err := r.start(ctx); err != nil {
		return 0, err
	}
	if _, err := r.enqueueAll(ctx); err != nil {
		return 0, err
	}
	return r.tasks, r.done.wait(ctx)
}

func (r *taskRun) enqueueAll(ctx context.Context) (int, error) {
	return r.tasks, inParallel(ctx, r.producers, r.batch, r.pairs, r.enqueue)
}

func (r *taskRun) workAll(ctx context.Context) (int, error) {
	if err := r.start(ctx); err != nil {
		return 0, err
	}
	return r.tasks, r.done.wait(ctx)
}

// start starts the workers.
func (r *taskRun) start(ctx context.Context) (err error) {
	r.done = newCountdown(r.tasks)
	r.stop, err = r.system.work(ctx, r.done)
	return err
}

// end returns a function that stops the workers and checks how many tasks are left. If
// none are, it deletes the contacts that the variant added, so that it can add them
// again.
func (r *taskRun) end(want int) func(context.Context) error {
	return func(ctx context.Context) error {
		if r.stop != nil {
			err := r.stop()
			if r.stop = nil; err != nil {
				return err
			}
		}
		left, err := r.system.left(ctx)
		if err == nil && left != want {
			err = fmt.Errorf("the queue holds %d tasks, want %d", left, want)
		}
		if err != nil || want > 0 || !r.changes {
			return err
		}
		return inParallel(ctx, 4, 1, r.pairs, func(ctx context.Context, p []contacts.Pair) error {
			_, err := r.db.ExecContext(ctx, "DELETE FROM contacts WHERE user_id = ? AND contact_id = ?", p[0].User, p[0].Contact)
			return err
		})
	}
}

// benchThroughput measures activityd's queue beside asynq.
func (s *suite) benchThroughput(ctx context.Context) error {
	if err := s.fill(ctx, s.options.site.refilled()); err != nil {
		return err
	}
	list := s.variants()
	contenders := make([]contender, len(list))
	for i, v := range list {
		contenders[i] = s.phases(v, s.options.tasks)
	}
	all, err := s.runs(ctx, contenders)
	if err != nil {
		return err
	}
	for _, phase := range []string{endToEnd, enqueueOnly, workOff} {
		part := fmt.Sprintf("Runs of %d contact changes%s", s.options.tasks, phase)
		for _, v := range list {
			s.results.rates(part, all, v.name+phase, "tasks/s", "", nil)
		}
	}
	for _, v := range list {
		for _, class := range v.against {
			rate, cpu := (*aim)(nil), (*aim)(nil)
			switch class {
			case simple:
				rate, cpu = atLeast(10), atMost(0.25)
			case safe, durable, changed:
			default:
				rate, cpu = atLeast(1.6), atMost(1/1.6)
			}
			s.compare(all, v.name+endToEnd, best(all, list, class)+endToEnd, rate, cpu)
		}
	}
	return nil
}

// best returns the name of the variant of a class with the highest rate end to end.
func best(all map[string]samples, list []variant, class string) (name string) {
	highest := 0.0
	for _, v := range list {
		if rate := all[v.name+endToEnd].spread(sample.rate).Median; v.class == class && rate > highest {
			name, highest = v.name, rate
		}
	}
	return name
}

// compare adds the ratios of the rates and of the processor times, with aims.
func (s *suite) compare(all map[string]samples, name, against string, rate, cpu *aim) {
	const part = "The queue beside asynq"
	s.results.add(figure{Part: part, Name: name + ": tasks/s", Against: against, Ratio: all[name].over(all[against], sample.rate), Aim: rate})
	s.results.add(figure{Part: part, Name: name + ": CPU for each task", Against: against, Ratio: all[name].over(all[against], sample.micros), Aim: cpu})
}

// benchBatches measures contact changes end to end in batches and one at a time.
func (s *suite) benchBatches(ctx context.Context) error {
	if err := s.fill(ctx, s.options.site.refilled()); err != nil {
		return err
	}
	const part = "Contact changes from end to end"
	many, one := newActivityd(s.backend), newActivityd(s.backend)
	for i := range one.pool.Workers {
		one.pool.Workers[i].Batch = 1
	}
	n := max(1, s.options.tasks/4) // those that run one at a time take long
	_, batches := s.endToEnd(variant{name: "Enqueue of 1000, claims of 256", system: many, producers: 1, batch: 1000, enqueue: many.enqueue}, n)
	_, single := s.endToEnd(variant{name: "one task at a time: enqueued, claimed, done", system: one, producers: 1, batch: 1, enqueue: one.enqueue}, n)
	all, err := s.runs(ctx, []contender{batches, single})
	if err != nil {
		return err
	}
	s.results.rates(part, all, single.name, "tasks/s", "", nil)
	s.results.rates(part, all, batches.name, "tasks/s", single.name, atLeast(10))
	return nil
}
