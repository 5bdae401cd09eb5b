package main

import (
	"context"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/clustertest"
)

// tiny is enough to count: no time is looked at.
func tiny() options {
	o := quickOptions()
	o.site = siteSize{
		Members: 1200, Photos: 10, Contacts: []int{10, 100, 1000}, Followers: []int{6000, 7000}, Private: 400, Refills: 2 * refillBatch,
	}
	o.reads, o.circles, o.requests, o.tasks, o.sets = 3, 2, 40, 60, 400
	o.plain, o.quiet = 1, 20*o.pace
	o.producers, o.concurrency, o.wakes, o.idle, o.backlog, o.repetitions = 2, []int{4}, 2, time.Millisecond, [2]int{100, 300}, 1
	o.snapshot = 500 * time.Millisecond
	o.pairs, o.holders = 40, []int{1, 4}
	o.followers, o.pushes, o.rate, o.paced, o.urgents, o.entries, o.held = 1200, 1100, 100, 200*time.Millisecond, 2, 20, 4
	o.parts = slices.DeleteFunc(allParts(), func(p part) bool { return p.group == "overload" }) // they need time; overload_test.go has their gates
	return o
}

// setup starts the servers with the site.
func setup(tb testing.TB, o options) *suite {
	tb.Helper()
	s, err := newSuite(tb.Context(), o, io.Discard)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func (s *suite) count(t *testing.T, do func(context.Context) (int, error)) counts {
	t.Helper()
	c, err := s.meter.counted(t.Context(), func() error {
		_, err := do(t.Context())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The first promise of activityd, in counts: for any number of contacts and of private
// photos, a read is two round trips and the same few rows.
func TestReadsCostTheSameWhateverTheContacts(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	viewers := append(s.options.site.viewers(), openViewer, hiddenViewer, privateViewer, plainViewer, closeViewer)
	if err := s.fill(t.Context(), viewers); err != nil {
		t.Fatal(err)
	}
	l, err := s.newLines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var first readCost
	for i, viewer := range viewers {
		c, err := l.costOf(t.Context(), viewer)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			first = c
		}
		if c.RedisTrips != 1 || c.MySQLTrips != 1 || c.Shown != shown {
			t.Errorf("viewer %s: %+v, want one round trip to each server and %d photos", viewer, c, shown)
		}
		if c.Rows > maxRows*shown || c.Rows < shown {
			t.Errorf("viewer %s: %v rows read, want %d to %d", viewer, c.Rows, shown, maxRows*shown)
		}
		if c.Rows != first.Rows && viewer != closeViewer { // which sees more classes
			t.Errorf("viewer %s: %v rows read, want as many as for the first viewer, %v", viewer, c.Rows, first.Rows)
		}
	}
}

// How often reads walk comes from the seeds alone, and larger sets make it rarer. Where nine
// photos of ten are hidden, each for itself, chance leaves no visible one among the first eleven
// contacts of twelve for 31 reads of 100; the second newest photos of some make it fewer.
func TestWalksAreCounted(t *testing.T) {
	t.Parallel()
	const circles, share = 8, 0.9
	for i, h := range habits {
		walks, often, err := walksOf(t.Context(), h, share, circles)
		if err != nil {
			t.Fatal(err)
		}
		again, oftenAgain, err := walksOf(t.Context(), h, share, circles)
		if err != nil || !slices.Equal(walks, again) || often != oftenAgain {
			t.Errorf("%s: %v reads walk, %d viewers often, and then %v, %d: %v", h.name, walks, often, again, oftenAgain, err)
		}
		if walks[0] == 0 || walks[1] >= walks[0] || walks[2] >= walks[1] {
			t.Errorf("%s: %v reads walk with need %v, want some, and fewer with more candidates", h.name, walks, needs)
		}
		if most := circles * circleReads * 40 / 100; i == 0 && walks[0] > most {
			t.Errorf("%s: %d reads walk, want at most %d", h.name, walks[0], most)
		}
	}
}

// A fan-out reads each follower once, in large pages, and writes to its set by one
// command where it held the uploader, by two where another contact has to go.
func TestFanOutCounts(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	for known, commands := range map[bool]float64{true: 1, false: 2} {
		f := newFanOut(s, 0, known)
		for range 2 { // the scripts are known after the first time
			if err := f.prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := s.count(t, f.byHandlers)
			f.gate(t, c, commands)
		}
	}
}

// Through a cluster the commands are the same, except that guards are deleted one by one, and
// there is a round trip to each master for a thousand sets: no script runs for one set.
func TestClusterFanOutCounts(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	cluster, err := clustertest.StartCluster(t.Context(), clusterMasters, 0, patientScripts()...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	on, client, err := s.on(t.Context(), cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	for known, commands := range map[bool]float64{true: 1, false: 3} {
		f := newFanOut(on, 0, known)
		f.client = client
		for range 2 { // the scripts are known after the first time
			if err := f.prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			c := f.count(t, f.byHandlers)
			n := float64(f.followers)
			if most := (commands + 0.1) * n; c.Commands < commands*n || c.Commands > most {
				t.Errorf("known %v: %v commands for %v followers, want %v each", known, c.Commands, n, commands)
			}
			if c.RedisTrips > n/100 {
				t.Errorf("known %v: %v round trips for %v followers", known, c.RedisTrips, n)
			}
		}
	}
}

func (f *fanOut) gate(t *testing.T, c counts, commands float64) {
	t.Helper()
	const page = 2500 // as the handler reads and writes them
	n, pages := float64(f.followers), float64(f.followers/page+1)
	if trips := pages + 5; c.RedisTrips > trips { // three to check, one to send the script, one for the settings
		t.Errorf("%v round trips to Redis, want at most %v", c.RedisTrips, trips)
	}
	if most := (commands + 0.1) * n; c.Commands < commands*n || c.Commands > most {
		t.Errorf("%v commands for %v followers, want %v each", c.Commands, n, commands)
	}
	if c.Statements < pages || c.Statements > 3*pages {
		t.Errorf("%v statements for %v pages, want at most 3 each", c.Statements, pages)
	}
	if c.RowsRead < n || c.RowsRead > 1.1*n {
		t.Errorf("%v rows read for %v followers, want each once", c.RowsRead, n)
	}
}

// Refills of many viewers cost a few statements and two round trips to Redis.
func TestRefillCounts(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	users := s.options.site.refilled()
	refill := func(users []member.ID) func(context.Context) (int, error) {
		return func(ctx context.Context) (int, error) { return len(users), s.fill(ctx, users) }
	}
	s.count(t, refill(users[refillBatch:])) // the scripts are known after it
	c := s.count(t, refill(users[:refillBatch]))
	if c.Statements < 1 || c.Statements > 3 {
		t.Errorf("%v statements for %d viewers, want at most 3", c.Statements, refillBatch)
	}
	if c.RedisTrips != 2 {
		t.Errorf("%v round trips for %d viewers, want 2", c.RedisTrips, refillBatch)
	}
}

// In batches, many contact changes share each statement.
func TestBatchCounts(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	if err := s.fill(t.Context(), s.options.site.refilled()); err != nil {
		t.Fatal(err)
	}
	const n = 150
	our := newActivityd(s.backend)
	r, contender := s.endToEnd(variant{system: our, producers: 1, batch: n, enqueue: our.enqueue}, n)
	if err := contender.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := s.count(t, contender.run)
	if err := contender.after(t.Context()); err != nil || r.stop != nil {
		t.Fatal(err)
	}
	if each := c.Statements / n; each <= 0 || each > 1 {
		t.Errorf("%v statements for each task, want less than one", each)
	}
}

// Acquire and done are one script each on Redis, and two statements each on MySQL.
func TestLockCounts(t *testing.T) {
	t.Parallel()
	onRedis, onMySQL, err := newLockBench(setup(t, tiny())).costsOfPairs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// Acquire: EVALSHA, GET, HGET, INFO, HINCRBY, SET. Done: EVALSHA, GET, SET.
	if onRedis.Trips != 2 || onRedis.Commands < 4 || onRedis.Commands > 9 {
		t.Errorf("Redis: %v round trips, %v commands, want 2 and at most 9", onRedis.Trips, onRedis.Commands)
	}
	if onMySQL.Trips < 2 || onMySQL.Trips > 4 || onMySQL.Statements < 2 || onMySQL.Statements > 4 {
		t.Errorf("MySQL: %v round trips, %v statements, want at most 4 of each", onMySQL.Trips, onMySQL.Statements)
	}
}

// A read beside a thousand broadcast members, or as many as there can be here, is bounded, however many of them the viewer follows and however often they
// upload: no walk, one round trip to Redis, as the copies are known, and as a rule one to MySQL, four at most. A viewer of few contacts, all quiet, walks: few rows.
func TestBroadcastReadCounts(t *testing.T) {
	t.Parallel()
	s := setup(t, tiny())
	b, err := s.newBroadcasts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.close() }()
	l, err := s.newLines(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, often := range []int{1, 7} {
		if err := b.uploadOften(t.Context(), often); err != nil {
			t.Fatal(err)
		}
		for i, fans := range b.fans {
			for _, viewer := range fans {
				c, err := l.costOf(t.Context(), viewer)
				if err != nil {
					t.Fatal(err)
				}
				if c.RedisTrips != 1 || c.MySQLTrips > 4 || c.Proof == recent.ByWalk {
					t.Errorf("viewer %s, who follows %d of 1000 broadcast members: %+v, want no walk, and one round trip to Redis and four to MySQL at most", viewer, followings[i], c)
				}
				if c.Proof == recent.ByNext && c.MySQLTrips > 1 {
					t.Errorf("viewer %s, who follows %d of 1000 broadcast members: %+v, want one statement for the first candidate", viewer, followings[i], c)
				}
				most := float64(2*maxRows*shown + len(b.members))
				if c.Proof == recent.ByNext {
					most = float64(maxRows*shown + 200)
				}
				if c.Rows > most {
					t.Errorf("viewer %s, who follows %d of 1000 broadcast members: %v rows read, want at most %v", viewer, followings[i], c.Rows, most)
				}
			}
		}
		c, err := l.costOf(t.Context(), quietFan)
		if err != nil {
			t.Fatal(err)
		}
		if c.Proof != recent.ByWalk || c.RedisTrips != 1 || c.Rows > 2*maxRows*shown {
			t.Errorf("a viewer of three quiet contacts: %+v, want a walk of few rows", c)
		}
	}
}
