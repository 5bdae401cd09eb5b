package endtoend_test

import (
	"math"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

// TestBackfillUnderTraffic: all sets are built, again and again, by the workers of two processes, while everything
// changes, tasks are done, and Redis is emptied.
func TestBackfillUnderTraffic(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, newGround(t, needFor(seed)), seed, 600)
	a, b := tn.startedHesitant(t, "a"), tn.started(t, "b")
	audience := tn.watch(t, seed, a, b)
	for range 2 {
		alive := tn.living(t, 40)
		for range 3 {
			tn.backfill(t, true)
		}
		tn.flush(t)
		tn.backfill(t, false)
		must(t, alive())
	}
	audience.stop()
	tn.awaitIdle(t)
	if from := tn.check(t, b.reader); from[recent.FromIndex] < people/2 {
		t.Errorf("answers from %v", from)
	}
	if n := len(tn.missingSets(t)); n > 0 {
		t.Errorf("%d sets are missing", n)
	}
}

// backfill builds all sets at a rate at which much can come between.
func (tn *town) backfill(t *testing.T, existing bool) {
	t.Helper()
	list, err := tasks.NewRefillRanges(t.Context(), contacts.NewMySQL(tn.db), 1, math.MaxUint64, existing, 400)
	must(t, err)
	_, err = tn.queue.Enqueue(t.Context(), list)
	must(t, err)
	eventually(t, "the ranges are done", func() bool {
		left, err := tasks.UnfinishedRanges(t.Context(), tn.queue, tasks.RefillRange)
		must(t, err)
		return len(left) == 0
	})
}
