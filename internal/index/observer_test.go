package index_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/member"
)

// recorder remembers what an observer is told.
type recorder struct {
	mu      sync.Mutex
	calls   []index.Operation
	errs    []error
	took    []time.Duration
	added   map[index.AddOutcome]int
	trimmed int
}

func (r *recorder) Called(op index.Operation, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls, r.errs, r.took = append(r.calls, op), append(r.errs, err), append(r.took, took)
}

func (r *recorder) Added(outcome index.AddOutcome, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.added == nil {
		r.added = make(map[index.AddOutcome]int)
	}
	r.added[outcome] += n
}

func (r *recorder) Trimmed(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trimmed += n
}

// observed runs a test against miniredis and a real Redis, with a recorder.
func observed(t *testing.T, test func(t *testing.T, b bench, r *recorder)) {
	t.Helper()
	for name, server := range map[string]*redis.Options{
		"miniredis": {Addr: miniredis.RunT(t).Addr()},
		"redis":     {Addr: servertest.Redis(t).Addr(), Network: "unix"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := &recorder{}
			test(t, newBench(t, server, index.Options{Observer: r}), r)
		})
	}
}

func TestObserverIsToldWhatAddsDid(t *testing.T) {
	t.Parallel()
	observed(t, func(t *testing.T, b bench, r *recorder) {
		b.refill(t, ladder(11))
		to := func(user member.ID, contact member.ID, score uint64) index.Addition {
			return index.Addition{User: user, Entry: index.Entry{Contact: contact, Score: score}}
		}
		_, err := b.Add(t.Context(), []index.Addition{
			to(user, 11, 1100), // unchanged: that very score
			to(user, 11, 1000), // unchanged: a lower one
			to(user, 11, 1200), // rises
			to(user, 22, 50),   // outside
			to(user, 20, 2000), // new: now there are max
			to(user, 21, 2100), // new: the lowest goes
			to(user, 22, 50),   // new, and the lowest: it goes itself
			to(77, 1, 100), to(78, 1, 100),
		})
		if err != nil {
			t.Fatal(err)
		}
		want := map[index.AddOutcome]int{
			index.AddUnchanged: 1, index.AddBelow: 1, index.AddTaken: 2, index.AddTrimmed: 2, index.AddOutside: 1, index.AddMissing: 2,
		}
		if diff := cmp.Diff(want, r.added); diff != "" || r.trimmed != 2 {
			t.Errorf("trimmed %d, want 2; outcomes (-want +got):\n%s", r.trimmed, diff)
		}
	})
}

func TestObserverIsToldWhatAppliesTrim(t *testing.T) {
	t.Parallel()
	observed(t, func(t *testing.T, b bench, r *recorder) {
		b.refill(t, ladder(10))
		if r.trimmed != 0 {
			t.Fatalf("trimmed %d of ten, want none", r.trimmed)
		}
		// 5 more than max by the refill, and one by the add.
		var list []index.Entry
		for i := uint64(1); i <= 7; i++ {
			list = append(list, index.Entry{Contact: member.ID(100 + i), Score: 10_000 + i})
		}
		c := index.Change{Update: b.begin(t), WithRefill: true, Refill: list, Add: entries(200, 20_000)}
		if got := b.apply(t, c); got != index.Applied || r.trimmed != 6 {
			t.Errorf("%v, trimmed %d, want 6", got, r.trimmed)
		}
		if got := b.apply(t, c); got != index.Conflict || r.trimmed != 6 {
			t.Errorf("the same again: %v, trimmed %d, want a conflict that trims nothing", got, r.trimmed)
		}
	})
}

func TestObserverIsToldOfEveryCall(t *testing.T) {
	t.Parallel()
	mini := miniredis.RunT(t)
	r := &recorder{}
	b := newBench(t, &redis.Options{Addr: mini.Addr()}, index.Options{Observer: r})
	b.refill(t, ladder(2))
	b.add(t, 3, 300)
	if _, err := b.Candidates(t.Context(), 999); !errors.Is(err, index.ErrMissing) {
		t.Fatal(err)
	}
	mini.Close()
	if err := b.Check(t.Context()); !errors.Is(err, index.ErrUnavailable) {
		t.Fatal(err)
	}
	want := []index.Operation{index.OpBegin, index.OpApply, index.OpAdd, index.OpCandidates, index.OpCheck}
	if !slices.Equal(r.calls, want) {
		t.Fatalf("told of %v, want %v", r.calls, want)
	}
	if !errors.Is(r.errs[3], index.ErrMissing) || !errors.Is(r.errs[4], index.ErrUnavailable) {
		t.Errorf("errors %v", r.errs)
	}
	for i, took := range r.took {
		if took <= 0 {
			t.Errorf("%s took %v", r.calls[i], took)
		}
	}
}

// An add that leaves a trace lets the guarded update under way go on; any other one
// calls it off. See "What leaves no trace" in the package comment.
func TestOnlyAddsThatLeaveATraceLetUpdatesGoOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		b.refill(t, ladder(12))
		for _, c := range []struct {
			contact member.ID
			score   uint64
			want    index.Outcome
		}{
			{12, 1200, index.Conflict}, // unchanged
			{12, 1100, index.Conflict}, // below
			{12, 1300, index.Applied},  // rose
			{99, 99, index.Conflict},   // outside
			{98, 900, index.Conflict},  // trims
		} {
			u := b.begin(t)
			b.add(t, c.contact, c.score)
			if got := b.apply(t, index.Change{Update: u}); got != c.want {
				t.Errorf("after an add of %d at %d: %v, want %v", c.contact, c.score, got, c.want)
			}
		}
	})
}
