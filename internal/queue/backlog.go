package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// Backlog watches whether too many tasks wait, so that whoever takes more of them
// from outside can turn them away. It only looks: what a site inserts in its own
// transactions, and what activityd enqueues for itself, is never refused. It is
// safe for concurrent use.
type Backlog struct {
	// MySQL is told how the looks ended.
	MySQL *Outage

	queue    fuller
	limit    int
	log      *slog.Logger
	full     atomic.Bool
	unseeing bool // the last look failed; Run alone uses it
}

// fuller is the part of a [MySQLQueue] that a Backlog asks.
type fuller interface {
	Full(ctx context.Context, limit int) (bool, error)
}

const (
	// backlogLook is how often a Backlog looks, and how long a look may take.
	backlogLook = 2 * time.Second
	// backlogRetry is what those are told who are turned away. It is longer than
	// a look, so that they do not find the answer of before.
	backlogRetry = 5 * time.Second
)

// NewBacklog returns a Backlog that is full when at least limit tasks wait, and
// never when limit is 0. It sees nothing before [Backlog.Run].
func NewBacklog(queue fuller, limit int, log *slog.Logger) *Backlog {
	return &Backlog{MySQL: NewOutage(log, "MySQL"), queue: queue, limit: limit, log: log}
}

// Run looks at once and then every two seconds, until ctx ends; it returns nil.
// While a look fails, which is logged once, the answer before it stands: at the
// start that is "not full".
func (b *Backlog) Run(ctx context.Context) error {
	if b.limit == 0 {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(backlogLook)
	defer tick.Stop()
	for {
		b.look(ctx)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Overloaded tells whether too many tasks wait, as of at most two seconds ago,
// and when to ask again. It costs nothing.
func (b *Backlog) Overloaded() (retryAfter time.Duration, overloaded bool) {
	return backlogRetry, b.full.Load()
}

func (b *Backlog) look(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, backlogLook)
	defer cancel()
	began := time.Now()
	full, err := b.queue.Full(bounded, b.limit)
	away := errors.Is(err, mysql.ErrUnavailable)
	if ctx.Err() != nil { // it says nothing about the queue
		return
	}
	if err == nil || away {
		b.MySQL.Report(ctx, began, err)
	}
	switch {
	case away: // the log has the outage
		return
	case err != nil && !b.unseeing:
		b.log.WarnContext(ctx, "cannot see how many tasks wait; the answer of before stands", "full", b.full.Load(), "error", err)
	case err == nil && b.unseeing:
		b.log.InfoContext(ctx, "can see again how many tasks wait")
	}
	b.unseeing = err != nil
	if err == nil && b.full.Swap(full) != full {
		b.logChange(ctx, full)
	}
}

func (b *Backlog) logChange(ctx context.Context, full bool) {
	if full {
		b.log.WarnContext(ctx, "too many tasks wait: the API takes no more of them", "limit", b.limit)
		return
	}
	b.log.InfoContext(ctx, "fewer tasks wait: the API takes more of them again", "limit", b.limit)
}
