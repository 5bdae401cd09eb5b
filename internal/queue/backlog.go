package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// Backlog watches whether too many tasks wait, so that the API can refuse more. Rows
// that a site inserts, and tasks that activityd enqueues for itself, are never refused.
// It is safe for concurrent use.
type Backlog struct {
	// MySQL gets the result of each look.
	MySQL *Outage

	queue   fuller
	limit   int
	log     *slog.Logger
	full    atomic.Bool
	failing bool // the last look or count failed; Run alone uses it
}

// fuller is the part of a [MySQLQueue] that a Backlog asks.
type fuller interface {
	Full(ctx context.Context, limit int) (full, stale bool, err error)
	CountWaiting(ctx context.Context, limit int) error
}

const (
	// backlogLook is how often a Backlog looks, and how long a look may take.
	backlogLook = 2 * time.Second
	// backlogCount is how long a count may take.
	backlogCount = 10 * time.Second
	// backlogRetry is after what time a refused client may ask again: longer than
	// backlogLook, so that it does not get the same answer.
	backlogRetry = 5 * time.Second
)

// NewBacklog returns a Backlog that is full when at least limit tasks wait, and
// never when limit is 0. It is not full before [Backlog.Run].
func NewBacklog(queue fuller, limit int, log *slog.Logger) *Backlog {
	return &Backlog{MySQL: NewOutage(log, "MySQL"), queue: queue, limit: limit, log: log}
}

// Run looks at once and then every two seconds, until ctx ends; it returns nil.
// While looks fail, the answer before them holds: at the start that is "not full".
// While counts fail, it is full as soon as the limit may be reached.
func (b *Backlog) Run(ctx context.Context) error {
	if b.limit == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(backlogLook)
	defer tick.Stop()
	for {
		b.watch(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Overloaded reports whether too many tasks wait, as of at most two seconds ago,
// and when to ask again. It costs nothing.
func (b *Backlog) Overloaded() (retryAfter time.Duration, overloaded bool) {
	return backlogRetry, b.full.Load()
}

// watch looks, counts if that is due, and then looks again.
func (b *Backlog) watch(ctx context.Context) {
	stale, err := b.look(ctx)
	if err == nil && stale {
		bounded, cancel := context.WithTimeout(ctx, backlogCount)
		err = b.queue.CountWaiting(bounded, b.limit)
		cancel()
		if err == nil {
			_, err = b.look(ctx)
		}
	}
	switch {
	case ctx.Err() != nil:
		return
	case err != nil && !b.failing && !errors.Is(err, mysql.ErrUnavailable): // otherwise the log has the outage
		b.log.WarnContext(ctx, "waiting tasks cannot be counted", "full", b.full.Load(), "error", err)
	case err == nil && b.failing:
		b.log.InfoContext(ctx, "waiting tasks can be counted again")
	}
	b.failing = err != nil
}

// look asks whether too many tasks wait.
func (b *Backlog) look(ctx context.Context) (stale bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, backlogLook)
	defer cancel()
	began := time.Now()
	full, stale, err := b.queue.Full(bounded, b.limit)
	if ctx.Err() != nil {
		return false, err
	}
	if err == nil || errors.Is(err, mysql.ErrUnavailable) {
		b.MySQL.Report(ctx, began, err)
	}
	switch {
	case err != nil || b.full.Swap(full) == full:
	case full:
		b.log.WarnContext(ctx, "too many tasks wait; the API refuses tasks", "limit", b.limit)
	default:
		b.log.InfoContext(ctx, "fewer tasks wait; the API accepts tasks again", "limit", b.limit)
	}
	return stale, err
}
