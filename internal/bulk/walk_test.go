package bulk_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
)

var (
	errAway  = errors.New("away for a moment")
	errOwn   = errors.New("his contacts are too many")
	errFatal = errors.New("no such table")
)

// world is a site's members, and a visitor who notes whom it visited.
type world struct {
	members []member.ID

	mu      sync.Mutex
	visited map[member.ID]int
	visit   func(ctx context.Context, users []member.ID) (left []member.ID, err error) // nil: all goes well
}

func newWorld(n int) *world {
	w := &world{visited: map[member.ID]int{}}
	for i := range n {
		w.members = append(w.members, member.ID(3*i+1)) // with gaps
	}
	return w
}

func (w *world) Members(_ context.Context, after member.ID, limit int) ([]member.ID, error) {
	at, found := slices.BinarySearch(w.members, after)
	if found {
		at++
	}
	return slices.Clone(w.members[at:min(at+limit, len(w.members))]), nil
}

// Visit counts each member once it is done, by whether its id is even.
func (w *world) Visit(ctx context.Context, users []member.ID) (bulk.Counts, []member.ID, error) {
	var left []member.ID
	var err error
	if w.visit != nil {
		if left, err = w.visit(ctx, users); err != nil && len(left) == 0 {
			return nil, nil, err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := bulk.Counts{}
	for _, user := range users {
		if !slices.Contains(left, user) {
			w.visited[user]++
			counts["members"]++
		}
	}
	return counts, left, err
}

func (w *world) options(batch, parallel int) bulk.Walk {
	return bulk.Walk{
		Range: bulk.All, Source: w, Pacer: bulk.NewPacer(bulk.PacerOptions{Parallel: parallel}), Visit: w.Visit, Batch: batch,
		Judge: judge, Timeout: 2 * time.Minute, Grace: 10 * time.Second,
	}
}

func judge(err error) bulk.Fault {
	switch {
	case errors.Is(err, errAway):
		return bulk.Away
	case errors.Is(err, errOwn):
		return bulk.Own
	}
	return bulk.Fatal
}

// wantOnce checks that each of users was visited exactly once, and nobody else.
func (w *world) wantOnce(t *testing.T, users []member.ID) {
	t.Helper()
	want := map[member.ID]int{}
	for _, user := range users {
		want[user] = 1
	}
	if diff := cmp.Diff(want, w.visited); diff != "" {
		t.Errorf("visits (-want +got):\n%s", diff)
	}
}

func TestEveryMemberOfTheRangeIsVisitedOnce(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		within bulk.Range
		want   func(member.ID) bool
	}{
		{bulk.All, func(member.ID) bool { return true }},
		{bulk.Range{First: 31, Last: 90}, func(id member.ID) bool { return id >= 31 && id <= 90 }},
		{bulk.Range{First: 4, Last: 4}, func(id member.ID) bool { return id == 4 }},
		{bulk.Range{First: 5, Last: 6}, func(member.ID) bool { return false }},
		{bulk.Range{First: 1000, Last: math.MaxUint64}, func(member.ID) bool { return false }},
	} {
		for _, batch := range []int{1, 7, 100, 1000} {
			t.Run(fmt.Sprintf("%d-%d by %d", test.within.First, test.within.Last, batch), func(t *testing.T) {
				t.Parallel()
				w := newWorld(100)
				o := w.options(batch, 3)
				o.Range = test.within
				moved := 0
				o.Saved = func(n int, _ bulk.Checkpoint) error {
					moved += n
					return nil
				}
				state, err := o.Run(t.Context(), bulk.Checkpoint{})
				if err != nil {
					t.Fatal(err)
				}
				users := slices.DeleteFunc(slices.Clone(w.members), func(id member.ID) bool { return !test.want(id) })
				w.wantOnce(t, users)
				if n := len(users); moved != n || state.Counts["members"] != int64(n) || n > 0 && state.Position != users[n-1] {
					t.Errorf("moved %d, state %+v, want %d members", moved, state, n)
				}
			})
		}
	}
}

// The position waits for the slowest, and what is beyond it is not counted.
func TestThePositionWaitsForWhoIsBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(11_000)
		release := make(chan struct{})
		w.visit = func(_ context.Context, users []member.ID) ([]member.ID, error) {
			if users[0] == 31 {
				<-release
			}
			return nil, nil
		}
		o := w.options(10, 2)
		var states []bulk.Checkpoint
		o.Saved = func(_ int, s bulk.Checkpoint) error {
			states = append(states, s)
			return nil
		}
		ended := make(chan error, 1)
		go func() {
			_, err := o.Run(t.Context(), bulk.Checkpoint{})
			ended <- err
		}()
		synctest.Wait()
		if n := len(w.visited); n < 10_000 || n > 10_500 {
			t.Errorf("%d members were visited beside the slow batch: want many, but not all", n)
		}
		if want := (bulk.Checkpoint{Position: 28, Counts: bulk.Counts{"members": 10}}); !cmp.Equal(states[len(states)-1], want) {
			t.Errorf("state %+v, want %+v", states[len(states)-1], want)
		}
		close(release)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		w.wantOnce(t, w.members)
		if last := states[len(states)-1]; last.Position != 32_998 || last.Counts["members"] != 11_000 {
			t.Errorf("state %+v in the end", last)
		}
	})
}

