package recent_test

import (
	"errors"
	"testing"
	"testing/synctest"

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
		if _, err := b.Read(withoutWalks(t), me, 10); !errors.Is(err, recent.ErrBusy) {
			t.Fatalf("%v, want ErrBusy", err)
		}
		b.called(t)
		b.hinted(t)
		b.read(t, 11, recent.FromDatabase)
	})
}

// A read leaves its place, whatever it turns out to be. A read of a set that is behind walks if it may.
func TestPlacesOfReads(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		second int64 // the date of the second contact's photo
		set    error
		walks  bool
		source recent.Source
	}{
		"proven":                  {800, nil, true, recent.FromIndex},
		"compared":                {900, nil, true, recent.FromIndex},
		"walk":                    {800, index.ErrMissing, true, recent.FromDatabase},
		"behind":                  {800, index.ErrBehind, true, recent.FromDatabase},
		"behind, no walk is free": {800, index.ErrBehind, false, recent.FromIndex},
	} {
		b := newBench(recent.Options{})
		b.index.err = test.set
		b.contact(11, 900)
		b.contact(12, test.second)
		limiter := admit.New(1)
		for range 3 {
			ctx := withoutWalks(t)
			if test.walks {
				place, err := limiter.Enter(t.Context())
				if err != nil {
					t.Fatalf("%s: the place was not left: %v", name, err)
				}
				ctx = admit.WithPlace(t.Context(), place)
			}
			if a, err := b.Read(ctx, me, 10); err != nil || a.Source != test.source {
				t.Errorf("%s: %s, %v", name, a.Source, err)
			}
		}
	}
}
