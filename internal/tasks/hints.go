package tasks

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// Hints turns the findings of reads about the index into tasks, off the path of
// the request. It satisfies the interface of the same name in package recent.
// Hints are worth little: when too many come at once, or the queue fails, they
// are dropped, because the next read of the same set gives them again.
type Hints struct {
	queue   Enqueuer
	pending chan queue.New
	log     *slog.Logger
}

// hintsPending bounds the hints in memory; hintsPause is how long they gather,
// so that many hints share a transaction.
const (
	hintsPending = 1024
	hintsPause   = 20 * time.Millisecond
)

// NewHints returns hints that go to queue while [Hints.Run] runs.
func NewHints(q Enqueuer, log *slog.Logger) *Hints {
	return &Hints{queue: q, pending: make(chan queue.New, hintsPending), log: log}
}

// Refill notes that a user's set is missing or worthless.
func (h *Hints) Refill(user member.ID) { h.note(NewRefill(user)) }

// LookAgain notes that contact is in user's set and is no contact, or has uploaded and is not at its place.
func (h *Hints) LookAgain(user, contact member.ID) { h.note(NewRemoveContact(user, contact)) }

func (h *Hints) note(n queue.New) {
	select {
	case h.pending <- n:
	default:
	}
}

// Run enqueues hints until ctx ends, whose end is no error. Hints gather for a little, each once.
func (h *Hints) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-h.pending:
			_ = retry.Sleep(ctx, hintsPause) // the loop looks at ctx
			gathered := map[string]queue.New{n.DedupeKey: n}
			for range len(h.pending) {
				n := <-h.pending
				gathered[n.DedupeKey] = n
			}
			_, err := h.queue.Enqueue(ctx, slices.Collect(maps.Values(gathered)))
			if err != nil && ctx.Err() == nil && !errors.Is(err, mysql.ErrUnavailable) { // else the log has the outage
				h.log.WarnContext(ctx, "hints of reads were dropped", "count", len(gathered), "error", err)
			}
		}
	}
}
