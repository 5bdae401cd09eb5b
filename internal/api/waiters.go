package api

import (
	"context"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// waiters are the claims that wait. The first of a queue looks for tasks, when it is notified and once a second, and the next wait
// for its turn: so a task wakes one claim, and the database hears of one, however many wait.
type waiters struct {
	notifier *notify.Notifier
	stopping context.Context // ends when the server stops

	mu    sync.Mutex
	count int
	turns map[string]*turn // by queue, as long as it has claims
}

type turn struct {
	claims int
	taken  chan struct{} // holds a value while a claim has the turn
}

const (
	// maxWaiters is how many claims there may be at once; each is a connection, and a goroutine.
	maxWaiters = 1000
	// claimPoll is how often a claim looks without a notification.
	claimPoll = time.Second
)

var errTooManyClaims = busy.problem("%d claims wait for tasks already; try again after Retry-After seconds", maxWaiters)

func (w *waiters) enter(name string) (t *turn, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == maxWaiters {
		return nil, nil, errTooManyClaims
	}
	t = w.turns[name]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		w.turns[name] = t
	}
	w.count++
	t.claims++
	return t, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count--
		if t.claims--; t.claims == 0 {
			delete(w.turns, name)
		}
	}, nil
}

// await returns what claim does as soon as that is something, and nothing when wait is over or the server stops.
func (w *waiters) await(ctx context.Context, name string, wait time.Duration, claim func(context.Context) ([]queue.Task, error)) ([]queue.Task, error) {
	if wait == 0 {
		return claim(ctx)
	}
	t, leave, err := w.enter(name)
	if err != nil {
		return nil, err
	}
	defer leave()
	until, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	defer context.AfterFunc(w.stopping, cancel)()
	select {
	case t.taken <- struct{}{}:
		defer func() { <-t.taken }()
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
