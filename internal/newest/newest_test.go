package newest_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/newest"
)

func TestItWaitsForNoSlowAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, takes := 0, time.Duration(0)
		a := newest.New(func() (int, time.Duration) {
			asked++
			n := asked
			<-time.After(takes)
			return n, time.Second
		})
		for i, step := range []struct {
			after, takes, took time.Duration
			want               int
			known              bool
		}{
			{0, 5 * time.Second, 50 * time.Millisecond, 0, false},
			{0, 5 * time.Second, 50 * time.Millisecond, 0, false}, // it is not asked again
			{5 * time.Second, 0, 0, 1, true},
			{800 * time.Millisecond, 0, 0, 1, true}, // it is kept
			{200 * time.Millisecond, 20 * time.Millisecond, 20 * time.Millisecond, 2, true},
			{2 * time.Second, time.Minute, 50 * time.Millisecond, 2, true}, // the answer before
			{2 * time.Minute, 0, 0, 4, true},
		} {
			<-time.After(step.after)
			synctest.Wait()
			takes = step.takes
			began := time.Now()
			got, known := a.Get(50 * time.Millisecond)
			if took := time.Since(began); got != step.want || known != step.known || took != step.took {
				t.Errorf("%d: %d, %v after %v; want %+v", i, got, known, took, step)
			}
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		takes = time.Millisecond
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if got, _ := a.Get(time.Second); got != 5 {
					t.Errorf("%d, want the fifth", got)
				}
			})
		}
		all.Wait()
	})
}
