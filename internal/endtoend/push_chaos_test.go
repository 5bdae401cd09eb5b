//go:build unix

package endtoend_test

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestPushChaos: events come in by all three ways, and members change what they want and who
// sees their photos, while processes, servers, connections and answers of the push services
// fail. Each event that was acknowledged reaches each device that it is for, or there is a
// reason; nothing comes to a member that was not to get it at the last look, nor in its quiet hours unless it is urgent;
// a burst has one collapse id, and its newest text last, unless a process that was killed or stopped, or lost its lease, had sent
// an older one;
// nothing is stuck. A message comes twice only if its process was killed or stopped, or says that it lost its lease, its
// connection was cut, its answer lost, or the database away, between its acceptance and its receipt.
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
	must(t, f.watchDoubles(t.Context()))
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
	j.checkBursts()
	j.checkDevices()
	f.checkDoubles(t, j)
	t.Log(j)
	if j.throughQuiet == 0 || j.heldByQuiet == 0 || j.exact == 0 {
		t.Error("nothing is known of quiet hours, or of what the last look saw")
	}
	if j.overtaken > max(3, j.bursted/10) {
		t.Errorf("the last messages of %d of %d bursts came late", j.overtaken, j.bursted)
	}
	f.checkStream(t, j)
	for _, p := range f.workers {
		p.finish(t)
		p.checkLogs(t)
	}
}

// pushSettleBound is the longest that a task may take when the chaos is over, besides half of
// what that lasted: a message that is tried again waits for half the age of its event, a push
// service that failed is left alone for some seconds, and tasks of one burst are done one after the other. It
// takes about a minute; several where other tests take the machine and leases of 5 s run out.
const pushSettleBound = 8 * time.Minute

// makePushChaos returns when everything is back.
func (f *pushFleet) makePushChaos(t *testing.T) {
	t.Helper()
	kills, err := strconv.ParseInt(cmp.Or(os.Getenv("ACTIVITYD_KILLS"), "0"), 10, 64)
	must(t, err)
	rest := f.live(t.Context())
	group, ctx := errgroup.WithContext(t.Context())
	// A message tells something of quiet hours when they began before the oldest look that it may have had.
	tells := time.Now().Add(oldestLook + 10*time.Second)
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

// hasten has what waits for the end of a burst, or waited for that of quiet hours, done now, one task of a
// burst after the other: they count on these times. Nothing else is under way then.
func (s *pushSite) hasten(t *testing.T) {
	t.Helper()
	const long = "due_at > " + mysql.Now + " + 6000" // milliseconds, more than one of a burst waits for another that may be under way
	must(t, retry(t.Context(), mysql.IsRetryable, func() error {
		var busy int
		err := s.db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM task_leases) +"+
			" (SELECT COUNT(*) FROM parked_tasks WHERE NOT "+long+")").Scan(&busy)
		if err == nil && busy == 0 {
			_, err = s.db.ExecContext(t.Context(), "UPDATE parked_tasks JOIN (SELECT MIN(id) AS id FROM parked_tasks WHERE state = 'scheduled' AND "+long+
				" GROUP BY subject, COALESCE(JSON_UNQUOTE(JSON_EXTRACT(args, '$.burst')), id)) AS first USING (id) SET due_at = 1")
		}
		return err
	}))
}

// endBursts has what waits for the end of a burst, which takes a minute, done now.
func (g *ground) endBursts(t *testing.T) {
	t.Helper()
	must(t, retry(t.Context(), mysql.IsRetryable, func() error {
		_, err := g.db.ExecContext(t.Context(), "UPDATE parked_tasks SET due_at = 1 WHERE state = 'scheduled' AND dedupe_key LIKE 'burst:%'")
		return err
	}))
}

// noteLostLeases notes when processes lost leases, as they say: at some time since they extended them last. That may be without
// any fault, where the machine is slow.
func (f *pushFleet) noteLostLeases(t *testing.T) {
	t.Helper()
	for _, p := range f.workers {
		for _, r := range p.runs {
			lines, err := r.lines()
			must(t, err)
			for _, l := range lines {
				if l.Message == lostLeases || l.Message == "lease lost; its tasks are cancelled" {
					f.wrong.add(window{what: leaseLost, from: l.Time.Add(-leaseOfPush), to: l.Time, of: r})
				}
			}
		}
	}
}

// checkDoubles: each has a reason, and there are no more than the processes counted. A count is lost
// with a process that is killed before it is asked.
func (f *pushFleet) checkDoubles(t *testing.T, j *pushJudge) {
	t.Helper()
	const soon = 250 * time.Millisecond
	all := j.checkDoubles()
	blind, inFlight := 0, 0
	why := make(map[string]int)
	for _, d := range all {
		// It was counted when the first message had no answer, or when the second was sent.
		if f.watcher.blind.overlap(d.first.at, d.first.at.Add(soon)) || f.watcher.blind.overlap(d.again.at.Add(-soon), d.again.at) {
			blind++
		}
		if w := j.reason(d); w != nil {
			why[w.what]++
		} else {
			j.wrongf("event %s came to device %d of member %s at %v (by a process killed at %v, count %d) and, for no reason, at %v (%v, %d): %q",
				d.first.event, d.first.device.id, d.first.device.member.id, d.first.at, j.killedAt(d.first.of), d.first.count,
				d.again.at, j.killedAt(d.again.of), d.again.count, j.rowsAbout(d.first.event))
		}
	}
	for _, w := range f.wrong.all {
		if w.what == processKilled {
			inFlight += j.inFlightAt(w)
		}
	}
	possible := f.watcher.possible()
	t.Logf("doubles: %d, after %v; messages in flight, or without a receipt, in processes when they were killed: %d", len(all), why, inFlight)
	t.Logf("counted as possible doubles: %d; %d may have been counted by a process that was killed before it told", possible, blind)
	if len(all) > possible+blind {
		t.Errorf("%d doubles, and %d were counted as possible", len(all), possible)
	}
}

// checkStream: what was added after Redis last lost data is in the queue, and nothing was set
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
