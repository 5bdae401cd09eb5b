package index_test

import (
	"testing"

	"github.com/activityd/activityd/internal/index"
)

func TestAGenerationEndsWithALoss(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		read := func(how string, before index.Generation, lost bool) index.Generation {
			t.Helper()
			g, err := b.Generation(ctx, before)
			if err != nil || g.Rewound(before) != lost {
				t.Errorf("%s: %+v, %v after %+v, want a loss: %v", how, g, err, before, lost)
			}
			return g
		}
		probe := func() {
			t.Helper()
			if err := b.Probe(ctx); err != nil {
				t.Fatal(err)
			}
		}
		none := read("at first", index.Generation{}, false)
		if none.Settled() {
			t.Errorf("it is settled before a probe: %+v", none)
		}
		probe()
		first := read("after a probe", none, false)
		if !first.Settled() {
			t.Errorf("it is not settled after a probe: %+v", first)
		}
		probe()
		later := read("after another one", first, false)
		if !first.Rewound(later) {
			t.Errorf("older data %+v are no loss after %+v", first, later)
		}
		b.client.FlushAll(ctx)
		read("emptied", later, true)
		probe()
		second := read("emptied and probed", later, true)
		if _, err := b.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		read("reset", second, true)
	})
}

// A loss of one node shows, however high its marks are, and its silence is no loss.
func TestALossOfOneNodeShows(t *testing.T) {
	t.Parallel()
	before := index.Generation{Lost: []int64{5, 6}, Marks: []int64{50, 60}}
	for name, test := range map[string]struct {
		now  index.Generation
		lost bool
	}{
		"the same":             {before, false},
		"time passes":          {index.Generation{Lost: []int64{5, 6}, Marks: []int64{51, 60}}, false},
		"its sets are deleted": {index.Generation{Lost: []int64{5, 7}, Marks: []int64{51, 61}}, true},
		"it is empty":          {index.Generation{Lost: []int64{5, 0}, Marks: []int64{51, 99}}, true},
		"it is older":          {index.Generation{Lost: []int64{5, 6}, Marks: []int64{51, 59}}, true},
	} {
		if got := test.now.Rewound(before); got != test.lost {
			t.Errorf("%s: a loss: %v, want %v", name, got, test.lost)
		}
	}
	if known := (index.Generation{Lost: []int64{5, 6}}); known.Rewound(index.Generation{Lost: []int64{5, 0}}) {
		t.Error("a node of which nothing was known has lost something")
	}
}

func TestWhoseSetsAreKeptIsStored(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		holds := func(when, want string) {
			t.Helper()
			if got, err := b.ledger.Materialize(ctx); err != nil || got != want {
				t.Errorf("%s: %q, %v, want %q", when, got, err, want)
			}
		}
		b.refill(t, ladder(3)) // stores nothing of it
		holds("nothing stored", "")
		for _, kept := range []string{"active", "all"} {
			if err := b.ledger.KeepMaterialize(ctx, kept); err != nil {
				t.Fatal(err)
			}
			holds("kept", "active")
		}
		if err := b.ledger.StoreMaterialize(ctx, "all"); err != nil {
			t.Fatal(err)
		}
		holds("stored", "all")
	})
}
