//go:build unix

package endtoend_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestPushChaos: events come in by all three ways, and members change their settings and the viewers of their
// photos, while processes, servers, connections and answers of the push services fail. Each event that was
// acknowledged reaches each device that it is for, or there is a reason; no message comes to a member against
// the last look, nor in its quiet hours unless it is urgent; a burst has one collapse id; nothing is stuck. A
// message that comes twice has a reason: see pushJudge.checkDoubles.
//
// It makes each kind of fault once at least. ACTIVITYD_KILLS=1000 makes it go on until so many processes were
// killed:
//
//	make chaos-push KILLS=1000 SEED=1234
func TestPushChaos(t *testing.T) {
	t.Parallel()
	f := newPushFleet(t, seedFor(t))
	began := time.Now()
	f.makePushChaos(t)
	lasted, rested := time.Since(began), time.Now()
	most := pushSettleBound + lasted/2
	f.awaitDelivered(t, most)
	settled := time.Since(rested)
	if settled > most {
		t.Errorf("the last task was done %v after everything was back, want at most %v", settled, most)
	}
	f.noteLostLeases(t)
	j := newPushJudge(t, f.pushSite)
	t.Logf("chaos of push with seed %d: %d processes killed in %v, settled after %v", f.seed, f.kills.Load(), lasted.Round(time.Millisecond), settled.Round(time.Millisecond))
	t.Logf("faults: %v", &f.faults)
	j.checkNothingStuck()
	j.checkComplete()
	j.checkAllowed()
	j.checkDevices()
	t.Logf("doubles: %v", j.checkDoubles())
	t.Log(j)
	if j.throughQuiet == 0 || j.heldByQuiet == 0 || j.exact == 0 {
		t.Error("nothing is known of quiet hours, or of what the last look saw")
	}
	f.checkStream(t, j)
	for _, p := range f.workers {
		p.finish(t)
		p.checkLogs(t)
	}
}

// pushSettleBound is the longest that a task may take after the chaos, besides half of the chaos's duration.
// A message that is tried again waits for half the age of its event, a push service that failed is left alone
// for some seconds, and the tasks of a burst are done in turn. The wait is about a minute. It is several
// minutes if other tests take the machine and leases of 5 s run out.
const pushSettleBound = 8 * time.Minute

// makePushChaos returns when everything is back.
func (f *pushFleet) makePushChaos(t *testing.T) {
	t.Helper()
	kills, err := strconv.ParseInt(cmp.Or(os.Getenv("ACTIVITYD_KILLS"), "0"), 10, 64)
	must(t, err)
	rest := f.live(t.Context())
	group, ctx := errgroup.WithContext(t.Context())
	// A message tells something of quiet hours when they began before the oldest look that it may have had.
	tells := time.Now().Add(oldestLook + leaseOfPush + 20*time.Second)
	for _, m := range f.pushMonkeys() {
		group.Go(func() error {
			return m.play(ctx, func() bool { return f.kills.Load() >= kills && time.Now().After(tells) })
		})
	}
	if err := group.Wait(); err != nil {
		t.Errorf("the chaos: %v", err)
	}
	if err := rest(); err != nil {
		t.Fatalf("the site: %v", err)
	}
}

// awaitDelivered waits until the stream is empty and every task is done, for at most so long
// each.
func (s *pushSite) awaitDelivered(t *testing.T, most time.Duration) {
	t.Helper()
	servertest.EventuallyWithin(t, most, "the stream is empty", func() bool {
		n, err := s.client.XLen(t.Context(), stream.Key).Result()
		must(t, err)
		return n == 0
	})
	servertest.EventuallyWithin(t, most, "every task is done", func() bool {
		s.hasten(t)
		return s.count(t).Open() == 0
	})
	s.checkNoneDead(t)
}

// hasten makes the tasks due that wait for the end of quiet hours, which are over. Nothing else is under way
// then, but messages that their handler left behind: their tasks come again after 15 seconds, when the
// messages have ended.
func (s *pushSite) hasten(t *testing.T) {
	t.Helper()
	const long = "run_at > " + mysql.Now + " + 16000" // milliseconds
	must(t, retry(t.Context(), mysql.IsRetryable, func() error {
		var busy int
		err := s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE state IN ('waiting', 'behind', 'running') OR run_at <= "+mysql.Now).Scan(&busy)
		if err == nil && busy == 0 {
			_, err = s.db.ExecContext(t.Context(), "UPDATE tasks SET run_at = 1 WHERE state = 'scheduled' AND type = 'deliver' AND "+long)
		}
		return err
	}))
}

// endBursts makes the tasks due that wait for the end of a burst, which takes a minute.
func (g *ground) endBursts(t *testing.T) {
	t.Helper()
	must(t, retry(t.Context(), mysql.IsRetryable, func() error {
		_, err := g.db.ExecContext(t.Context(), "UPDATE push_receipts SET at = LEAST(at, "+mysql.Now+" - 61000) WHERE state = 'accepted'"+
			" AND EXISTS (SELECT 1 FROM tasks WHERE type = 'burst')")
		if err == nil {
			_, err = g.db.ExecContext(t.Context(), "UPDATE tasks SET run_at = 1 WHERE state IN ('waiting', 'scheduled') AND type = 'burst'")
		}
		return err
	}))
}

// noteLostLeases notes when processes lost leases, as they say: at some time since they extended them last. A few may be lost
// without any fault, where the machine is slow.
func (f *pushFleet) noteLostLeases(t *testing.T) {
	t.Helper()
	const few = 3
	without := 0
	faults := slices.Clone(f.wrong.all)
	for _, p := range f.workers {
		for _, r := range p.runs {
			lines, err := r.lines()
			must(t, err)
			for _, l := range lines {
				if l.Message == lostLeases || l.Message == "lease lost; its tasks are cancelled" {
					lost := window{what: leaseLost, from: l.Time.Add(-leaseOfPush), to: l.Time, of: r}
					f.wrong.add(lost)
					// An extension without an answer is a slow database. Only another worker that has the lease is a fault.
					byAnother := !strings.Contains(l.text, "could not be extended")
					if byAnother && !slices.ContainsFunc(faults, func(w window) bool {
						return (w.of == r || w.isOfDatabase()) && !w.to.Before(lost.from) && !w.from.After(lost.to)
					}) {
						without++
						t.Logf("%s lost a lease without a fault at %v: %s", r.name(), l.Time, l.Message)
					}
				}
			}
		}
	}
	if without > few {
		t.Errorf("%d leases were lost without a fault, want %d at most", without, few)
	}
}

// checkStream: each event that was added after the last loss of Redis is in the queue, and no event was set
// aside.
func (f *pushFleet) checkStream(t *testing.T, j *pushJudge) {
	t.Helper()
	for id, e := range j.sent {
		afterLoss := !slices.ContainsFunc(f.losses, func(lost time.Time) bool { return e.began.Before(lost) })
		if e.way == byStream && afterLoss && !j.notified[id] {
			j.wrongf("event %s was added to the stream after the last loss, and is not in the queue", id)
		}
	}
	dead, err := f.client.XRange(t.Context(), stream.DeadKey, "-", "+").Result()
	must(t, err)
	if len(dead) > 0 {
		t.Errorf("%d entries of the stream were set aside, the first: %v", len(dead), dead[0].Values)
	}
}
