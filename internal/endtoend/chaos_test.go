//go:build unix

package endtoend_test

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/index"
)

// TestChaos: processes of the real program serve a town while servers, processes
// and connections fail, several at a time. Once everything is back, and a bounded
// while has passed, every change that the site committed has been applied, no
// task is left, no set is wrong and every answer is right.
//
// It makes each kind of fault once. ACTIVITYD_CHAOS=10m makes it go on for ten
// minutes:
//
//	make chaos DURATION=10m SEED=1234
func TestChaos(t *testing.T) {
	t.Parallel()
	seed, duration := seedFor(t), chaosDuration(t)
	f := newFleet(t, seed)
	judge := f.process(t, "judge", faults{})
	began := time.Now()
	f.makeChaos(t, duration)
	lasted, rested := time.Since(began), time.Now()
	// A task may belong to a worker that is gone, until its lease has run out and a sweep has
	// passed; or it waits for a server that was away (2 s), or because several attempts in a row
	// failed (8 s after the fifth), and workers wait likewise (10 s at most). The rest of the
	// 90 s is for the work itself, on a slow machine.
	f.awaitIdle(t)
	settled := time.Since(rested)
	f.ledger.check(t)
	f.ledger.checkHas(t, f.tally.acked)
	ix := indexOf(t, f.client, f.db, index.Options{Settings: f.settings})
	eventually(t, "what Redis came back with is deleted, if it may be old", func() bool {
		return ix.Look(t.Context(), f.viewers()[:1])[0].Err == nil
	})
	f.checkSets(t)
	f.checkGuards(t)
	f.checkAnswers(t, judge.reader, f.viewers())
	f.report(t, lasted, settled)

	f.askEverybody(t) // and thereby ask for sets that were lost
	eventually(t, "the sets that were asked for are there again", func() bool {
		missing := f.missingSets(t)
		f.askAgain(t, missing)
		return len(missing) == 0
	})
	f.awaitIdle(t)
	f.check(t, judge.reader)
	for _, p := range f.programs() {
		p.finish(t)
		p.checkLogs(t)
	}
}

// chaosDuration returns the duration in ACTIVITYD_CHAOS, or zero.
func chaosDuration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("ACTIVITYD_CHAOS")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("ACTIVITYD_CHAOS: %v", err)
	}
	return d
}

// makeChaos returns when everything is back.
func (f *fleet) makeChaos(t *testing.T, duration time.Duration) {
	t.Helper()
	rest := f.live(t.Context())
	deadline := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(t.Context())
	for _, m := range f.monkeys() {
		group.Go(func() error { return m.play(ctx, func() bool { return !time.Now().Before(deadline) }) })
	}
	if err := group.Wait(); err != nil {
		t.Errorf("the chaos: %v", err)
	}
	f.quiet.awaitBoth(t)
	if err := rest(); err != nil {
		t.Fatalf("the site: %v", err)
	}
}

// report prints a summary of the chaos.
func (f *fleet) report(t *testing.T, lasted, settled time.Duration) {
	t.Helper()
	refusedResults := 0
	for _, p := range f.workers {
		refusedResults += p.sum(t, lostLeases)
	}
	t.Logf("chaos with seed %d for %v, settled after %v\n", f.seed, lasted.Round(time.Millisecond), settled.Round(time.Millisecond))
	t.Logf("faults: %v", &f.faults)
	t.Logf("changes: %d committed, %d of them known only by a look afterwards; %d told by HTTP; %d failed with the server",
		f.tally.committed.Load(), f.tally.unknown.Load(), f.tally.byHTTP.Load(), f.tally.failed.Load())
	t.Logf("tasks: %d committed, %d started, %d finished, %d absorbed, %d taken over, %d results refused",
		f.ledger.events(t, "committed"), f.ledger.events(t, "running"), f.ledger.events(t, "finished"), f.ledger.absorbed(t), f.ledger.events(t, "freed"), refusedResults)
	t.Logf("reads: %d, of which %d had no answer", f.tally.reads.Load(), f.tally.refused.Load())
}

// lostLeases is the message of a worker whose results were refused.
const lostLeases = "leases lost before the tasks were finished"
