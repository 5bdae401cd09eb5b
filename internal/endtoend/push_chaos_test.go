//go:build unix

package endtoend_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestPushChaos: events come in by all three ways, and members change their settings and the viewers of their
// photos, while processes, servers, connections and answers of the push services fail. Each event that was
// acknowledged reaches each device that it is for, or there is a reason; no message comes to a member against
// the last look, nor in its quiet hours unless it is urgent; a burst has one collapse id; nothing is stuck.
// A message comes twice only by a fault, with the same collapse id.
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
	f.awaitDelivered(t, pushSettleBound+lasted/2)
	t.Logf("chaos of push with seed %d: %d processes killed in %v, settled after %v; faults: %v", f.seed, f.kills.Load(),
		lasted.Round(time.Millisecond), time.Since(rested).Round(time.Millisecond), &f.faults)
	j := newPushJudge(t, f.pushSite)
	j.checkNothingStuck()
	j.checkComplete()
	j.checkAllowed()
	j.checkDevices()
	j.checkDoubles(f.faults.all, f.leasesThatRanOut(t))
	f.checkStream(t, j)
	t.Log(j)
	for _, p := range f.workers {
		p.finish(t)
	}
}

// pushSettleBound is the longest that the work may take after the chaos, besides half of the chaos's duration:
// about a minute, and several if other tests take the machine and leases run out.
const pushSettleBound = 8 * time.Minute

// leaseOfPush is that of notifications.
const leaseOfPush = 5 * time.Second

// pushFleet is activityd as several machines run it, before a site whose members are notified.
type pushFleet struct {
	*fleet // its servers, proxies and processes
	*pushSite

	kills atomic.Int64
	calm  time.Time // the end of the time without faults
}

// newPushFleet starts everything.
func newPushFleet(t *testing.T, seed uint64) *pushFleet {
	t.Helper()
	const processes = 4
	server := servertest.OwnMySQL(t, "--innodb-flush-log-at-trx-commit=2") // outlives kill -9, if not a lost machine
	g := groundOn(t, 10, server.DSN(servertest.Database), servertest.Redis(t, localserver.AOF...))
	f := &pushFleet{fleet: machines(t, g, seed, servertest.NewProxy(t, server.Addr())), pushSite: newPushSite(t, g, seed)}
	f.mysql, f.town = server, &town{ground: g}
	for i := range processes {
		p := serving(t, fmt.Sprint("activityd-", i+1), f.mysqlProxy.MySQLDSN(g.dsn), f.redisProxy.RedisURL(), append([]string{
			fmt.Sprint("--need=", g.settings.Need), "--poll=200ms", "--grace=5s", "ACTIVITYD_AUDIT_SWEEP_RATE=0", fmt.Sprint("--task-lease=", leaseOfFleet),
		}, f.senders...)...)
		f.workers = append(f.workers, p.mustStart(t))
	}
	return f
}

// leasesThatRanOut returns when each may have been extended last, and when its end was seen.
func (f *pushFleet) leasesThatRanOut(t *testing.T) (all []struck) {
	t.Helper()
	for _, p := range f.workers {
		for _, r := range p.runs {
			for _, line := range r.lines(t) {
				if line.Message == "leases ran out" {
					all = append(all, struck{line.Message, line.Time.Add(-2 * leaseOfPush), line.Time})
				}
			}
		}
	}
	return all
}

// makePushChaos returns when everything is back.
func (f *pushFleet) makePushChaos(t *testing.T) {
	t.Helper()
	const calm, least = 5 * time.Second, oldestLook + 10*time.Second // then a message tells something of quiet hours
	kills, err := strconv.ParseInt(cmp.Or(os.Getenv("ACTIVITYD_KILLS"), "0"), 10, 64)
	must(t, err)
	living := f.livePush(t.Context())
	must(t, between(t.Context(), rand.New(rand.NewPCG(f.seed, 299)), calm, calm+time.Second))
	f.calm = time.Now()
	f.pushSite.lossy.Store(true)
	group, ctx := errgroup.WithContext(t.Context())
	for _, m := range f.pushMonkeys() {
		group.Go(func() error {
			return m.play(ctx, func() bool { return f.kills.Load() >= kills && time.Since(f.calm) > least })
		})
	}
	if err := group.Wait(); err != nil {
		t.Errorf("the chaos: %v", err)
	}
	if err := cmp.Or(living.rest(), f.wake(t.Context())); err != nil {
		t.Fatalf("the site: %v", err)
	}
}

// livePush lets producers work, and members who change things.
func (f *pushFleet) livePush(ctx context.Context) *crew {
	const maxWaiting = 1000 // keeps the work busy, and its end near
	c := newCrew(ctx)
	var waiting atomic.Int64
	for i, way := range []string{byRow, byStream, byHTTP} {
		rnd := rand.New(rand.NewPCG(f.seed, 600+uint64(i)))
		p := &pushProducer{
			pushSite: f.pushSite, way: way, rnd: rnd, http: f.http, api: func() *program { return f.workers[rnd.IntN(len(f.workers))] },
		}
		c.each(50*time.Millisecond, func(ctx context.Context) error { // without a pause they take all processors
			if waiting.Load() > maxWaiting {
				return nil
			}
			return p.produce(ctx)
		})
	}
	c.each(100*time.Millisecond, func(ctx context.Context) error {
		var n int64
		if err := f.pushSite.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks").Scan(&n); err == nil {
			waiting.Store(n)
		}
		return ctx.Err()
	})
	changes := rand.New(rand.NewPCG(f.seed, 700))
	c.each(30*time.Millisecond, func(ctx context.Context) error { return f.change(ctx, changes) })
	return c
}