// A server that is away for hours ends nothing.
func TestWhatMayPassIsTriedForAsLongAsItTakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, back := newWorld(300), time.Now().Add(10*time.Hour)
		w.visit = func(context.Context, []member.ID) ([]member.ID, error) {
			if time.Now().Before(back) {
				return nil, errAway
			}
			return nil, nil
		}
		o := w.options(50, 3)
		var troubles atomic.Int64
		o.Trouble = func(err error) {
			if !errors.Is(err, errAway) {
				t.Errorf("trouble: %v", err)
			}
			troubles.Add(1)
		}
		state, err := o.Run(t.Context(), bulk.Checkpoint{})
		if err != nil || state.Counts["members"] != 300 {
			t.Errorf("%+v, %v", state, err)
		}
		w.wantOnce(t, w.members)
		if late := time.Since(back); late > time.Minute {
			t.Errorf("it went on %v after the server was back", late)
		}
		if n := troubles.Load(); n == 0 || n > 6*10*3600/2 { // six batches, each at most every 2.5 s
			t.Errorf("%d tries in ten hours", n)
		}
	})
}

// Who fails alone, again and again, is found out and given up; all others are
// visited once, and the position goes by.
func TestWhoAlwaysFailsIsGivenUp(t *testing.T) {
	t.Parallel()
	for _, poisoned := range [][]member.ID{{1}, {301}, {1, 4, 7, 10, 13, 5998}} {
		t.Run(fmt.Sprint(poisoned), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, alone := newWorld(2000), map[member.ID]int{}
				w.visit = func(_ context.Context, users []member.ID) (left []member.ID, err error) {
					for _, user := range users {
						if slices.Contains(poisoned, user) {
							err = fmt.Errorf("contacts: %w", errOwn)
						}
					}
					if err != nil && len(users) == 1 {
						w.mu.Lock()
						alone[users[0]]++
						w.mu.Unlock()
					}
					return nil, err
				}
				o := w.options(10, 4)
				var mu sync.Mutex
				var failed []member.ID
				o.GaveUp = func(user member.ID, err error) {
					mu.Lock()
					defer mu.Unlock()
					failed = append(failed, user)
					if !errors.Is(err, errOwn) {
						t.Errorf("%s was given up because of %v", user, err)
					}
				}
				start := time.Now()
				state, err := o.Run(t.Context(), bulk.Checkpoint{})
				want := bulk.Checkpoint{Position: 5998, Counts: bulk.Counts{bulk.Failed: int64(len(poisoned)), "members": int64(2000 - len(poisoned))}}
				if err != nil || !cmp.Equal(state, want) {
					t.Errorf("%+v, %v, want %+v", state, err, want)
				}
				slices.Sort(failed)
				if !slices.Equal(failed, poisoned) {
					t.Errorf("given up: %v, want %v", failed, poisoned)
				}
				for _, user := range poisoned {
					if alone[user] != 10 {
						t.Errorf("%s was visited alone %d times, want 10", user, alone[user])
					}
				}
				if took := time.Since(start); took > 2*time.Minute {
					t.Errorf("it took %v", took)
				}
				w.wantOnce(t, slices.DeleteFunc(slices.Clone(w.members), func(id member.ID) bool { return slices.Contains(poisoned, id) }))
			})
		})
	}
}

