package audit_test

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

// recorder knows what was counted since it was made, by a test that is not
// parallel, and where a sweep was whose ledger is the recorder's.
type recorder struct {
	t      testing.TB
	before metricstest.Samples

	mu       sync.Mutex
	progress []audit.Progress // of the steps that were kept
	stoodBy  int              // times that another process was found to sweep
}

func record(t testing.TB) *recorder {
	t.Helper()
	return &recorder{t: t, before: metricstest.Gather(t)}
}

func (r *recorder) rose(series string) int {
	return int(metricstest.Gather(r.t)["activityd_audit_"+series] - r.before["activityd_audit_"+series])
}

func (r *recorder) sweeps() int   { return r.rose(`checked_total{origin="sweep"}`) }
func (r *recorder) reads() int    { return r.rose(`checked_total{origin="read"}`) }
func (r *recorder) answers() int  { return r.rose("answers_checked_total") }
func (r *recorder) dropped() int  { return r.rose("samples_dropped_total") }
func (r *recorder) enqueued() int { return r.rose(`repairs_total{result="enqueued"}`) }
func (r *recorder) deferred() int { return r.rose(`repairs_total{result="deferred"}`) }
func (r *recorder) losses() int   { return r.rose("redis_losses_total") }
func (r *recorder) built() int    { return r.rose("built_total") }
func (r *recorder) away() int     { return r.rose(`unreachable_total{origin="sweep"}`) }

func (r *recorder) failed() int {
	return r.rose(`failed_total{origin="sweep"}`) + r.rose(`failed_total{origin="read"}`)
}

// steps returns where the sweep was.
func (r *recorder) steps() []audit.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.progress)
}

// standsBy reports whether another process was found to sweep.
func (r *recorder) standsBy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stoodBy > 0
}

// rounds are the rounds of the sweep that ended.
func (r *recorder) rounds() int {
	ends := map[time.Time]bool{}
	for _, p := range r.steps() {
		if !p.Ended.IsZero() {
			ends[p.Ended] = true
		}
	}
	return len(ends)
}

// recorded is a ledger that tells a recorder where the sweep is.
type recorded struct {
	audit.Ledger
	*recorder
}

func (l recorded) SaveSweep(ctx context.Context, fence uint64, state string) (saved bool, err error) {
	l.mu.Lock()
	l.progress = append(l.progress, audit.ProgressOf(state))
	l.mu.Unlock()
	return l.Ledger.SaveSweep(ctx, fence, state)
}

// sweepName is the name that the process holds that sweeps.
const sweepName = "activityd/audit-sweep"

// once returns what a process sweeps with, and has it recorded when it stands by.
func (r *recorder) once(store once.Store, n *notify.Notifier) *once.Once {
	return once.New(store, once.Options{Notifier: n, Hooks: once.Hooks{Locked: func(string, once.State) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.stoodBy++
	}}})
}

// A read never waits for the audit, be it ever so slow.
func TestSamplingNeverBlocks(t *testing.T) {
	r := record(t)
	p := audit.NewPatrol(audit.PatrolOptions{Share: 1}) // and nobody runs it
	for range 10_000 {
		p.Note(viewer)
	}
	if r.dropped() < 9_000 || r.dropped() >= 10_000 {
		t.Errorf("%d of 10000 samples were dropped, want all but a few hundred", r.dropped())
	}
}

func TestTheShareOfReads(t *testing.T) {
	const waiting = 256 // samples are not dropped but wait
	for _, c := range []struct {
		share              float64
		reads, least, most int
	}{{0, 1_000_000, 0, 0}, {0.001, 1_000_000, 800, 1200}, {0.2, 10_000, 1800, 2200}, {1, 1000, 1000, 1000}} {
		r := record(t)
		p := audit.NewPatrol(audit.PatrolOptions{Share: c.share})
		for range c.reads {
			p.Note(viewer)
		}
		if sampled := r.dropped() + waiting; sampled < c.least || sampled > max(c.most, waiting) {
			t.Errorf("%d of %d reads were sampled, want %d to %d", sampled, c.reads, c.least, c.most)
		}
	}
}

func TestReadsAreCheckedAndRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.upload(20, 300)
		log, r := &logged{}, record(t)
		p := audit.NewPatrol(audit.PatrolOptions{Auditor: b.Auditor, Share: 1, Repair: true, Log: log.logger()})
		stop := running(t, p.Run)
		p.Note(viewer)
		p.Note(viewer)
		<-time.After(10 * time.Second)
		stop()
		if r.reads() != 1 || r.answers() != 1 || r.enqueued() != 1 || r.deferred() != 0 {
			t.Errorf("%d sets and %d answers were checked, %d refills enqueued, %d left", r.reads(), r.answers(), r.enqueued(), r.deferred())
		}
		list, err := b.queue.List(context.Background(), queue.Filter{}, 10)
		must(t, err)
		if len(list) != 1 || list[0].Kind != tasks.Refill || list[0].Key != uint64(viewer) {
			t.Errorf("tasks %+v", list)
		}
		if text := log.String(); !strings.Contains(text, `cause="stale score" count=1 example="error: stale score of user 1, contact 20, scored 1970-01-01 00:03:20, which uploaded at 1970-01-01 00:05:00"`) {
			t.Errorf("the log says %s", text)
		}
	})
}

// An emptied Redis is neither a flood of tasks nor one of lines.
func TestRepairsAndLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for id := member.ID(1000); id < 1200; id++ {
			b.store.AddMember(id, "one more")
			b.store.SetContact(id, 15, false, false)
		}
		log, r := &logged{}, record(t)
		p := audit.NewPatrol(audit.PatrolOptions{
			Auditor: b.Auditor, Share: 1, Repair: true, RepairsPerMinute: 30, Log: log.logger(),
		})
		stop := running(t, p.Run)
		for id := member.ID(1000); id < 1200; id++ {
			p.Note(id)
		}
		<-time.After(50 * time.Second)
		enqueued := r.enqueued() // 30 at once, and half a one each second
		if r.reads() != 200 || enqueued < 30 || enqueued > 55 || r.deferred() != 200-enqueued {
			t.Errorf("checked %d, enqueued %d", r.reads(), enqueued)
		}
		if n := strings.Count(log.String(), "lost set"); n != 2 { // of one line: the cause and the example
			t.Errorf("%d mentions in the log: %s", n, log.String())
		}
		<-time.After(20 * time.Second) // the rest is told after a minute
		if text := log.String(); strings.Count(text, "count=") != 2 || !strings.Contains(text, "count=150") {
			t.Errorf("the log says %s", text)
		}
		p.Note(1199)
		<-time.After(5 * time.Second)
		if n := r.enqueued(); n != enqueued+1 {
			t.Errorf("in the next minute %d, want one more than %d", n, enqueued)
		}
		stop()
	})
}

func TestNothingIsRepairedUnlessAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.upload(20, 300)
		r := record(t)
		p := audit.NewPatrol(audit.PatrolOptions{Auditor: b.Auditor, Share: 1, Log: (&logged{}).logger()})
		stop := running(t, p.Run)
		p.Note(viewer)
		<-time.After(5 * time.Second)
		stop()
		if list, err := b.queue.List(context.Background(), queue.Filter{}, 10); err != nil || len(list) != 0 || r.reads() != 1 {
			t.Errorf("tasks %+v, %v; checked %d", list, err, r.reads())
		}
	})
}

// A server that is away is told of once, and asked less and less.
func TestThePatrolStandsStillInAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		log, away := &logged{}, &truth{Memory: b.store, fail: func([]member.ID) error { return mysql.ErrUnavailable }}
		a := audit.New(audit.Options{Sets: b.index, Truth: away, Tasks: b.queue})
		p := audit.NewPatrol(audit.PatrolOptions{Auditor: a, Share: 1, Log: log.logger()})
		stop := running(t, p.Run)
		end := time.Now().Add(10 * time.Minute)
		for time.Now().Before(end) {
			p.Note(viewer)
			<-time.After(100 * time.Millisecond)
		}
		stop()
		if away.asked < 15 || away.asked > 30 {
			t.Errorf("asked %d times in ten minutes", away.asked)
		}
		if n := strings.Count(log.String(), "stands still"); n != 1 {
			t.Errorf("told %d times: %s", n, log.String())
		}
	})
}

