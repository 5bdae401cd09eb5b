package api

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// waiters are the claims that wait for tasks. Of those that wait for tasks of one queue, one looks, when
// it is notified and at least once a second, and the others wait for their turn, in order: so however
// many wait, a task wakes one, and while they wait they hold nothing of the database.
type waiters struct {
	notifier *notify.Notifier
	stopped  chan struct{} // closed when the server stops

	mu    sync.Mutex
	count int
	lines map[string]*line // by queue; those that have claims
}

// line is the claims of one queue.
type line struct {
	claims int           // under waiters.mu
	turn   chan struct{} // holds a value while one waits for tasks
	look   chan struct{} // holds a value while one asks the database: more at once would take its connections
}

const (
	// maxWaiters is how many claims there may be at once; each is a connection, and a goroutine.
	maxWaiters = 1000
	// claimPoll is how often the one that waits for tasks looks without a notification.
	claimPoll = time.Second
	// pollRest is how many times as long as a look took the next one waits at least.
	pollRest = 4
	// lookPatience is how long a claim waits at least until those before it have asked the database.
	lookPatience = 3 * time.Second
)

var errTooManyClaims = busy.problem("%d claims wait for tasks already; try again after Retry-After seconds", maxWaiters)

var errSlowClaims = busy.problem("claims of this queue take too long now; try again after Retry-After seconds")

func (w *waiters) enter(name string) (l *line, leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.count == maxWaiters {
		return nil, nil, errTooManyClaims
	}
	l = w.lines[name]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1), look: make(chan struct{}, 1)}
		w.lines[name] = l
	}
	w.count++
	l.claims++
	return l, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.count--
		l.claims--
		if l.claims == 0 {
			delete(w.lines, name)
		}
	}, nil
}

// await returns what claim does once that is something, or nothing when wait is over or the server stops.
func (w *waiters) await(ctx context.Context, name string, wait time.Duration, claim func(context.Context) ([]queue.Task, error)) ([]queue.Task, error) {
	l, leave, err := w.enter(name)
	if err != nil {
		return nil, err
	}
	defer leave()
	over := time.NewTimer(wait)
	defer over.Stop()
	first := time.NewTimer(max(wait, lookPatience))
	defer first.Stop()
	lent, err := w.ask(ctx, l, first.C, claim)
	if wait == 0 || err != nil || len(lent) > 0 {
		return lent, err
	}
	select {
	case l.turn <- struct{}{}:
	case <-over.C:
		return nil, nil
	case <-w.stopped:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.turn }()
	notified, cancel := w.notifier.Subscribe(name)
	defer cancel()
	for {
		began := time.Now()
		lent, err := w.ask(ctx, l, over.C, claim)
		if errors.Is(err, errSlowClaims) { // it asked before
			return nil, nil
		}
		if err != nil || len(lent) > 0 {
			return lent, err
		}
		poll := time.NewTimer(retry.Jitter(max(claimPoll, pollRest*time.Since(began))))
		select {
		case <-notified:
		case <-poll.C:
		case <-over.C:
			return nil, nil
		case <-w.stopped:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		poll.Stop()
	}
}

// ask claims, one at a time. It returns errSlowClaims when its time is over before its turn, and nothing when the
// server stops.
func (w *waiters) ask(ctx context.Context, l *line, over <-chan time.Time, claim func(context.Context) ([]queue.Task, error)) ([]queue.Task, error) {
	select {
	case l.look <- struct{}{}:
	case <-over:
		return nil, errSlowClaims
	case <-w.stopped:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-l.look }()
	return claim(ctx)
}