// What fails for everybody is nobody's own.
func TestWhenAllAreGivenUpTheSweepEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(20_000)
		w.visit = func(context.Context, []member.ID) ([]member.ID, error) { return nil, errOwn }
		start, o := time.Now(), w.options(128, 4)
		var failed atomic.Int64
		o.GaveUp = func(member.ID, error) { failed.Add(1) }
		state, err := o.Run(t.Context(), bulk.Checkpoint{})
		if n := failed.Load(); err == nil || errors.Is(err, bulk.ErrStopped) || n < 1000 || n > 1000+5*128 || state.Position > 3*2000 {
			t.Errorf("%d were given up: %+v, %v", n, state, err)
		}
		if took := time.Since(start); took > 10*time.Minute {
			t.Errorf("it took %v", took)
		}
	})
}

// A try while a server is away does not count against anybody.
func TestNobodyIsGivenUpBecauseAServerIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, tries := newWorld(1), 0
		w.visit = func(context.Context, []member.ID) ([]member.ID, error) {
			tries++
			switch {
			case tries < 9:
				return nil, errOwn
			case tries < 200:
				return nil, errAway
			}
			return nil, nil
		}
		o := w.options(10, 1)
		o.GaveUp = func(user member.ID, err error) { t.Errorf("%s was given up: %v", user, err) }
		if _, err := o.Run(t.Context(), bulk.Checkpoint{}); err != nil {
			t.Error(err)
		}
		w.wantOnce(t, w.members)
	})
}

// A list that always takes too long ends the sweep: there is nobody to blame.
func TestAListThatAlwaysFailsEndsTheSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := newWorld(10).options(10, 1)
		o.Source = brokenSource{errOwn}
		if _, err := o.Run(t.Context(), bulk.Checkpoint{}); !errors.Is(err, errOwn) {
			t.Errorf("ended with %v", err)
		}
	})
}

// Members whose server is away are waited for by themselves: the others are visited, and
// one member of each batch asks whether it is back.
func TestAServerOfSomeMembersThatIsAway(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		patience time.Duration
		want     bulk.Counts
	}{
		"waited for":       {0, bulk.Counts{"members": 1000}},
		"waited for a bit": {time.Minute, bulk.Counts{"members": 667, bulk.Unreachable: 333}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(1000)
				back := time.Now().Add(10 * time.Minute)
				asked := 0
				w.visit = func(_ context.Context, users []member.ID) ([]member.ID, error) {
					left := slices.DeleteFunc(slices.Clone(users), func(id member.ID) bool { return id%9 != 4 || time.Now().After(back) })
					if len(left) == 0 {
						return nil, nil
					}
					if len(users) < 20 { // not for the first time
						asked += len(users)
					}
					return left, errAway
				}
				o := w.options(20, 1)
				o.Patience = test.patience
				ended := make(chan struct{})
				var state bulk.Checkpoint
				go func() {
					defer close(ended)
					var err error
					if state, err = o.Run(t.Context(), bulk.Checkpoint{}); err != nil {
						t.Error(err)
					}
				}()
				<-time.After(10 * time.Second)
				w.mu.Lock()
				if n := len(w.visited); n != 667 {
					t.Errorf("%d members were visited while a server was away, want those of the other servers", n)
				}
				w.mu.Unlock()
				<-ended
				if diff := cmp.Diff(test.want, state.Counts); diff != "" || state.Position != 2998 {
					t.Errorf("position %s, counts (-want +got):\n%s", state.Position, diff)
				}
				// At most one in two seconds for each of the fifty batches (pauses grow to 2.5 to
				// 5 s), and some at first.
				if most := 50 * (int(10*time.Minute/(2*time.Second)) + 10); asked > most {
					t.Errorf("members were asked for %d times while their server was away, want %d at most", asked, most)
				}
			})
		})
	}
}

