package once_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/once"
	"github.com/activityd/activityd/internal/once/oncetest"
)

// Work that fails is attempted again, until it is done, and then never again.
func TestDo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o := once.New(oncetest.NewMemory(time.Now), once.Options{})
		var seen []once.Attempt
		work := func(_ context.Context, a once.Attempt) error {
			seen = append(seen, a)
			time.Sleep(5 * time.Minute) // many leases
			if a.Number < 3 {
				return errors.New("not yet")
			}
			return nil
		}
		for i, want := range []bool{true, false} {
			if did, err := o.Do(t.Context(), once.Key{Name: "digest", Attempts: 3}, work); did != want || err != nil {
				t.Errorf("call %d: %v, %v, want %v", i, did, err, want)
			}
		}
		if len(seen) != 3 || !seen[2].Last || seen[1].Last || seen[2].Fence <= seen[1].Fence {
			t.Errorf("attempts %+v", seen)
		}
	})
}
