package main

import (
	"context"
	"errors"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/tasks"
)

// benchBatches measures contact changes from end to end in batches and one at a
// time, on durable servers of their own, as "bench queue" does.
func (s *suite) benchBatches(ctx context.Context) (err error) {
	const (
		part   = "Contact changes from end to end"
		many   = "Enqueue of 1000, claims of 256"
		single = "one task at a time: enqueued, claimed, done"
		unit   = "tasks/s"
	)
	g, err := newGround(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	w := world{members: 2000, contacts: 100}
	if err := makeWorld(ctx, g, w); err != nil {
		return err
	}
	m, err := newMeter(ctx, g)
	if err != nil {
		return err
	}
	inBatches, oneByOne := newOurs(g), newOurs(g)
	oneByOne.pool.Workers = tasks.DefaultWorkers()
	for i := range oneByOne.pool.Workers {
		oneByOne.pool.Workers[i].Batch = 1
	}
	b := &batches{suite: s, world: w}
	all, err := m.alternate(ctx, s.options.rounds, s.log, []entrant{
		{many, nil, b.run(inBatches, inBatches.inBatches(1000))},
		{single, nil, b.run(oneByOne, oneByOne.inBatches(1))},
	})
	if err != nil {
		return err
	}
	s.results.rates(part, all, single, unit, "", nil)
	s.results.rates(part, all, many, unit, single, atLeast(10))
	return nil
}

// batches chooses new pairs for each run.
type batches struct {
	*suite
	world world
	seed  uint64
}

func (b *batches) run(o *ours, enqueue func(context.Context, []contacts.Pair) error) func(context.Context) (int, error) {
	return func(ctx context.Context) (n int, err error) {
		b.seed++
		pairs := b.world.pairs(b.options.tasks, b.seed)
		done := newCountdown(len(pairs))
		stop, err := o.work(ctx, done)
		if err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		if err := enqueue(ctx, pairs); err != nil {
			return 0, err
		}
		return len(pairs), done.wait(ctx)
	}
}
