package tasks

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// DefaultPartSize is the default of HandlerOptions.PartSize. A page of that size takes some ten milliseconds, so that
// other tasks of its queue need not wait for long; with smaller pages the queue's work for each page holds up the fan-out.
const DefaultPartSize = 10_000

// DefaultBatch is how many small tasks are claimed at once.
const DefaultBatch = 256

// defaultWorkers are the workers of the default queue, which several kinds share.
var defaultWorkers = queue.Workers{Queue: QueueDefault, Count: 2, Batch: DefaultBatch}

// DefaultWorkers is a sensible choice for a small machine.
func DefaultWorkers() (all []queue.Workers) {
	for _, k := range kinds {
		if !slices.ContainsFunc(all, func(w queue.Workers) bool { return w.Queue == k.Workers.Queue }) {
			all = append(all, k.Workers)
		}
	}
	return append(all, urgentWorkers)
}

// HandlerOptions say how the handlers work.
type HandlerOptions struct {
	// PartSize is the number of followers that a task of a fan-out updates.
	PartSize int
	// ActiveOnly leaves missing sets missing until their user's next read, for a
	// site most of whose members never come back. See index.Options.SetLife.
	ActiveOnly bool
	// BroadcastAt is with how many followers a member becomes a broadcast member; with half as many it
	// ceases to be a broadcast member. 0: only an operator names broadcast members.
	BroadcastAt int
	// ConflictPause is the longest wait before a batch begins again after its
	// first conflict; it grows with each. 0: DefaultConflictPause; below 0: none,
	// for tests that provoke thousands of conflicts.
	ConflictPause time.Duration
	// Push handles the kinds of package push. Nil: this process has no push, and leaves their tasks alone.
	Push queue.Handler
	// Check handles check_range. Nil: this process leaves its tasks alone.
	Check queue.Handler
	// Read reads as the service does. Its duration says whether a backfill has to rest. Nil: it never rests.
	Read func(ctx context.Context, viewer member.ID) error
	Log  *slog.Logger // nil: slog.Default()
}

// work is the material of all handlers.
type work struct {
	Index Index
	Store Store
	Queue Enqueuer
	HandlerOptions
}

// Handlers returns the handler of each kind of task.
func Handlers(ix Index, store Store, q Enqueuer, o HandlerOptions) map[string]queue.Handler {
	if o.PartSize <= 0 {
		o.PartSize = DefaultPartSize
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	w := work{Index: ix, Store: store, Queue: q, HandlerOptions: o}
	handlers := make(map[string]queue.Handler, len(kinds))
	for _, k := range kinds {
		handlers[k.Name] = k.Handler(w)
	}
	return handlers
}

// noHandler leaves tasks to other processes, as this process lacks what they need.
type noHandler struct{ what string }

// orNone returns the handler, or a noHandler where it is nil.
func orNone(h queue.Handler, what string) queue.Handler {
	if h == nil {
		return noHandler{what}
	}
	return h
}

// Handle implements [queue.Handler].
func (h noHandler) Handle(_ context.Context, batch []queue.Task) []queue.Outcome {
	all := make([]queue.Outcome, len(batch))
	for i := range all {
		all[i].Err = queue.Later(5*time.Second, fmt.Errorf("this process has no %s", h.what))
	}
	return all
}
