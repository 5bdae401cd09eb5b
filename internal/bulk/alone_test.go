package bulk_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// locks is a store of locks in memory, that fails.
type locks struct {
	*oncetest.Memory
	away  atomic.Bool
	lossy bool // while it is away, names are acquired, and the answers lost
}

func (l *locks) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	if l.away.Load() {
		if l.lossy && op.Action == once.Acquire {
			_, _ = l.Memory.Apply(ctx, name, op)
		}
		return once.Reply{}, once.ErrUnavailable
	}
	return l.Memory.Apply(ctx, name, op)
}

// take holds a name as another process does that dies at once.
func (l *locks) take(t *testing.T, name, owner string) {
	t.Helper()
	r, err := l.Memory.Apply(context.Background(), name, once.Operation{
		Action: once.Acquire, Owner: owner, Terms: once.Terms{Lease: once.DefaultLease, Keep: time.Hour},
	})
	must(t, err)
	if r.Outcome != once.OK {
		t.Fatalf("take %s: %+v", name, r)
	}
}

const allName = "activityd/backfill/all"

// alone is a job that visits a hundred members a second, and no more.
func (s servers) alone(store once.Store, within bulk.Range) bulk.Job {
	fine := func(context.Context) error { return nil }
	return bulk.Job{
		Work: bulk.Work{Command: "backfill", Members: within.String()}, Range: within, Store: s, Generations: s, Reporter: s, Parallel: 1, Rate: 100,
		Schema: fine, Settings: fine, Visit: s.Visit, Writes: true, Once: once.New(store, once.Options{}),
	}
}

type ended struct {
	bulk.Result
	err error
}

func start(ctx context.Context, j bulk.Job) <-chan ended {
	result := make(chan ended, 1)
	go func() {
		r, err := j.Run(ctx)
		result <- ended{r, err}
	}()
	return result
}

// wantAll checks that a job visited all members, and counted each once.
func (s servers) wantAll(t *testing.T, e ended) {
	t.Helper()
	if n := int64(len(s.members)); e.err != nil || e.Counts["members"] != n || int64(len(s.visited)) != n {
		t.Errorf("%v: %d members counted, %d visited, want %d", e.err, e.Counts["members"], len(s.visited), n)
	}
}

func TestTheSecondOfTwoIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		first, second := servers{newWorld(6000)}, servers{newWorld(6000)}
		store := &locks{Memory: oncetest.NewMemory(time.Now)}
		result := start(t.Context(), first.alone(store, bulk.All))
		<-time.After(10 * time.Second)
		asked := time.Now()
		r, err := second.alone(store, bulk.All).Run(t.Context())
		if took := time.Since(asked); took > 0 || r.Counts != nil || len(second.visited) > 0 || !errors.Is(err, once.ErrBusy) {
			t.Fatalf("after %v: %+v, %v; %d members visited", took, r, err, len(second.visited))
		}
		host, err2 := os.Hostname()
		must(t, err2)
		for _, want := range []string{
			"activityd backfill of all members is under way already", host + "/" + strconv.Itoa(os.Getpid()) + "@20",
			"wait for it, or stop it: if it has died, its name is free within 30s",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%q lacks %q", err, want)
			}
		}
		// Other ranges, and what only reads, are free.
		if r, err := second.alone(store, bulk.Range{First: 1, Last: 100}).Run(t.Context()); err != nil || r.Counts["members"] == 0 {
			t.Errorf("another range: %+v, %v", r, err)
		}
		reading := second.alone(store, bulk.All)
		reading.Writes = false
		if _, err := reading.Run(t.Context()); err != nil {
			t.Errorf("one that only reads: %v", err)
		}
		first.wantAll(t, <-result)
		if _, err := second.alone(store, bulk.All).Run(t.Context()); err != nil {
			t.Errorf("after the end of the first: %v", err)
		}
	})
}

// What a signal stops is free at once, what died when its lease ends.
func TestTheNameOfAJobThatEndedIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, store := servers{newWorld(3000)}, &locks{Memory: oncetest.NewMemory(time.Now)}
		ctx, stop := context.WithCancel(t.Context())
		result := start(ctx, s.alone(store, bulk.All))
		<-time.After(10 * time.Second)
		stop()
		stopped := <-result
		if !errors.Is(stopped.err, bulk.ErrStopped) || stopped.Position == 0 {
			t.Fatalf("%+v", stopped)
		}
		store.take(t, allName, "db7/12/x")
		j := s.alone(store, bulk.All)
		j.After = stopped.Position
		for _, waits := range []time.Duration{0, once.DefaultLease - time.Millisecond} {
			<-time.After(waits)
			if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "another process works on it: db7/12, in attempt ") {
				t.Fatalf("while it is held: %v", err)
			}
		}
		<-time.After(time.Millisecond)
		r, err := j.Run(t.Context())
		if n := r.Counts["members"] + stopped.Counts["members"]; err != nil || n != 3000 {
			t.Errorf("%v: %d members in both runs", err, n)
		}
	})
}

