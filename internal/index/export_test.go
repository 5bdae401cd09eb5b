package index

import (
	"context"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

func init() {
	redisnodes.RepeatFor, redisnodes.FindTimeout, redisnodes.ProbeTimeout = 5*time.Second, 10*time.Second, 10*time.Second
}

// Observe counts the end of an operation.
func (ix *Index) Observe(op string, start time.Time, err error) {
	ix.observe(operation(op), start, err)
}

// ForgetCopies has the index read the copies of the broadcast set again.
func (ix *Index) ForgetCopies() { ix.copies = &copies{} }

// AddTwice adds to a set, and again by the same call, as when its reply is lost; what happens in between does.
func (ix *Index) AddTwice(ctx context.Context, one Addition, between func()) {
	a := &adding{Index: ix, outcomes: make(map[AddOutcome]int), failed: make(map[member.ID]error)}
	calls := ix.callsBySet([]Addition{one})
	a.run(ctx, calls)
	between()
	a.run(ctx, calls)
}
