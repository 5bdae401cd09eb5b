package recent_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/recent"
)

// recorder remembers what an observer is told.
type recorder struct {
	mu       sync.Mutex
	answers  []recent.Answer
	errs     []error
	took     []time.Duration
	walks    int // under way
	mostWalk int
	refused  int
}

func (r *recorder) Answered(a recent.Answer, err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers, r.errs, r.took = append(r.answers, a), append(r.errs, err), append(r.took, took)
}

func (r *recorder) WalkBegan() { r.walked(1) }
func (r *recorder) WalkEnded() { r.walked(-1) }

func (r *recorder) walked(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.walks += n
	r.mostWalk = max(r.mostWalk, r.walks)
}

func (r *recorder) WalkRefused() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refused++
}

func TestObserverIsToldOfEachAnswer(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	b := newBench(recent.Options{Observer: r})
	b.contact(11, 900)
	b.contact(12, 800)
	b.read(t, 11, recent.FromIndex)
	b.index.err = index.ErrMissing
	b.read(t, 11, recent.FromDatabase)
	b.store.before = func(context.Context, string) error { return errors.New("no") }
	if _, err := b.Read(t.Context(), me, 10); err == nil {
		t.Fatal("the read succeeded")
	}
	var sources []recent.Source
	for _, a := range r.answers {
		sources = append(sources, a.Source)
	}
	if want := []recent.Source{recent.FromIndex, recent.FromDatabase, ""}; !slices.Equal(sources, want) {
		t.Fatalf("told of answers from %q, want %q", sources, want)
	}
	if r.answers[1].Trace.WalkReason != recent.SetMissing {
		t.Errorf("the walk's reason is %q", r.answers[1].Trace.WalkReason)
	}
	if r.errs[0] != nil || r.errs[1] != nil || r.errs[2] == nil || slices.Min(r.took) <= 0 {
		t.Errorf("errors %v, took %v", r.errs, r.took)
	}
	if r.walks != 0 || r.mostWalk != 1 || r.refused != 0 {
		t.Errorf("%d walks under way, %d at most, %d refused", r.walks, r.mostWalk, r.refused)
	}
}

func TestObserverIsToldOfRefusedWalks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &recorder{}
		b := newBench(recent.Options{Walks: 1, WalkWait: time.Second, Observer: r})
		b.contact(11, 900)
		b.index.err = index.ErrMissing
		release := make(chan struct{})
		b.store.before = func(context.Context, string) error {
			<-release
			return nil
		}
		var reads sync.WaitGroup
		reads.Go(func() { _, _ = b.Read(t.Context(), me, 10) })
		synctest.Wait() // it walks
		gone, leave := context.WithCancel(t.Context())
		reads.Go(func() { _, _ = b.Read(gone, me, 6) })
		synctest.Wait() // it waits for its turn
		leave()
		if _, err := b.Read(t.Context(), me, 5); !errors.Is(err, recent.ErrBusy) {
			t.Errorf("err %v, want ErrBusy", err)
		}
		if r.refused != 1 { // who left was not refused
			t.Errorf("told of %d refused walks, want 1", r.refused)
		}
		close(release)
		reads.Wait()
	})
}