// pushMonkeys returns two monkeys for the processes, each for its own half; a monkey for each server with its
// network; and a monkey for the push services.
func (f *pushFleet) pushMonkeys() []*monkey {
	half := len(f.workers) / 2
	redisFaults := append(f.redisFaults(), fault{"the stream emptied", func(ctx context.Context, _ *rand.Rand) error {
		return f.fleet.lossy(func() error { return f.fleet.client.Del(ctx, stream.Key).Err() })
	}})
	var all []*monkey
	for i, kinds := range [][]fault{
		f.killing(f.workers[:half]), f.killing(f.workers[half:]), f.mysqlFaults(), redisFaults, f.servicesFaults(),
	} {
		all = append(all, &monkey{rnd: rand.New(rand.NewPCG(f.seed, 300+uint64(i))), kinds: kinds, record: &f.faults, hasty: i < 2})
	}
	return all
}

// killing has the kill several times for each stop.
func (f *pushFleet) killing(some []*program) []fault {
	kill := fault{"activityd killed", func(ctx context.Context, rnd *rand.Rand) error {
		f.kills.Add(1)
		return killAndStart(ctx, rnd, some[rnd.IntN(len(some))])
	}}
	return append(slices.Repeat([]fault{kill}, 6), fault{"activityd stopped past its lease", func(ctx context.Context, rnd *rand.Rand) error {
		p := some[rnd.IntN(len(some))]
		return whileWrong(ctx, rnd, leaseOfPush+500*time.Millisecond, longestStop, p.freeze, p.thaw)
	}})
}

// longestStop is that of a process.
const longestStop = leaseOfPush + 1500*time.Millisecond

func (f *pushFleet) servicesFaults() []fault {
	do := func(strike func()) func(context.Context, *rand.Rand) error {
		return func(context.Context, *rand.Rand) error {
			strike()
			return nil
		}
	}
	return []fault{
		{"connections to APNs cut", do(f.apns.Cut)},
		{"APNs goes away", do(func() { f.apns.GoAway("") })},
		{"APNs takes one at a time", func(ctx context.Context, rnd *rand.Rand) error {
			return whileWrong(ctx, rnd, 200*time.Millisecond, 800*time.Millisecond,
				func() error { f.apns.SetMaxStreams(1); return nil }, func() error { f.apns.SetMaxStreams(1000); return nil })
		}},
		{"a connection to browsers cut", do(func() { f.cutWeb.Store(true) })},
		{"a connection to FCM cut", do(func() { f.cutFCM.Store(true) })},
	}
}

// awaitDelivered waits until the stream is empty and every task is done, for at most so long each.
func (f *pushFleet) awaitDelivered(t *testing.T, most time.Duration) {
	t.Helper()
	servertest.EventuallyWithin(t, most, "the stream is empty", func() bool {
		n, err := f.fleet.client.XLen(t.Context(), stream.Key).Result()
		must(t, err)
		return n == 0
	})
	servertest.EventuallyWithin(t, most, "every task is done", func() bool {
		f.hasten(t)
		return f.fleet.count(t).Open() == 0
	})
	f.fleet.checkNoneDead(t)
}

// hasten makes the tasks due that wait for the end of quiet hours, which wake has ended. Nothing else is under way
// then, but messages that their handler left behind: their tasks come again after 15 seconds, when the
// messages have ended.
func (g *ground) hasten(t *testing.T) {
	t.Helper()
	const long = "run_at > " + mysql.Now + " + 16000" // milliseconds
	must(t, retry(t.Context(), mysql.IsRetryable, func() error {
		var busy int
		err := g.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks WHERE state IN ('waiting', 'behind', 'running') OR run_at <= "+mysql.Now).Scan(&busy)
		if err == nil && busy == 0 {
			_, err = g.db.ExecContext(t.Context(), "UPDATE tasks SET run_at = 1 WHERE state = 'scheduled' AND type = 'deliver' AND "+long)
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

// checkStream: each event that was added after the last loss of Redis is in the queue, and no event was set
// aside.
func (f *pushFleet) checkStream(t *testing.T, j *pushJudge) {
	t.Helper()
	lastLoss := slices.MaxFunc(append(f.losses, time.Time{}), time.Time.Compare)
	for _, id := range slices.Sorted(maps.Keys(j.sent)) {
		if e := j.sent[id]; e.way == byStream && e.began.After(lastLoss) && !j.notified[id] {
			j.wrongf("event %s was added to the stream after the last loss, and is not in the queue", id)
		}
	}
	dead, err := f.fleet.client.XRange(t.Context(), stream.DeadKey, "-", "+").Result()
	must(t, err)
	if len(dead) > 0 {
		t.Errorf("%d entries of the stream were set aside, the first: %v", len(dead), dead[0].Values)
	}
}
