package check

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/queue"
)

// swept returns the result of a task of the sweep, and the next task.
func swept(t *testing.T, p *Patrol, n queue.New) (next queue.New, args tasks.RangeArgs, err error) {
	t.Helper()
	o := p.Handle(t.Context(), []queue.Task{{Kind: n.Kind, Payload: n.Payload}})[0]
	if len(o.Next) != 1 {
		t.Fatalf("%d follow-ups, %v", len(o.Next), o.Err)
	}
	args, err = tasks.ArgsOf[tasks.RangeArgs](queue.Task{Payload: o.Next[0].Payload})
	must(t, err)
	return o.Next[0], args, o.Err
}

func (b *bench) patrol(log *logtest.Log, rate int) *Patrol {
	return NewPatrol(PatrolOptions{Checker: b.Checker, Rate: rate, Log: log.Logger()})
}

// A round goes through all members at the rate, names a member that MySQL fails for, mends what is wrong, and is
// followed by the next round.
func TestARoundOfTheSweep(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &logtest.Log{}
	for id := member.ID(1000); id < 1200; id++ {
		b.store.AddMember(id, "one more")
	}
	b.upload(20, 300)
	b.Truth = &failing{Truth: b.store, at: 1150}
	p := b.patrol(log, 10_000)
	n, seen := tasks.NewCheckRange(tasks.RangeArgs{}), int64(0)
	for pages := 0; ; pages++ {
		next, args, err := swept(t, p, n)
		must(t, err)
		if next.DedupeKey != n.DedupeKey || next.Delay <= 0 {
			t.Errorf("the next task has the key %q and waits %v", next.DedupeKey, next.Delay)
		}
		if args.Began.IsZero() { // the next round
			if seen != 200 || pages != 2 || next.Delay < 9*time.Second {
				t.Errorf("after %d pages and %d members: %+v, in %v", pages, seen, args, next.Delay)
			}
			break
		}
		if args.Seen <= seen {
			t.Errorf("%+v after %d members", args, seen)
		}
		n, seen = next, args.Seen
	}
	list, err := b.queue.List(t.Context(), queue.Filter{}, 10)
	must(t, err)
	if len(list) != 1 || list[0].Key != uint64(viewer) || list[0].Kind != tasks.Refill {
		t.Errorf("tasks %+v", list)
	}
	for _, want := range []string{`msg="members not compared" count=1 "such as"=1150`, `msg="audit finding" cause="stale score"`} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("the log lacks %s: %s", want, log.String())
		}
	}
}

// failing is MySQL that gives up at a member, or at all.
type failing struct {
	Truth
	at  member.ID
	err error
}

func (f *failing) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	for _, id := range users {
		if id == f.at || f.err != nil {
			return nil, errors.Join(errors.New("maximum statement execution time exceeded"), f.err)
		}
	}
	return f.Truth.TopContacts(ctx, users, limit)
}

// An error of all members is none of theirs: the page comes again, and the chain goes on if that is given up.
func TestAnErrorOfAllIsTheTasks(t *testing.T) {
	t.Parallel()
	for _, failure := range []error{errors.New("no such table"), mysql.ErrUnavailable} {
		b, log := newBench(t), &logtest.Log{}
		b.Truth = &failing{Truth: b.store, err: failure}
		_, args, err := swept(t, b.patrol(log, 8), tasks.NewCheckRange(tasks.RangeArgs{Began: time.Now()}))
		if err == nil || args.Seen != 11 && args.Seen != 0 || strings.Contains(log.String(), "not compared") {
			t.Errorf("%v: %v, %+v, %s", failure, err, args, log.String())
		}
	}
}

// The sets of a node that is away are left out, counted and logged; the rest are compared.
func TestTheSweepPassesANodeThatIsAway(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &logtest.Log{}
	b.upload(20, 300)
	b.index.FailIf = func(_ string, user member.ID) (bool, error) {
		if user%2 == 0 {
			return false, index.ErrUnavailable
		}
		return true, nil
	}
	_, _, err := swept(t, b.patrol(log, 100), tasks.NewCheckRange(tasks.RangeArgs{}))
	must(t, err)
	if list, err := b.queue.List(t.Context(), queue.Filter{}, 10); err != nil || len(list) != 1 || !strings.Contains(log.String(), `msg="members not compared" count=5`) {
		t.Errorf("tasks %+v, %v; %s", list, err, log.String())
	}
}

// A lost set that a range will build is lag; a set outside the range is not.
func TestALostSetWaitsForItsRange(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.index.Forget(viewer)
	ranges, err := tasks.NewRefillRanges(t.Context(), b.store, 2, math.MaxUint64, false, 0)
	must(t, err)
	b.enqueue(t, ranges...)
	found(t, b.check(t), "error lost set")
	ranges, err = tasks.NewRefillRanges(t.Context(), b.store, 1, math.MaxUint64, false, 0)
	must(t, err)
	b.enqueue(t, ranges...)
	found(t, b.check(t), "lag lost set")
}