// patrolOf returns a patrol that sweeps fast, and has it recorded.
func (g *ground) patrolOf(r *recorder, o audit.PatrolOptions) *audit.Patrol {
	o.Auditor, o.Members, o.EachStored, o.Ledger = g.Auditor, g.store, g.index.EachStored, recorded{index.NewLedger(g.client), r}
	o.Once, o.LostAt = r.once(g.locks, g.notifier), g.index.LostAt
	if o.Build == nil {
		builder := &bulk.Builder{Index: g.index, Refiller: &tasks.RefillHandler{Index: g.index, Store: g.store}}
		o.Build = builder.Build
	}
	o.Tick, o.Round = 20*time.Millisecond, cmp.Or(o.Round, time.Millisecond)
	if o.Lease == 0 {
		o.Lease = 300 * time.Millisecond
	}
	return audit.NewPatrol(o)
}

func TestTheSweepVisitsEveryoneAndNobody(t *testing.T) {
	g := inMemory(t)
	viewers, owners := from(100, 250), from(1000, 20)
	g.settle(t, viewers, owners, 8)
	g.work(t)
	must(t, g.client.Del(t.Context(), "user_107", "user_349").Err())
	must(t, g.client.Do(t.Context(), "ZADD", "user_7777", 5, "1000").Err())
	r, log := record(t), &logged{}
	stop := running(t, g.patrolOf(r, audit.PatrolOptions{Rate: 5000, Repair: true, Log: log.logger()}).Run)
	eventually(t, "a round ends", func() bool { return r.rounds() > 0 })
	eventually(t, "what is wrong is mended", func() bool {
		return g.client.Exists(t.Context(), "user_107", "user_349").Val() == 2 && g.client.Exists(t.Context(), "user_7777").Val() == 0
	})
	stop()
	if r.sweeps() < 271 {
		t.Errorf("%d sets were checked, want those of all 270 members and the orphan", r.sweeps())
	}
	most := audit.Progress{}
	for _, p := range r.steps() {
		if p.Done > most.Done {
			most = p
		}
	}
	if most.Done != 270 || most.Total != 270 {
		t.Errorf("the progress ended at %+v", most)
	}
}

// A process that stops leaves the sweep where it is to the next one.
func TestTheSweepIsResumed(t *testing.T) {
	g := inMemory(t)
	g.settle(t, from(100, 900), from(1000, 20), 8)
	first, second := record(t), record(t)
	must(t, g.client.Set(t.Context(), "activityd_{sweep}_state", oldRound, 0).Err()) // it does not hurry
	stop := running(t, g.patrolOf(first, audit.PatrolOptions{Rate: 200, Log: (&logged{}).logger()}).Run)
	var kept audit.Progress
	someIsKept := func() bool {
		state, err := g.client.Get(t.Context(), "activityd_{sweep}_state").Bytes()
		kept = audit.ProgressOf(string(state))
		return err == nil && kept.Done > 0
	}
	eventually(t, "it is kept that some were swept", someIsKept)
	stop()
	if !someIsKept() { // where it was stopped may be further than where it was seen before
		t.Fatal("what was swept is not kept any more")
	}
	stop = running(t, g.patrolOf(second, audit.PatrolOptions{Rate: 5000, Log: (&logged{}).logger()}).Run)
	eventually(t, "the round ends", func() bool { return second.rounds() > 0 })
	stop()
	went := second.steps()[0]
	if !went.Began.Equal(kept.Began) || went.Done <= kept.Done {
		t.Errorf("went on at %+v, want a round that began at %v and had done %d", went, kept.Began, kept.Done)
	}
}

