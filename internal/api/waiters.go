package api

import (
	"context"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// waiters are the claims that wait. The first claim of a queue looks for tasks, when it is notified and once a second, and
// the next claims wait for its turn: so a task wakes one claim, however many wait.
type waiters struct {
	notifier *notify.Notifier
	stopping context.Context // ends when the server stops

	mu    sync.Mutex
	count int
	turns map[string]chan struct{} // by queue; empty again when no claim waits
}

const (
	maxWaiters = 1000 // claims at once; each is a connection, and a goroutine
	claimPoll  = time.Second
)

// enter returns the turn of a queue, which holds a value while a claim has it.
func (w *waiters) enter(name string) (turn chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == maxWaiters {
		return nil, busy.problem("%d claims wait for tasks already; try again after Retry-After seconds", maxWaiters)
	}
	if w.count == 0 {
		w.turns = make(map[string]chan struct{})
	}
	if w.turns[name] == nil {
		w.turns[name] = make(chan struct{}, 1)
	}
	w.count++
	return w.turns[name], nil
}

func (w *waiters) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count--
}

// await repeats claim until it finds tasks, wait is over or the server stops.
func (w *waiters) await(ctx context.Context, name string, wait time.Duration, claim func(context.Context) ([]queue.Task, error)) ([]queue.Task, error) {
	if wait == 0 {
		return claim(ctx)
	}
	turn, err := w.enter(name)
	if err != nil {
		return nil, err
	}
	defer w.leave()
	until, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(w.stopping, cancel)()
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-until.Done():
		return nil, ctx.Err()
	}
	notified, unsubscribe := w.notifier.Subscribe(name)
	defer unsubscribe()
	for {
		tasks, err := claim(ctx)
		if err != nil || len(tasks) > 0 {
			return tasks, err
		}
		select {
		case <-notified:
		case <-time.After(retry.Jitter(claimPoll)):
		case <-until.Done():
			return nil, ctx.Err()
		}
	}
}