// Of two processes on real servers, one sweep runs: it mends sets that no read meets. After a loss a single backfill builds
// all sets. A read that is sampled is mended as well.
func TestPatrolsOfTwoProcesses(t *testing.T) {
	t.Parallel()
	g := onServers(t)
	g.settle(t, quietViewers[:300], quietOwners, 8)
	g.settle(t, livelyViewers[:1], quietOwners, 8)
	var lostAt [2]atomic.Int64
	counted := &countedRanges{Tasks: g.queue}
	g.Tasks = counted
	for i := range lostAt {
		p := NewPatrol(PatrolOptions{Checker: g.Checker, Rate: 2000, Share: 1, Build: true, LostAt: lostAt[i].Load, Log: (&logtest.Log{}).Logger()})
		p.tick, p.round = 10*time.Millisecond, time.Millisecond
		g.work(t, p)
		running(t, p.Run)
	}
	lower := func(id member.ID) func() bool {
		key := index.UserKey(id)
		top := g.client.ZRevRangeWithScores(t.Context(), key, 0, 0).Val()[0]
		must(t, g.client.ZAdd(t.Context(), key, redis.Z{Score: 1, Member: top.Member}).Err())
		return func() bool { return g.client.ZScore(t.Context(), key, fmt.Sprint(top.Member)).Val() == top.Score }
	}
	for round := range 3 {
		eventually(t, "the sweep mends the set", lower(quietViewers[100*round]))
		sweeps, err := tasks.UnfinishedRanges(t.Context(), g.queue, tasks.CheckRange)
		must(t, err)
		if len(sweeps) > 2 { // two processes may have begun a sweep each
			t.Errorf("%d sweeps", len(sweeps))
		}
	}
	must(t, g.client.FlushAll(t.Context()).Err())
	_, err := g.queue.Pause(t.Context(), tasks.QueueBackfill)
	must(t, err)
	lostAt[0].Store(time.Now().UnixMilli())
	eventually(t, "a backfill has begun", func() bool { return counted.n.Load() > 0 })
	lostAt[1].Store(time.Now().Add(time.Second).UnixMilli()) // it notices later
	counted.looksOn(t)
	_, err = g.queue.Resume(t.Context(), tasks.QueueBackfill)
	must(t, err)
	eventually(t, "all sets are built", func() bool {
		keys, err := g.client.Keys(t.Context(), "user_*").Result()
		must(t, err)
		return len(keys) == 301
	})
	eventually(t, "the backfill is over", func() bool {
		ranges, err := tasks.UnfinishedRanges(t.Context(), g.queue, tasks.RefillRange)
		must(t, err)
		return len(ranges) == 0
	})
	counted.looksOn(t)
	if n := counted.n.Load(); n != 1 {
		t.Errorf("%d backfills", n)
	}
	eventually(t, "one sweep is left", func() bool {
		sweeps, err := tasks.UnfinishedRanges(t.Context(), g.queue, tasks.CheckRange)
		must(t, err)
		return len(sweeps) == 1
	})
}

// countedRanges counts the backfills that are enqueued, and the looks at the queue.
type countedRanges struct {
	Tasks
	n, looks atomic.Int64
}

// looksOn waits for some more looks of all patrols.
func (c *countedRanges) looksOn(t *testing.T) {
	t.Helper()
	before := c.looks.Load()
	eventually(t, "the patrols look at the queue", func() bool { return c.looks.Load() >= before+20 })
}

func (c *countedRanges) List(ctx context.Context, f queue.Filter, limit int) ([]queue.Record, error) {
	c.looks.Add(1)
	return c.Tasks.List(ctx, f, limit)
}

func (c *countedRanges) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	ids, err := c.Tasks.Enqueue(ctx, batch)
	if batch[0].Kind == tasks.RefillRange {
		c.n.Add(1)
	}
	return ids, err
}

// A sampled read is checked with its answer.
func TestASampledReadIsMended(t *testing.T) {
	t.Parallel()
	b, log := newBench(t), &logtest.Log{}
	b.upload(20, 300)
	p := NewPatrol(PatrolOptions{Checker: b.Checker, Share: 1, LostAt: func() int64 { return 0 }, Log: log.Logger()})
	running(t, p.Run)
	p.Note(viewer)
	eventually(t, "a refill is enqueued", func() bool {
		list, err := b.queue.List(t.Context(), queue.Filter{Kinds: []string{tasks.Refill}}, 10)
		must(t, err)
		return len(list) == 1
	})
	for range 2 * maxSamples { // there is no room for all
		p.Note(viewer)
	}
}
