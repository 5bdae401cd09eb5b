package recent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/recent"
)

// A read that needs a walk asks MySQL for nothing when that is refused.
func TestAWalkThatIsRefusedAsksNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := limited(1)
		b := newBench(o)
		b.contact(11, 900)
		b.index.err = index.ErrMissing
		place, err := o.Limiter.Enter(t.Context(), admit.Walk, admit.By{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(t.Context(), me, 10); !errors.Is(err, recent.ErrBusy) {
			t.Fatalf("%v, want ErrBusy", err)
		}
		b.called(t)
		b.hinted(t)
		place.Leave(false)
		b.read(t, 11, recent.FromDatabase)
	})
}

// recordingLimit records what reads do with their places.
type recordingLimit struct {
	admit.Unlimited

	mu    sync.Mutex
	steps []string
}

func (l *recordingLimit) note(step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.steps = append(l.steps, step)
}

func (l *recordingLimit) Enter(_ context.Context, class admit.Class, by admit.By) (admit.Place, error) {
	l.note([...]string{"read", "compared", "walk", "free walk"}[class] + " of " + by.Caller)
	return l, nil
}

func (l *recordingLimit) Turn(class admit.Class) {
	l.note(map[admit.Class]string{admit.Waiting: "waits for Redis", admit.Proven: "has the reply", admit.Compared: "turns out to be compared"}[class])
}

func (l *recordingLimit) Leave(proven bool) {
	l.note(map[bool]string{true: "leaves, proven", false: "leaves"}[proven])
}

// Reads have the place of a proven one, and say what they turn out to be. What waits for a walk
// has no place; a walk that is not needed does not wait for one.
func TestPlacesOfReads(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second int64 // the date of the second contact's photo
		set    error
		steps  []string
	}{
		"proven":   {800, nil, []string{"has the reply", "leaves, proven", "leaves"}},
		"compared": {900, nil, []string{"has the reply", "turns out to be compared", "leaves", "leaves"}},
		"walk":     {800, index.ErrMissing, []string{"has the reply", "leaves", "walk of site", "leaves", "leaves"}},
		"behind":   {800, index.ErrBehind, []string{"has the reply", "free walk of site", "leaves", "leaves"}},
	} {
		l := &recordingLimit{}
		b := newBench(recent.Options{Limiter: l})
		b.index.err = test.set
		b.contact(11, 900)
		b.contact(12, test.second)
		if _, err := b.Read(admit.WithPlace(t.Context(), l, admit.By{Caller: "site"}), me, 10); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(l.steps, test.steps) {
			t.Errorf("%s: %q, want %q", name, l.steps, test.steps)
		}
	}
}

// A late reply of a process that is itself late must not become a walk.
func TestALateReplyDoesNotBecomeAWalk(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late   bool // the process is, while it waits for Redis
		misses int  // replies that are not seen in time
		source recent.Source
		err    error
		asked  int
	}{
		"in time":                       {false, 0, recent.FromIndex, nil, 1},
		"a Redis that hangs":            {false, 9, recent.FromDatabase, nil, 1},
		"the process is late":           {true, 1, recent.FromIndex, nil, 2},
		"the process is late each time": {true, 9, "", recent.ErrBusy, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBench(recent.Options{Late: func(time.Time) time.Duration {
					if test.late {
						return 50 * time.Millisecond
					}
					return 49 * time.Millisecond // of 250
				}})
				b.contact(11, 900)
				b.contact(12, 800)
				asked := 0
				b.index.ask = func(ctx context.Context) ([]index.Entry, error) {
					asked++
					if asked > test.misses {
						return b.index.entries, nil
					}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				a, err := b.Read(t.Context(), me, 10)
				if !errors.Is(err, test.err) || a.Source != test.source || asked != test.asked {
					t.Errorf("%q, %v; Redis was asked %d times; want %+v", a.Source, err, asked, test)
				}
				if test.err != nil {
					b.called(t)
				}
			})
		})
	}
}

// A read that waits for a Redis which is slow leaves room for others, unless it is the process that is
// late: then Redis may have answered.
func TestAReadThatWaitsForRedisLeavesRoom(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		late, reply time.Duration
		steps       []string
	}{
		"quick":               {0, 9 * time.Millisecond, []string{"has the reply", "leaves, proven", "leaves"}},
		"slow":                {0, 11 * time.Millisecond, []string{"waits for Redis", "has the reply", "leaves, proven", "leaves"}},
		"the process is late": {5 * time.Millisecond, 11 * time.Millisecond, []string{"has the reply", "leaves, proven", "leaves"}},
		"none":                {0, time.Minute, []string{"waits for Redis", "has the reply", "leaves", "walk of ", "leaves", "leaves"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := &recordingLimit{}
			b := newBench(recent.Options{Limiter: l, Late: func(time.Time) time.Duration { return test.late }})
			b.contact(11, 900)
			b.contact(12, 800)
			b.index.ask = func(ctx context.Context) ([]index.Entry, error) {
				select {
				case <-time.After(test.reply):
					return b.index.entries, nil
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			if _, err := b.Read(admit.WithPlace(t.Context(), l, admit.By{}), me, 10); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !slices.Equal(l.steps, test.steps) {
				t.Errorf("%s: %q, want %q", name, l.steps, test.steps)
			}
		})
	}
}
