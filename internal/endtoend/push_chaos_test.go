//go:build unix

package endtoend_test

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/stream"
)

// TestPushChaos: events come in by all three ways, and members change what they want and who
// sees their photos, while processes, servers, connections and answers of the push services
// fail. Each event that was acknowledged reaches each device that it is for, or there is a
// reason; nobody is notified of a photo that was invisible at the last look; doubles are no
// more than messages were in flight at the faults, and are counted; nothing is stuck.
//
// It makes each kind of fault once at least. ACTIVITYD_CHAOS_PUSH=20m makes it go on until
// there were a thousand kills, twenty minutes at most:
//
//	make chaos-push DURATION=20m SEED=1234
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
	j := newPushJudge(t, f.pushSite)
	t.Logf("chaos of push with seed %d: %d kills in %v, settled after %v", f.seed, f.kills.Load(), lasted.Round(time.Millisecond), settled.Round(time.Millisecond))
	t.Logf("faults: %v", &f.fleet.faults)
	j.checkNothingStuck()
	j.checkComplete()
	exact := j.checkAllowed()
	t.Logf("%v; %d messages tell which visibility the last look saw", j, exact)
	f.checkDoubles(t, j)
	f.checkStream(t, j)
	for _, p := range f.workers {
		p.finish(t)
		p.checkLogs(t)
	}
}

// pushSettleBound is the longest that a task may take when the chaos is over, besides half of
// what that lasted: a message that is tried again waits for half the age of its event. A push
// service that failed is left alone for some seconds.
const pushSettleBound = 90 * time.Second

const pushKills = 1000 // of the long form

// makePushChaos returns when everything is back.
func (f *pushFleet) makePushChaos(t *testing.T) {
	t.Helper()
	var duration time.Duration
	if text := os.Getenv("ACTIVITYD_CHAOS_PUSH"); text != "" {
		var err error
		duration, err = time.ParseDuration(text)
		must(t, err)
	}
	rest := f.live(t.Context())
	deadline := time.Now().Add(duration)
	group, ctx := errgroup.WithContext(t.Context())
	for _, m := range f.pushMonkeys() {
		group.Go(func() error {
			return m.play(ctx, func() bool { return !time.Now().Before(deadline) || f.kills.Load() >= pushKills })
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
		s.endBursts(t)
		return s.count(t).Open() == 0
	})
	s.checkNoneDead(t)
}

// endBursts has what waits for the end of a burst, which takes a minute, done now.
func (g *ground) endBursts(t *testing.T) {
	t.Helper()
	must(t, retry(t.Context(), mysql.IsRetryable, func() error {
		_, err := g.db.ExecContext(t.Context(), "UPDATE parked_tasks SET due_at = 1 WHERE state = 'scheduled' AND dedupe_key LIKE 'burst:%'")
		return err
	}))
}

// checkDoubles: there are no more than messages were in flight at the faults, and no more than
// the processes counted. A count is lost with a process that is killed before it is asked.
func (f *pushFleet) checkDoubles(t *testing.T, j *pushJudge) {
	t.Helper()
	const atOnce, soon = 100 * time.Millisecond, 250 * time.Millisecond
	all := j.checkDoubles()
	inFlight, blind, late := f.pushSite.faults.answersLost(), 0, 0
	for _, w := range f.faults.all {
		if slices.Contains([]string{"kill", "stop", "cut", "MariaDB killed", "connections to MariaDB cut"}, w.what) {
			inFlight += j.inFlightAt(window{w.what, w.from, w.from.Add(atOnce)})
		}
	}
	for _, d := range all {
		// It was counted when the first message had no answer, or when the second was sent.
		if f.watcher.blind.overlap(d.first.at, d.first.at.Add(soon)) || f.watcher.blind.overlap(d.again.at.Add(-soon), d.again.at) {
			blind++
		}
	}
	for _, p := range f.workers {
		late += p.sum(t, lostLeases)
	}
	possible := f.watcher.possible()
	t.Logf("doubles: %d; in flight at the faults: %d; counted as possible: %d; %d doubles may have been counted by a process that was killed before it told; %d leases lost",
		len(all), inFlight, possible, blind, late)
	t.Logf("messages in flight at kills, as the processes said: %v", slices.Max(append(f.watcher.inFlight, 0)))
	if len(all) > inFlight+late {
		t.Errorf("%d doubles, and %d messages were in flight at the faults", len(all), inFlight)
	}
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