// Those who are left are visited again, and only they.
func TestOnlyThoseWhoAreLeftAreVisitedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(100)
		var tries atomic.Int64
		w.visit = func(_ context.Context, users []member.ID) ([]member.ID, error) {
			if tries.Add(1) == 1 {
				return users[30:33], errAway
			}
			return nil, nil
		}
		state, err := w.options(100, 1).Run(t.Context(), bulk.Checkpoint{})
		if err != nil || state.Counts["members"] != 100 {
			t.Errorf("%+v, %v", state, err)
		}
		w.wantOnce(t, w.members)
	})
}

func TestOtherErrorsEndTheSweep(t *testing.T) {
	t.Parallel()
	w := newWorld(1000)
	w.visit = func(_ context.Context, users []member.ID) ([]member.ID, error) {
		if users[0] == 301 {
			return nil, errFatal
		}
		return nil, nil
	}
	state, err := w.options(10, 1).Run(t.Context(), bulk.Checkpoint{})
	if !errors.Is(err, errFatal) || state.Position != 298 || state.Counts["members"] != 100 {
		t.Errorf("%+v, %v", state, err)
	}
	o := w.options(10, 4)
	o.Saved = func(int, bulk.Checkpoint) error { return errFatal }
	if _, err := o.Run(t.Context(), bulk.Checkpoint{}); !errors.Is(err, errFatal) {
		t.Errorf("a position that cannot be kept: %v", err)
	}
	o.Source = brokenSource{errFatal}
	if _, err := o.Run(t.Context(), bulk.Checkpoint{}); !errors.Is(err, errFatal) {
		t.Errorf("members that cannot be listed: %v", err)
	}
}

type brokenSource struct{ err error }

func (s brokenSource) Members(context.Context, member.ID, int) ([]member.ID, error) {
	return nil, s.err
}

// A visit that hangs is cancelled, and made again.
func TestAVisitIsNotWaitedForForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(64)
		w.visit = func(ctx context.Context, users []member.ID) ([]member.ID, error) {
			if len(users) > 16 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return nil, nil
		}
		o := w.options(64, 1)
		o.Timeout = time.Minute
		start := time.Now()
		if _, err := o.Run(t.Context(), bulk.Checkpoint{}); err != nil {
			t.Error(err)
		}
		w.wantOnce(t, w.members)
		if took := time.Since(start); took < 3*time.Minute || took > 4*time.Minute { // 64, 32 and 32
			t.Errorf("it took %v", took)
		}
	})
}

// At the stop, what is under way is finished, but not waited for without end.
func TestVisitsUnderWayAreFinishedAtTheStop(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes time.Duration
		want  int64
		ends  time.Duration
	}{"soon": {4 * time.Second, 20, 4 * time.Second}, "never": {time.Hour, 0, 10 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(100)
				w.visit = func(ctx context.Context, _ []member.ID) ([]member.ID, error) {
					select {
					case <-time.After(test.takes):
						return nil, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}
				ctx, stop := context.WithCancel(t.Context())
				time.AfterFunc(time.Nanosecond, stop)
				start := time.Now()
				state, err := w.options(10, 2).Run(ctx, bulk.Checkpoint{})
				if took := time.Since(start).Round(time.Second); took != test.ends || !errors.Is(err, bulk.ErrStopped) || state.Counts["members"] != test.want {
					t.Errorf("after %v: %+v, %v", took, state, err)
				}
			})
		})
	}
}
