package endtoend_test

import (
	"testing"

	"github.com/activityd/activityd/internal/recent"
)

// TestRandomChanges: two processes work and read while the town changes; when
// all tasks are done, the sets keep the invariants and the answers are right.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, newGround(t, needFor(seed)), seed, 3000)
	a, b := tn.startedHesitant(t, "a"), tn.startedHesitant(t, "b")
	audience := tn.watch(t, seed, a, b, a)
	tn.live(t, 150)
	audience.stop()
	tn.awaitIdle(t)
	from := tn.check(t, a.reader)
	tn.check(t, b.reader)
	if audience.reads.Load() == 0 || audience.outages.Load() > 0 || from[recent.FromIndex] == 0 {
		t.Errorf("%d reads, %d of them failed, answers from %v", audience.reads.Load(), audience.outages.Load(), from)
	}
	t.Logf("%d reads meanwhile, at rest from %v", audience.reads.Load(), from)
}
