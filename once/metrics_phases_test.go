package once_test

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/once"
)

// The collector asks at a scrape, shows the answer to the next ones, and nothing where
// there is none.
func TestPhasesCollector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		asked, took, err := 0, time.Second, error(nil)
		c := once.NewPhasesCollector(func(ctx context.Context) (map[once.Phase]int, error) {
			asked++
			select {
			case <-time.After(took):
				return map[once.Phase]int{once.Held: asked, once.Exhausted: 3}, err
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		for _, step := range []struct {
			wait, took time.Duration
			err        error
			asked      int
			shown      bool
		}{
			{0, time.Second, nil, 1, false}, // nothing waits for as long
			{time.Second, time.Second, nil, 1, true},
			{9 * time.Second, time.Second, nil, 1, true}, // ten times as long as it took
			{2 * time.Second, time.Millisecond, nil, 2, true},
			{4 * time.Second, time.Millisecond, nil, 2, true},
			{2 * time.Second, time.Millisecond, errors.New("no"), 3, false},
			{4 * time.Second, time.Millisecond, nil, 3, false},
			{2 * time.Second, time.Hour, nil, 4, false},
			{time.Minute, time.Millisecond, nil, 5, true},
		} {
			time.Sleep(step.wait) //nolint:forbidigo // the time of the bubble, which costs none
			synctest.Wait()       // what was asked is answered, or waits
			took, err = step.took, step.err
			want := metricstest.Samples{}
			if step.shown {
				want = metricstest.Samples{
					`activityd_once_keys{phase="free"}`: 0, `activityd_once_keys{phase="held"}`: float64(step.asked),
					`activityd_once_keys{phase="done"}`: 0, `activityd_once_keys{phase="exhausted"}`: 3,
				}
			}
			got := metricstest.Gather(t, c).Named("activityd_once_keys")
			synctest.Wait()
			if !maps.Equal(got, want) || asked != step.asked {
				t.Errorf("%+v: asked %d times: %v, want %v", step, asked, got, want)
			}
		}
	})
}
