package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
)

// starter is one way of waking idle workers.
type starter struct {
	name    string
	enqueue func(context.Context, contacts.Pair) error
	started <-chan time.Time // when a handler was given a task
}

// latency is how long it took from the call that enqueues a task to the start of
// its handler, of one starter, in milliseconds.
type latency struct {
	Name    string  `json:"name"`
	Samples int     `json:"samples"`
	P50     float64 `json:"p50_ms"`
	P90     float64 `json:"p90_ms"`
	P99     float64 `json:"p99_ms"`
	Enqueue float64 `json:"enqueue_p50_ms"` // of which the call itself
}

// wakeBench measures from enqueuing to the start while everybody is idle.
type wakeBench struct {
	ground   *ground
	options  options
	log      io.Writer
	closers  []func() error
	starters []starter
}

// measureWake runs all starters in turn, with a random pause before each sample:
// workers that poll are then met at a random moment.
func measureWake(ctx context.Context, g *ground, w world, o options, log io.Writer) (list []latency, err error) {
	b := &wakeBench{ground: g, options: o, log: log}
	defer func() {
		for _, stop := range b.closers {
			if stopErr := stop(); err == nil {
				err = stopErr
			}
		}
	}()
	if err := b.start(ctx); err != nil {
		return nil, err
	}
	starts, calls := make([][]float64, len(b.starters)), make([][]float64, len(b.starters))
	for i, pair := range w.pairs(o.samples*len(b.starters), 3) {
		at := i % len(b.starters)
		start, call, err := b.sample(ctx, b.starters[at], pair)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", b.starters[at].name, err)
		}
		starts[at], calls[at] = append(starts[at], start), append(calls[at], call)
	}
	for i, s := range b.starters {
		q := quantilesOf(starts[i], 0.5, 0.9, 0.99)
		list = append(list, latency{s.name, len(starts[i]), q[0], q[1], q[2], spreadOf(calls[i]).Median})
		fmt.Fprintf(log, "%s: started after %s ms (p50)\n", s.name, number(q[0]))
	}
	return list, nil
}

// sample returns the time to the start and that of the call, in milliseconds.
func (b *wakeBench) sample(ctx context.Context, s starter, p contacts.Pair) (start, call float64, err error) {
	if err := pause(ctx, rand.N(b.options.idle)); err != nil {
		return 0, 0, err
	}
	before := time.Now()
	if err := s.enqueue(ctx, p); err != nil {
		return 0, 0, err
	}
	call = milliseconds(time.Since(before))
	select {
	case at := <-s.started:
		return milliseconds(at.Sub(before)), call, nil
	case <-ctx.Done():
		return 0, 0, context.Cause(ctx)
	}
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// start starts the workers of both sides and makes the starters.
func (b *wakeBench) start(ctx context.Context) error {
	worker, producer := newOurs(b.ground), newOurs(b.ground)
	for _, o := range []*ours{worker, producer} {
		if err := b.connect(ctx, o); err != nil {
			return err
		}
	}
	started := make(chan time.Time, 1)
	handlers := map[string]queue.Handler{tasks.AddContact: &noting{started: started}}
	b.closers = append(b.closers, worker.workWith(ctx, worker.queue, handlers))

	their := newTheirs(b.ground, b.options.concurrency[0])
	theirStarted := make(chan time.Time, 1)
	stop, err := their.workWith(asynq.Config{}, func(context.Context, *asynq.Task) error {
		theirStarted <- time.Now()
		return nil
	})
	if err != nil {
		return err
	}
	b.closers = append(b.closers, stop)
	b.starters = []starter{
		{"activityd, enqueued in the workers' process", worker.one, started},
		{"activityd, enqueued in another process", producer.one, started},
		{"activityd, plain SQL and PUBLISH by the site", producer.published, started},
		{"asynq", their.enqueue, theirStarted},
	}
	return nil
}

// connect carries the rings of a notifier over Redis, through a client of its own, as
// between processes.
func (b *wakeBench) connect(ctx context.Context, o *ours) error {
	client, err := b.ground.openRedis()
	if err != nil {
		return err
	}
	w := wake.New(client, o.notifier, b.ground.log)
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = w.Run(ctx) }) // its end is no error
	b.closers = append(b.closers, func() error {
		cancel()
		running.Wait()
		return nil
	})
	return nil
}

// one enqueues one task through the Go API.
func (o *ours) one(ctx context.Context, p contacts.Pair) error {
	_, err := o.queue.Enqueue(ctx, []queue.New{tasks.NewAddContact(p.User, p.Contact)})
	return err
}

// published does what a site does by itself: it inserts the task and publishes
// the name of its queue.
func (o *ours) published(ctx context.Context, p contacts.Pair) error {
	if _, err := o.db.ExecContext(ctx, insertTask, p.User, p.Contact); err != nil {
		return err
	}
	return o.client.Publish(ctx, wake.Channel, tasks.QueueDefault).Err()
}

// noting is a handler that only notes when it was called.
type noting struct{ started chan<- time.Time }

// Handle implements [queue.Handler].
func (n *noting) Handle(_ context.Context, batch []queue.Task) []queue.Outcome {
	at := time.Now()
	for range batch {
		n.started <- at
	}
	return make([]queue.Outcome, len(batch))
}