// An outage of MySQL ends nothing, however long, and the job is not refused by a lease of
// its own.
func TestAJobOutlastsMySQL(t *testing.T) {
	t.Parallel()
	for i, outage := range []time.Duration{5 * time.Second, 15 * time.Second, 22 * time.Second, 29 * time.Second, 31 * time.Second, 40 * time.Second, time.Hour, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			s, store := servers{newWorld(9000)}, &locks{Memory: oncetest.NewMemory(time.Now), lossy: i%2 == 1}
			s.visit = func(context.Context, []member.ID) ([]member.ID, error) {
				if store.away.Load() {
					return nil, mysql.ErrUnavailable
				}
				return nil, nil
			}
			result := start(t.Context(), s.alone(store, bulk.All))
			<-time.After(12 * time.Second)
			store.away.Store(true)
			<-time.After(outage)
			store.away.Store(false)
			<-time.After(5*time.Second + once.DefaultLease)
			other := servers{newWorld(10)}
			if _, err := other.alone(store, bulk.All).Run(t.Context()); !errors.Is(err, once.ErrBusy) {
				t.Errorf("after %v another one: %v", outage, err)
			}
			s.wantAll(t, <-result)
			r, err := store.Get(t.Context(), allName)
			must(t, err)
			if r.State.Phase != once.Free {
				t.Errorf("after %v in the end: %+v", outage, r.State)
			}
		})
	}
}

// A process that is cut off from MySQL for so long that another one begins the same job
// ends when it finds out. It visits no member while the other one does, and its checkpoint
// is valid.
func TestAJobThatAnotherProcessHasTaken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, store := servers{newWorld(6000)}, &locks{Memory: oncetest.NewMemory(time.Now)}
		s.visit = func(context.Context, []member.ID) ([]member.ID, error) {
			if store.away.Load() {
				<-time.After(8 * time.Second)
			}
			return nil, nil
		}
		result := start(t.Context(), s.alone(store, bulk.All))
		<-time.After(12 * time.Second)
		store.away.Store(true) // for it
		<-time.After(once.DefaultLease + time.Millisecond)
		s.mu.Lock()
		visited := len(s.visited)
		s.mu.Unlock()
		other := servers{newWorld(60_000)}
		otherResult := start(t.Context(), other.alone(store.Memory, bulk.All))
		<-time.After(time.Minute)
		store.away.Store(false)
		back := time.Now()
		e := <-result
		if !errors.Is(e.err, once.ErrBusy) || !strings.Contains(e.err.Error(), "is under way already") || time.Since(back) > once.DefaultLease+10*time.Second {
			t.Errorf("after %v: %v", time.Since(back), e.err)
		}
		if n := len(s.visited); n != visited {
			t.Errorf("it visited %d members while the other one did", n-visited)
		}
		if done := e.Counts["members"]; done == 0 || int64(e.Position) != 3*(done-1)+1 {
			t.Errorf("the checkpoint is %+v", e.Checkpoint)
		}
		for _, id := range s.members {
			if id <= e.Position && s.visited[id] == 0 {
				t.Fatalf("the position is %s, and %s was not visited", e.Position, id)
			}
		}
		other.wantAll(t, <-otherResult)
	})
}

// firstLost is a store that acquires a name, and is killed before it answers: it is away
// for the release, too.
type firstLost struct {
	*oncetest.Memory
	calls atomic.Int32
}

func (l *firstLost) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	n := l.calls.Add(1)
	if n == 1 {
		_, _ = l.Memory.Apply(ctx, name, op)
	}
	if n <= 2 {
		return once.Reply{}, once.ErrUnavailable
	}
	return l.Memory.Apply(ctx, name, op)
}

// A job is not refused by a name that it acquired itself without learning of it.
func TestAJobWhoseFirstAnswerIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := servers{newWorld(100)}
		s.wantAll(t, <-start(t.Context(), s.alone(&firstLost{Memory: oncetest.NewMemory(time.Now)}, bulk.All)))
	})
}

// lossNoticed is a reporter that calls a function when the lease was lost, or cannot be
// acquired again.
type lossNoticed struct {
	servers
	lost func()
}

func (l lossNoticed) Trouble(err error) {
	if errors.Is(err, once.ErrLost) || errors.Is(err, once.ErrUnavailable) {
		l.lost()
	}
}

// As TestAJobOutlastsMySQL, with a MySQL that is killed.
func TestAJobOutlastsARealMySQL(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	db, err := mysql.Open(server.DSN(servertest.Database))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	existing := contacts.NewMySQL(db).Existing
	s := servers{newWorld(3000)}
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	s.visit = func(ctx context.Context, members []member.ID) ([]member.ID, error) {
		begin()
		_, err := existing(ctx, members[:1])
		return nil, err
	}
	var killed atomic.Bool // a slow machine may lose the lease before
	lost := make(chan struct{})
	lose := sync.OnceFunc(func() { close(lost) })
	job := s.alone(once.NewMySQL(db), bulk.All)
	job.Rate, job.Lease, job.Reporter = 600, 3*time.Second, lossNoticed{s, func() {
		if killed.Load() {
			lose()
		}
	}}
	result := start(t.Context(), job)
	<-begun
	before, err := once.NewMySQL(db).Get(t.Context(), allName)
	must(t, err)
	must(t, server.Kill())
	killed.Store(true)
	<-lost
	must(t, server.Restart(t.Context()))
	s.wantAll(t, <-result)
	after, err := once.NewMySQL(db).Get(t.Context(), allName)
	must(t, err)
	if after.State.Fence <= before.State.Fence || after.State.Phase != once.Free {
		t.Errorf("before %+v, after %+v", before.State, after.State)
	}
}
