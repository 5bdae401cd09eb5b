package recent

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// ask calls do in a goroutine and returns where its result will be.
func ask(ctx context.Context, t *testing.T, s *shared[string, int], fn func(context.Context) (int, error)) <-chan result {
	t.Helper()
	out := make(chan result, 1)
	go func() {
		v, err := s.do(ctx, time.Hour, "key", fn)
		out <- result{v, err}
	}()
	synctest.Wait()
	return out
}

type result struct {
	value int
	err   error
}

// counter returns a call that waits for release and counts how often it began.
func counter(release <-chan struct{}) (fn func(context.Context) (int, error), begun *atomic.Int64) {
	begun = new(atomic.Int64)
	return func(ctx context.Context) (int, error) {
		n := begun.Add(1)
		select {
		case <-release:
			return int(n), nil
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}, begun
}

// Privacy: a caller that comes while a call is under way must not get its result,
// which may be older than the question.
func TestLateCallersShareTheNextSharedCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shared[string, int]{}
		release := make(chan struct{})
		fn, begun := counter(release)
		first := ask(t.Context(), t, s, fn)
		second := ask(t.Context(), t, s, fn)
		third := ask(t.Context(), t, s, fn)
		if n := begun.Load(); n != 1 {
			t.Fatalf("%d calls at once, want 1", n)
		}
		close(release)
		if r := <-first; r != (result{1, nil}) {
			t.Errorf("first %+v", r)
		}
		for _, late := range []<-chan result{second, third} {
			if r := <-late; r != (result{2, nil}) {
				t.Errorf("late %+v, want the second call's result", r)
			}
		}
	})
}

func TestASharedCallEndsWithoutWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shared[string, int]{}
		fn, begun := counter(nil)
		ctx, cancel := context.WithCancel(t.Context())
		first, waiting := ask(ctx, t, s, fn), ask(ctx, t, s, fn)
		cancel()
		for _, r := range []result{<-first, <-waiting} {
			if !errors.Is(r.err, context.Canceled) {
				t.Errorf("%+v, want Canceled", r)
			}
		}
		synctest.Wait()
		if len(s.latest) != 0 {
			t.Errorf("left behind: %d calls", len(s.latest))
		}
		if begun.Load() == 0 {
			t.Error("nothing ran")
		}
	})
}

func TestASharedCallOutlivesItsFirstCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shared[string, int]{}
		blocker := make(chan struct{})
		hold, _ := counter(blocker)
		first := ask(t.Context(), t, s, hold) // so that the others wait together
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		fn, _ := counter(release)
		leaver, stayer := ask(ctx, t, s, fn), ask(t.Context(), t, s, fn)
		cancel()
		<-leaver
		close(blocker)
		<-first
		close(release)
		if r := <-stayer; r != (result{1, nil}) {
			t.Errorf("stayer %+v", r)
		}
	})
}

func TestASharedCallIsBoundedInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shared[string, int]{}
		fn, _ := counter(nil)
		if r := <-ask(t.Context(), t, s, fn); !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("%+v, want DeadlineExceeded after an hour", r)
		}
	})
}

func TestAPanicIsAnErrorWithItsPlace(t *testing.T) {
	t.Parallel()
	s := &shared[string, int]{}
	_, err := s.do(t.Context(), time.Hour, "key", func(context.Context) (int, error) { panic("boom") })
	if err == nil || !strings.Contains(err.Error(), "boom") || !strings.Contains(err.Error(), "shared_test.go") {
		t.Errorf("err %v", err)
	}
}
