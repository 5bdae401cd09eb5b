package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/tasks"
)

// The classes of contenders that others are compared with: asynq in several
// ways, of which the first is the fastest and the least safe.
const (
	simple  = "simple"  // asynq with a handler as one would write it
	safe    = "safe"    // asynq with activityd's handler
	durable = "durable" // asynq on a Redis that loses nothing
	changed = "changed" // asynq after the transaction of the change
)

// contenders returns all that are compared, in the order of the report.
func contenders(g *ground, o options) []contender {
	our := newOurs(g)
	list := []contender{
		{name: "activityd, Enqueue of 1000", side: our, enqueue: our.inBatches(1000), against: []string{simple, safe, durable}},
		{name: "activityd, Enqueue of 100", side: our, enqueue: our.inBatches(100), against: []string{simple}},
		{name: "activityd, plain SQL", side: our, enqueue: our.oneByOne(o.producers), against: []string{simple}},
		{name: "activityd, change and task in a transaction", side: our, enqueue: our.withChange(o.producers), changes: true, against: []string{changed}},
	}
	for _, n := range o.concurrency {
		their := newTheirs(g, n)
		list = append(list, contender{
			name: fmt.Sprintf("asynq, concurrency %d", n), side: their, enqueue: their.oneByOne(o.producers), class: simple,
		})
	}
	n := o.concurrency[len(o.concurrency)/2]
	their, theirSafe := newTheirs(g, n), newTheirs(g, n)
	theirSafe.pairs = &tasks.PairHandler{Index: g.index, Store: contacts.NewMySQL(g.db)}
	return append(list,
		contender{name: "asynq, change, then task", side: their, enqueue: their.withChange(o.producers), changes: true, class: changed},
		contender{name: "asynq, activityd's handler", side: theirSafe, enqueue: theirSafe.oneByOne(o.producers), class: safe},
		contender{name: "asynq, appendfsync always", side: their, enqueue: their.oneByOne(o.producers), class: durable},
	)
}

// benchQueue measures what the options ask for.
func benchQueue(ctx context.Context, o options, log io.Writer) (r *report, err error) {
	g, err := newGround(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	w := world{o.members, o.contacts}
	if err := makeWorld(ctx, g, w); err != nil {
		return nil, err
	}
	r = &report{Options: reported{o.rounds, o.tasks, o.members, o.contacts, o.producers}}
	if r.Machine, err = describe(ctx, g); err != nil {
		return nil, err
	}
	if o.wants(partThroughput) {
		if err := r.addThroughput(ctx, g, w, o, log); err != nil {
			return nil, err
		}
	}
	if o.wants(partWake) {
		if r.Wake, err = measureWake(ctx, g, w, o, log); err != nil {
			return nil, err
		}
	}
	if o.wants(partBacklog) {
		if r.Backlog, r.Plans, err = measureBacklog(ctx, g, o, log); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (r *report) addThroughput(ctx context.Context, g *ground, w world, o options, log io.Writer) error {
	account, err := newAccountant(ctx, g)
	if err != nil {
		return err
	}
	list := contenders(g, o)
	t := &throughput{ground: g, world: w, account: account, options: o, log: log}
	if err := t.measure(ctx, list); err != nil {
		return err
	}
	r.Throughput, r.Ratios = t.report(list), t.ratios(list)
	return nil
}
