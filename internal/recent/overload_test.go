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
		b := newBench(recent.Options{})
		b.contact(11, 900)
		b.index.err = index.ErrMissing
		if _, err := b.Read(withoutWalks(t.Context()), me, 10); !errors.Is(err, recent.ErrBusy) {
			t.Fatalf("%v, want ErrBusy", err)
		}
		b.called(t)
		b.hinted(t)
		b.read(t, 11, recent.FromDatabase)
	})
}

// recordingPlace records what a read does with its place.
type recordingPlace struct {
	mu    sync.Mutex
	steps []string
	full  bool // when it resumes
}

func (p *recordingPlace) note(step string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.steps = append(p.steps, step)
}

func (p *recordingPlace) Pause() { p.note("pauses") }

func (p *recordingPlace) Resume(context.Context) error {
	p.note("resumes")
	if p.full {
		return admit.ErrBusy
	}
	return nil
}

func (p *recordingPlace) Walk() bool {
	p.note("walks")
	return true
}

func (p *recordingPlace) Leave(proven bool) {
	p.note(map[bool]string{true: "leaves, proven", false: "leaves"}[proven])
}

// Reads say what they turn out to be.
func TestPlacesOfReads(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second int64 // the date of the second contact's photo
		set    error
		steps  []string
	}{
		"proven":   {800, nil, []string{"resumes", "leaves, proven", "leaves"}},
		"compared": {900, nil, []string{"resumes", "leaves", "leaves"}},
		"walk":     {800, index.ErrMissing, []string{"resumes", "walks", "leaves"}},
		"behind":   {800, index.ErrBehind, []string{"resumes", "walks", "leaves"}},
	} {
		p := &recordingPlace{}
		b := newBench(recent.Options{})
		b.index.err = test.set
		b.contact(11, 900)
		b.contact(12, test.second)
		if _, err := b.Read(admit.WithPlace(t.Context(), p), me, 10); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !slices.Equal(p.steps, test.steps) {
			t.Errorf("%s: %q, want %q", name, p.steps, test.steps)
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
						return 125 * time.Millisecond
					}
					return 124 * time.Millisecond // of 250
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
		full        bool
		steps       []string
	}{
		"quick":               {0, 9 * time.Millisecond, false, []string{"resumes", "leaves, proven", "leaves"}},
		"slow":                {0, 11 * time.Millisecond, false, []string{"pauses", "resumes", "leaves, proven", "leaves"}},
		"slow, and no room":   {0, 11 * time.Millisecond, true, []string{"pauses", "resumes", "leaves"}},
		"the process is late": {5 * time.Millisecond, 11 * time.Millisecond, false, []string{"resumes", "leaves, proven", "leaves"}},
		"none":                {0, time.Minute, false, []string{"pauses", "resumes", "walks", "leaves"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &recordingPlace{full: test.full}
			b := newBench(recent.Options{Late: func(time.Time) time.Duration { return test.late }})
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
			if _, err := b.Read(admit.WithPlace(t.Context(), p), me, 10); test.full != errors.Is(err, recent.ErrBusy) || !test.full && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !slices.Equal(p.steps, test.steps) {
				t.Errorf("%s: %q, want %q", name, p.steps, test.steps)
			}
		})
	}
}

// A read of a set that is behind, which has no room after it waited for Redis, does not walk either.
func TestAReadWithoutRoomDoesNotWalk(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := &recordingPlace{full: true}
		b := newBench(recent.Options{})
		b.contact(11, 900)
		b.contact(12, 800)
		b.index.err = index.ErrBehind
		if _, err := b.Read(admit.WithPlace(t.Context(), p), me, 10); !errors.Is(err, recent.ErrBusy) {
			t.Errorf("%v, want ErrBusy", err)
		}
		if want := []string{"resumes", "leaves"}; !slices.Equal(p.steps, want) {
			t.Errorf("%q, want %q", p.steps, want)
		}
		b.called(t)
	})
}
