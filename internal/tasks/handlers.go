package tasks

import "time"

// DefaultPartSize is the default of HandlerOptions.PartSize. A part of that size takes
// some ten milliseconds, so that other tasks of its queue need not wait for long; in
// smaller ones the queue's work for each part outweighs the part's own.
const DefaultPartSize = 2500

// HandlerOptions say how the handlers work.
type HandlerOptions struct {
	// PartSize is how many followers one task of a fan-out tells.
	PartSize int
	// ActiveOnly leaves missing sets missing until their user's next read, for a
	// site most of whose members never come back. See index.Options.SetLife.
	ActiveOnly bool
	// ConflictPause is the longest wait before a batch begins again after its
	// first conflict; it grows with each. 0: DefaultConflictPause; below 0: none,
	// for tests that provoke thousands of conflicts.
	ConflictPause time.Duration
}

// Handlers returns the handler of each type of task.
func Handlers(ix Index, store Store, queue Enqueuer, o HandlerOptions) map[Type]Handler {
	if o.PartSize <= 0 {
		o.PartSize = DefaultPartSize
	}
	pairs := &PairHandler{Index: ix, Store: store, ActiveOnly: o.ActiveOnly, ConflictPause: o.ConflictPause}
	uploads := &UploadHandler{
		Index: ix, Store: store, Queue: queue, PartSize: o.PartSize, ActiveOnly: o.ActiveOnly,
	}
	return map[Type]Handler{
		AddContact:    pairs,
		RemoveContact: pairs,
		Upload:        uploads,
		FanOut:        uploads,
		Refill:        &RefillHandler{Index: ix, Store: store, ConflictPause: o.ConflictPause},
	}
}
