package recent_test

import (
	"context"
	"errors"
	"slices"
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

	steps []string
}

func (l *recordingLimit) Enter(_ context.Context, class admit.Class, by admit.By) (admit.Place, error) {
	l.steps = append(l.steps, [...]string{"read", "compared", "walk", "free walk"}[class]+" of "+by.Caller)
	return l, nil
}
func (l *recordingLimit) Turn(class admit.Class) {
	l.steps = append(l.steps, map[admit.Class]string{admit.Compared: "turns out to be compared"}[class])
}
func (l *recordingLimit) Leave(proven bool) {
	l.steps = append(l.steps, map[bool]string{true: "leaves, proven", false: "leaves"}[proven])
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
		"proven":   {800, nil, []string{"leaves, proven", "leaves"}},
		"compared": {900, nil, []string{"turns out to be compared", "leaves", "leaves"}},
		"walk":     {800, index.ErrMissing, []string{"leaves", "walk of site", "leaves", "leaves"}},
		"behind":   {800, index.ErrBehind, []string{"free walk of site", "leaves", "leaves"}},
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
