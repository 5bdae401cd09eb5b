package index_test

import (
	"testing"

	"github.com/activityd/activityd/internal/index"
)

func TestAGenerationEndsWithALoss(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, b bench) {
		ctx := t.Context()
		read := func(how string, ask func() (index.Generation, error), before index.Generation, want bool) index.Generation {
			t.Helper()
			e, err := ask()
			if err != nil || e.Rewound(before) == want {
				t.Errorf("%s: %+v, %v after %+v, want it to continue: %v", how, e, err, before, want)
			}
			return e
		}
		look := func() (index.Generation, error) { return b.ledger.Generation(ctx) }
		begin := func() (index.Generation, error) { return b.ledger.BeginGeneration(ctx) }
		none := read("at first", look, index.Generation{}, true)
		if none.Token != "" {
			t.Errorf("a look made a token: %+v", none)
		}
		first := read("begun", begin, none, true)
		if first.Token == "" || read("begun again", begin, first, true).Token != first.Token {
			t.Errorf("the token is %q", first.Token)
		}
		if err := b.Probe(ctx); err != nil {
			t.Fatal(err)
		}
		later := read("after a probe", look, first, true)
		read("older data", func() (index.Generation, error) { return first, nil }, later, false)
		b.client.FlushAll(ctx)
		read("emptied", look, first, false)
		second := read("emptied and begun", begin, first, false)
		if _, err := b.Reset(ctx); err != nil {
			t.Fatal(err)
		}
		read("reset", begin, second, false)
	})
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
