package endtoend_test

import (
	"context"
	"sync"
	"testing"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

// TestBackfillUnderTraffic: everybody's set is built, again and again, while
// everybody changes everything, workers do the tasks, and Redis is emptied.
func TestBackfillUnderTraffic(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, newGround(t, needFor(seed)), seed, 600)
	a, b := tn.startedHesitant(t, "a"), tn.started(t, "b")
	audience := tn.watch(t, seed, a, b)
	for range 2 {
		alive := tn.living(t, 40)
		for range 3 {
			counts := tn.backfill(t, true)
			if counts[bulk.Seen] < int64(tn.fans) || counts[bulk.Built] == 0 {
				t.Errorf("counts %v", counts)
			}
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

// backfill builds all sets, small batches at once so that much can come between.
func (tn *town) backfill(t *testing.T, existing bool) bulk.Counts {
	t.Helper()
	store := contacts.NewMySQL(tn.db)
	ix := indexOf(t, tn.client, tn.db, index.Options{Settings: tn.settings})
	builder := &bulk.Builder{Index: ix, Refiller: &tasks.RefillHandler{Index: ix, Store: store}, Existing: existing}
	p := bulk.NewPacer(bulk.PacerOptions{Parallel: 3, Probes: []bulk.Probe{{Name: "MySQL", Ask: store.Ping}, {Name: "Redis", Ask: ix.Check}}})
	ctx, stop := context.WithCancel(t.Context())
	var pacing sync.WaitGroup
	pacing.Go(func() { p.Run(ctx) })
	defer pacing.Wait()
	defer stop()
	at, err := bulk.Walk{
		Range: bulk.All, Source: store, Pacer: p, Visit: builder.Build, Judge: bulk.Judge, Batch: 20,
	}.Run(ctx, bulk.Checkpoint{})
	must(t, err)
	return at.Counts
}
