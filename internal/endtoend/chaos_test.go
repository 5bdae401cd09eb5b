//go:build unix

package endtoend_test

import (
	"cmp"
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/index"
)

// TestChaos: processes of the real program serve a town while servers, processes and connections fail, several
// at a time. Once everything is back, and a bounded while has passed, each change that the site committed has
// been applied, no task is left, no set is wrong and every answer is right.
//
// It makes each kind of fault once. ACTIVITYD_CHAOS=10m makes it go on for ten minutes:
//
//	make chaos DURATION=10m SEED=1234
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("ACTIVITYD_CHAOS"), "0s"))
	must(t, err)
	f := newFleet(t, seed)
	judge := f.process(t, "judge")
	began := time.Now()
	f.makeChaos(t, duration)
	lasted, rested := time.Since(began), time.Now()
	// A task may belong to a worker that is gone, until its lease has run out and a sweep has passed; or it waits
	// for a server that was away, or because several attempts in a row failed. The rest of the 90 s is for the
	// work itself, on a slow machine.
	f.awaitIdle(t)
	settled := time.Since(rested)
	f.ledger.check(t)
	f.teller.check(t, f.ledger)
	ix := indexOf(t, f.client, f.db, index.Options{Settings: f.settings})
	eventually(t, "what Redis came back with is deleted, if it may be old", func() bool {
		return ix.Look(t.Context(), f.viewers()[:1])[0].Err == nil
	})
	f.checkSets(t)
	f.checkGuards(t)
	f.checkAnswers(t, judge.reader, f.viewers())
	t.Logf("chaos with seed %d for %v, settled after %v; faults: %v", seed, lasted.Round(time.Millisecond), settled.Round(time.Millisecond), &f.faults)
	t.Logf("%d uploads, %d tasks by HTTP, %d reads; tasks: %d committed, %d started, %d finished, %d taken over", f.teller.uploaded.Load(), len(f.teller.told),
		f.reads.Load(), f.ledger.events(t, "committed"), f.ledger.events(t, "running"), f.ledger.events(t, "finished"), f.ledger.events(t, "freed"))

	f.askEverybody(t) // and thereby ask for sets that were lost
	f.awaitSets(t)
	f.awaitIdle(t)
	f.check(t, judge.reader)
	for _, p := range f.programs() {
		p.finish(t)
	}
}

// makeChaos returns when everything is back.
func (f *fleet) makeChaos(t *testing.T, duration time.Duration) {
	t.Helper()
	living := f.live(t.Context())
	deadline := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(t.Context())
	for _, m := range f.monkeys() {
		group.Go(func() error { return m.play(ctx, func() bool { return !time.Now().Before(deadline) }) })
	}
	if err := group.Wait(); err != nil {
		t.Errorf("the chaos: %v", err)
	}
	f.quiet.awaitBoth(t)
	if err := living.rest(); err != nil {
		t.Fatalf("the site: %v", err)
	}
}
