package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/hibiken/asynq"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// wakeBench measures the time from the call that enqueues a task to the start of its
// handler, while all workers are idle.
type wakeBench struct {
	*suite
	enqueued int // tasks so far
	closers  []func() error
}

// benchWake pauses for a random time before each sample, so that workers that poll are
// met at a random moment.
func (s *suite) benchWake(ctx context.Context) (err error) {
	b := &wakeBench{suite: s}
	defer func() {
		for _, stop := range slices.Backward(b.closers) {
			err = errors.Join(err, stop())
		}
	}()
	list, err := b.contenders(ctx)
	if err != nil {
		return err
	}
	all, err := s.calls(ctx, s.options.wakes, 0, list)
	if err != nil {
		return err
	}
	part := fmt.Sprintf("From enqueuing to the start, all workers idle, %d samples in each round", s.options.wakes)
	for _, c := range list {
		for _, q := range quantiles {
			f := figure{Part: part, Name: c.name + ", " + q.name, Unit: "ms", Value: all[c.name].spread(atQuantile(q.q))}
			if q.q == 0.5 && c.name != wakeAsynq {
				f.Aim = atMost(10)
			}
			s.results.add(f)
		}
	}
	return nil
}

const wakeAsynq = "asynq"

// contenders starts the workers of both systems, and returns the ways to wake them.
func (b *wakeBench) contenders(ctx context.Context) ([]contender, error) {
	worker, producer := newActivityd(b.backend), newActivityd(b.backend)
	for _, a := range []*activityd{worker, producer} {
		if err := b.connect(ctx, a); err != nil {
			return nil, err
		}
	}
	started := make(chan struct{}, 1)
	handlers := map[string]queue.Handler{tasks.AddContact: &signalling{started: started}}
	b.closers = append(b.closers, worker.workWith(ctx, worker.queue, handlers))

	other := newAsynq(b.backend, b.options.concurrency[0])
	otherStarted := make(chan struct{}, 1)
	stop, err := other.workWith(asynq.Config{}, func(context.Context, *asynq.Task) error {
		otherStarted <- struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, stop)
	return []contender{
		b.contender("activityd, enqueued in the workers' process", worker.enqueue, started),
		b.contender("activityd, enqueued in another process", producer.enqueue, started),
		b.contender("activityd, plain SQL and PUBLISH by the site", producer.publish, started),
		b.contender(wakeAsynq, other.enqueue, otherStarted),
	}, nil
}

// contender returns a contender that enqueues a task and waits for its start.
func (b *wakeBench) contender(name string, enqueue func(context.Context, []contacts.Pair) error, started <-chan struct{}) contender {
	return contender{
		name:    name,
		prepare: func(ctx context.Context) error { return retry.Sleep(ctx, rand.N(b.options.idle)) },
		run: func(ctx context.Context) (int, error) {
			b.enqueued++
			if err := enqueue(ctx, []contacts.Pair{b.options.site.pair(b.enqueued, 0)}); err != nil {
				return 0, err
			}
			return 1, await(ctx, started)
		},
	}
}

// connect carries the notifications of activityd's notifier, as between processes.
func (b *wakeBench) connect(ctx context.Context, a *activityd) error {
	stop, err := b.relay(ctx, a.notifier)
	if err == nil {
		b.closers = append(b.closers, stop)
	}
	return err
}

// relay carries the notifications of a notifier over Redis, through a client of its own. It
// returns when it is subscribed.
func (s *suite) relay(ctx context.Context, n *notify.Notifier) (stop func() error, err error) {
	client, err := s.openRedis()
	if err != nil {
		return nil, err
	}
	subscribed, unsubscribe := n.Subscribe("bench") // it is notified of everything then
	defer unsubscribe()
	w := wake.New(client, n, s.log)
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(running) }()
	stop = func() error {
		cancel()
		return <-ended
	}
	if err := await(ctx, subscribed); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

// publish does what a site does by itself: it inserts the task and publishes the name
// of its queue.
func (a *activityd) publish(ctx context.Context, pairs []contacts.Pair) error {
	for _, p := range pairs {
		if _, err := a.db.ExecContext(ctx, insertTask, p.User, p.Contact); err != nil {
			return err
		}
		if err := a.client.Publish(ctx, wake.Channel, tasks.QueueDefault).Err(); err != nil {
			return err
		}
	}
	return nil
}

// signalling is a handler that only signals that it was called.
type signalling struct{ started chan<- struct{} }

// Handle implements [queue.Handler].
func (h *signalling) Handle(_ context.Context, batch []queue.Task) []queue.Outcome {
	for range batch {
		h.started <- struct{}{}
	}
	return make([]queue.Outcome, len(batch))
}