// Of two processes one sweeps; when it is stopped, the other one goes on, without waiting
// for the end of the lease.
func TestOneOfTwoSweeps(t *testing.T) {
	g := onMySQL(t)
	g.settle(t, from(100, 50), from(1000, 20), 8)
	recorders := []*recorder{record(t), record(t)}
	stops := make([]func(), 2)
	for i, r := range recorders {
		stops[i] = running(t, g.patrolOf(r, audit.PatrolOptions{Rate: 500, Lease: time.Hour, Log: (&logged{}).logger()}).Run)
		eventually(t, "it has looked who sweeps", func() bool { return len(r.steps()) > 0 || r.standsBy() })
	}
	eventually(t, "many are swept", func() bool { return recorders[0].sweeps() > 700 })
	if n := len(recorders[1].steps()); n != 0 {
		t.Errorf("both sweep: the second one took %d steps", n)
	}
	stops[0]()
	eventually(t, "the other goes on", func() bool { return len(recorders[1].steps()) > 0 })
	stops[1]()
}

// A site with next to nobody is not swept all the time.
func TestASmallSiteRests(t *testing.T) {
	g := inMemory(t)
	r := record(t)
	g.watch(t)
	stop := running(t, g.patrolOf(r, audit.PatrolOptions{Rate: 50, Round: time.Hour, Log: (&logged{}).logger()}).Run)
	eventually(t, "some time passes", func() bool { return g.marks(t) > 2 && len(r.steps()) > 0 })
	if n := len(r.steps()); n == 0 || n > 10 {
		t.Errorf("%d steps of a sweep over nobody", n)
	}
	must(t, g.client.FlushAll(t.Context()).Err())
	before := len(r.steps())
	eventually(t, "bad news end the rest", func() bool { return len(r.steps()) > before })
	stop()
}

// A Redis that comes back with older data is noticed, and all sets are built, though the
// sweep would take hours by itself.
func TestARestoredSnapshotIsNoticedAndMended(t *testing.T) {
	g := inMemory(t)
	viewers, owners := from(100, 300), from(1000, 20)
	g.settle(t, viewers, owners, 8)
	stopWork := g.work(t)
	g.watch(t)
	r, log := record(t), &logged{}
	running(t, g.patrolOf(r, audit.PatrolOptions{Rate: 1, Repair: true, RepairsPerMinute: 1, Log: log.logger()}).Run)
	eventually(t, "a round that knew nothing ended", func() bool { return g.index.LostAt() > 0 && r.rounds() > 0 })
	must(t, g.client.Save(t.Context()).Err())
	for i, owner := range owners {
		_, err := g.site.Upload(t.Context(), photoOf(owner, 5_000_000-uint64(i)))
		must(t, err)
	}
	g.quiet(t)
	report, err := g.Check(t.Context(), viewers)
	must(t, err)
	found(t, report)
	stopWork()
	lost := g.index.LostAt()
	must(t, g.redis.Kill())
	must(t, g.redis.Restart(t.Context()))
	eventually(t, "Redis answers", func() bool { return g.client.Ping(t.Context()).Err() == nil })
	eventually(t, "the loss is noticed", func() bool { return g.index.LostAt() > lost })
	eventually(t, "all sets are built", func() bool {
		report, err = g.Check(t.Context(), viewers)
		must(t, err)
		return report.Checked == len(viewers) && len(report.Findings) == 0
	})
	eventually(t, "it is logged", func() bool {
		return strings.Count(log.String(), "missing sets rebuilt") >= 2
	})
	if r.built() < len(viewers) || r.rose(`erroneous_total{origin="sweep"}`) != 0 || r.enqueued()+r.deferred() != 0 {
		t.Errorf("%d sets were built, and some were called wrong: %s", r.built(), log.String())
	}
}

func photoOf(owner member.ID, date uint64) site.Photo {
	return site.Photo{Owner: owner, Visibility: contacts.Public, DateUpload: date}
}
