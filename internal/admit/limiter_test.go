package admit_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/admit"
)

func enter(t *testing.T, l *admit.Limiter) *admit.Place {
	t.Helper()
	place, err := l.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return place
}

// A read waits for a place for 50 ms, and no more wait than the limiter queues.
func TestReadsWaitForPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(1)
		held := enter(t, l)
		var waiting sync.WaitGroup
		results := make(chan error, 16)
		for range cap(results) {
			waiting.Go(func() {
				place, err := l.Enter(t.Context())
				results <- err
				if err == nil {
					place.Leave(true)
				}
			})
			synctest.Wait()
		}
		if !l.Refuses() {
			t.Error("more may wait than are queued")
		}
		held.Leave(true)
		waiting.Wait()
		refused := 0
		for range cap(results) {
			if err := <-results; errors.Is(err, admit.ErrBusy) {
				refused++
			} else if err != nil {
				t.Error(err)
			}
		}
		if refused == 0 || refused == cap(results) {
			t.Errorf("%d of %d reads were refused", refused, cap(results))
		}
		start := time.Now()
		held = enter(t, l)
		if _, err := l.Enter(t.Context()); !errors.Is(err, admit.ErrBusy) || time.Since(start) != 50*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		held.Leave(false)
		if l.Refuses() {
			t.Error("a read is still refused")
		}
	})
}

// A client that leaves while its read waits is no refusal, and keeps no place.
func TestAClientThatLeavesKeepsNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := admit.New(1)
		held := enter(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(10*time.Millisecond, cancel)
		if _, err := l.Enter(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		held.Leave(false)
		enter(t, l).Leave(true)
	})
}

// Walks have half of the places that there are, and 1 at least.
func TestWalksHaveAShare(t *testing.T) {
	t.Parallel()
	for most, places := range map[int]int{1: 1, 2: 2, 3: 3, 24: 4} { // 24 begin with 4
		l, want := admit.New(most), max(1, places/2)
		var walking []*admit.Place
		for range places {
			place := enter(t, l)
			if place.Walk() {
				place.Walk() // again is the same walk
				walking = append(walking, place)
			}
		}
		if len(walking) != want {
			t.Errorf("of %d places walks have %d, want %d", places, len(walking), want)
		}
		walking[0].Leave(false)
		if place := enter(t, l); !place.Walk() {
			t.Errorf("of %d places a walk that ended has its own still", places)
		}
	}
}

// Without a limiter all is let in.
func TestNoLimit(t *testing.T) {
	t.Parallel()
	var none *admit.Limiter
	place, err := none.Enter(t.Context())
	if err != nil || none.Refuses() || !place.Walk() {
		t.Errorf("%v", err)
	}
	place.Leave(true)
}
