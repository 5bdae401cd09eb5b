package audit_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/once"
)

// oldRound is the state of a sweep that has just begun, and does not hurry.
const oldRound = `{"began":1,"total":11}`

// ledger is one in memory, that loses what a test wants.
type ledger struct {
	lost        atomic.Int64 // when Redis lost data
	mu          sync.Mutex
	state       string
	fence       uint64
	away        error          // of all calls
	stored      []member.ID    // each of them comes alone
	orphanPause time.Duration  // after each
	orphans     func(seen int) // before each; nil: nothing
}

func (l *ledger) EachStored(ctx context.Context, do func(context.Context, []member.ID) error) error {
	for i, user := range l.stored {
		if l.orphans != nil {
			l.orphans(i)
		}
		if err := do(ctx, []member.ID{user}); err != nil {
			return err
		}
		<-time.After(l.orphanPause)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

// fail makes all calls fail with err; nil: none.
func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = err
}

func (l *ledger) BeginSweep(_ context.Context, fence uint64) (state string, begun bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fence < l.fence || l.away != nil {
		return "", false, l.away
	}
	l.fence = fence
	return l.state, true, nil
}

func (l *ledger) SaveSweep(_ context.Context, fence uint64, state string) (saved bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if fence != l.fence || l.away != nil {
		return false, l.away
	}
	l.state = state
	return true, nil
}

// lose makes Redis lose data now.
func (l *ledger) lose() { l.lost.Store(time.Now().UnixMilli()) }

// set replaces what is kept of the sweep.
func (l *ledger) set(state string, fence uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state, l.fence = state, fence
}

// truth is one in memory, that counts and fails.
type truth struct {
	*contacts.Memory

	mu     sync.Mutex
	counts int
	asked  int
	fail   func(users []member.ID) error // nil: never
	count  func()                        // before members are counted
}

func (c *truth) CountMembers(ctx context.Context, first, last member.ID) (int64, error) {
	c.mu.Lock()
	c.counts++
	c.mu.Unlock()
	if c.count != nil {
		c.count()
	}
	return c.Memory.CountMembers(ctx, first, last)
}

func (c *truth) TopContacts(ctx context.Context, users []member.ID, limit int) (map[member.ID][]contacts.Contact, error) {
	c.mu.Lock()
	c.asked++
	fail := c.fail
	c.mu.Unlock()
	if fail != nil {
		if err := fail(users); err != nil {
			return nil, err
		}
	}
	return c.Memory.TopContacts(ctx, users, limit)
}

func (c *truth) failing(fail func(users []member.ID) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail = fail
}

// swept is a sweep over imitations, with what it told.
type swept struct {
	*recorder
	ledger *ledger
	truth  *truth
	locks  *locks
	log    *logged
	patrol *audit.Patrol
	build  bulk.Visit
}

// locks is a store of locks in memory, that fails.
type locks struct {
	*oncetest.Memory
	away atomic.Bool
}

func (l *locks) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	if l.away.Load() {
		return once.Reply{}, once.ErrUnavailable
	}
	return l.Memory.Apply(ctx, name, op)
}

// usurp gives the sweep to another process for an hour.
func (l *locks) usurp(t testing.TB) (fence once.Fence) {
	t.Helper()
	_, err := l.Forget(context.Background(), sweepName, true)
	must(t, err)
	r, err := l.Memory.Apply(context.Background(), sweepName, once.Operation{
		Action: once.Acquire, Owner: "another", Terms: once.Terms{Lease: time.Hour, Keep: time.Hour},
	})
	must(t, err)
	return r.State.Fence
}

// newSwept makes a site of the bench's members and of more.
func newSwept(b *bench, more int, o audit.PatrolOptions) *swept {
	for id := member.ID(1000); id < 1000+member.ID(more); id++ {
		b.store.AddMember(id, "one more")
	}
	s := &swept{recorder: record(b.t), ledger: &ledger{state: oldRound}, truth: &truth{Memory: b.store}, log: &logged{}}
	o.Auditor = audit.New(audit.Options{Sets: b.index, Truth: s.truth, Tasks: b.queue, Reader: b.reader, Pacer: bulk.NewPacer(bulk.PacerOptions{})})
	s.locks = &locks{Memory: oncetest.NewMemory(time.Now)}
	o.Members, o.EachStored, o.Ledger, o.Log = s.truth, s.ledger.EachStored, recorded{s.ledger, s.recorder}, s.log.logger()
	o.Once, o.LostAt = s.once(s.locks, nil), s.ledger.lost.Load
	if !b.activeOnly {
		builder := &bulk.Builder{Index: b.index, Refiller: &tasks.RefillHandler{Index: b.index.Memory, Store: s.truth}}
		o.Build = builder.Build
		s.build = builder.Build
	}
	s.patrol = audit.NewPatrol(o)
	return s
}

// last is where the sweep was last.
func (s *swept) last() (last audit.Progress) {
	for _, p := range s.steps() {
		last = p
	}
	return last
}

// hurriedSince reports whether a round hurried that began at t or within d after it.
func (s *swept) hurriedSince(t time.Time, d time.Duration) bool {
	return slices.ContainsFunc(s.steps(), func(p audit.Progress) bool {
		return p.Hurried && !p.Began.Before(t.Truncate(time.Millisecond)) && p.Began.Before(t.Add(d))
	})
}

// furthest is how many members a round has seen.
func (s *swept) furthest() (n int64) {
	for _, p := range s.steps() {
		n = max(n, p.Done)
	}
	return n
}
