package shadow

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func sampler(members bulk.Source, within bulk.Range, n int) *Run {
	return &Run{Members: members, Range: within, Sample: n, Pacer: bulk.NewPacer(bulk.PacerOptions{}), Patience: time.Minute}
}

// Each member has the same chance, and each place in the order, too.
func TestSample(t *testing.T) {
	t.Parallel()
	var all bulk.List
	for i := range member.ID(50) {
		all = append(all, 3*i+1)
	}
	const rounds, n = 4000, 10
	chosen, first := map[member.ID]int{}, map[member.ID]int{}
	for range rounds {
		got, err := sampler(all, bulk.All, n).sample(t.Context())
		must(t, err)
		if unique := slices.Compact(slices.Sorted(slices.Values(got))); len(got) != n || len(unique) != n {
			t.Fatalf("chosen are %v", got)
		}
		for _, id := range got {
			chosen[id]++
		}
		first[got[0]]++
	}
	for _, id := range all { // six standard deviations of each
		if want := float64(rounds * n / 50); math.Abs(float64(chosen[id])-want) > 6*math.Sqrt(want*0.8) {
			t.Errorf("%s was chosen %d times, want about %.0f", id, chosen[id], want)
		}
		if want := float64(rounds / 50); math.Abs(float64(first[id])-want) > 6*math.Sqrt(want) {
			t.Errorf("%s was the first %d times, want about %.0f", id, first[id], want)
		}
	}
	got, err := sampler(all, bulk.Range{First: 4, Last: 10}, n).sample(t.Context())
	must(t, err)
	slices.Sort(got)
	if !slices.Equal(got, []member.ID{4, 7, 10}) {
		t.Errorf("of a range: %v", got)
	}
	if _, err := sampler(all, bulk.Range{First: 5, Last: 6}, n).sample(t.Context()); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("of none: %v", err)
	}
}

// pages lists more members than a page has, and fails at the end.
type pages struct{ err error }

func (p pages) Members(_ context.Context, after member.ID, limit int) (ids []member.ID, err error) {
	for i := range min(limit, max(0, 25_000-int(after))) {
		ids = append(ids, after+member.ID(i)+1)
	}
	if len(ids) == 0 {
		return nil, p.err
	}
	return ids, nil
}

func TestSampleOfManyPages(t *testing.T) {
	t.Parallel()
	got, err := sampler(pages{}, bulk.All, 30_000).sample(t.Context())
	must(t, err)
	if len(got) != 25_000 {
		t.Errorf("%d of 25,000", len(got))
	}
	failed := errors.New("failed")
	if _, err := sampler(pages{failed}, bulk.All, 5).sample(t.Context()); !errors.Is(err, failed) {
		t.Errorf("error %v", err)
	}
}

// The time ends a run without an error, and what was compared counts.
func TestRunEndsInTime(t *testing.T) {
	t.Parallel()
	w := newTown(t)
	all := bulk.List(w.add(t, 50))
	w.refill(t, all...)
	done := 0
	tally, _, err := w.run(t, control, func(r *Run) {
		r.Members, r.Duration = all, 200*time.Millisecond
		r.Pacer = bulk.NewPacer(bulk.PacerOptions{Rate: 20})
		before := r.Done
		r.Done = func(c Comparison) error { done++; return before(c) }
	})
	if err != nil || tally.Reads == 0 || tally.Reads > 10 || tally.Reads != done || tally.Sample != 50 {
		t.Errorf("%+v, %v", tally, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r := sampler(all, bulk.All, 10)
	r.Begin = func(int) { cancel() }
	if _, err := r.Do(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A server that stays away ends the wait for it.
func TestRunDoesNotWaitForEver(t *testing.T) {
	t.Parallel()
	away := errors.New("away")
	p := bulk.NewPacer(bulk.PacerOptions{Interval: time.Millisecond, Probes: []bulk.Probe{{Name: "MySQL", Ask: func(context.Context) error { return away }}}})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.Run(ctx)
	}()
	defer func() { stop(); <-ended }()
	servertest.Eventually(t, "the pacer stops", func() bool { return p.Pace().Mode == bulk.Stopped })
	r := sampler(bulk.List{1, 2}, bulk.All, 2)
	r.Pacer, r.Patience = p, 20*time.Millisecond
	if _, err := r.Do(t.Context()); !errors.Is(err, mysql.ErrUnavailable) || !errors.Is(err, away) {
		t.Errorf("error %v", err)
	}
}

func TestTally(t *testing.T) {
	t.Parallel()
	tally := newTally(time.Now())
	for i := range 100 {
		tally.add(Comparison{Ours: Cost{time.Duration(100 - i), i + 1}, Theirs: Cost{time.Second, 1000}, Walked: map[bool]string{true: recent.SetMissing}[i < 3]})
	}
	for _, ours := range []Photos{{1, 2, 3}, {1}, {1, 2}} {
		tally.add(Comparison{Difference: &Difference{Class: HiddenByOurs, Cause: Block, Ours: ours}})
	}
	tally.add(Comparison{Difference: &Difference{Class: HiddenByOurs, Cause: Relation}})
	tally.add(Comparison{Difference: &Difference{Class: Lag}})
	tally.fail(ErrTooSlow)
	tally.fail(mysql.ErrUnavailable)
	if tally.Reads != 105 || tally.Same != 100 || tally.Of(HiddenByOurs) != 4 || tally.Harmful() != 4 || tally.TooSlow != 1 || tally.Failed != 1 || tally.Walks[recent.SetMissing] != 3 {
		t.Errorf("%+v", tally)
	}
	if f := tally.Kinds[Kind{HiddenByOurs, Block}]; f.Count != 3 || len(f.Example.Ours) != 1 {
		t.Errorf("%+v with %+v", f, f.Example)
	}
	var c Costs
	if c.Quantile(0.5) != (Cost{}) {
		t.Error("a median of nothing")
	}
	for i := range 100 {
		c.add(Cost{time.Duration(100 - i), i + 1})
	}
	if half, most := c.Quantile(0.5), c.Quantile(0.99); half != (Cost{50, 50}) || most != (Cost{99, 99}) || c.Rows != 5050 {
		t.Errorf("%+v, %+v", half, most)
	}
	for n := 1; n < 5000; n++ { // the rule is on the safe side of the exact bound
		if exact := 1 - math.Pow(0.05, 1/float64(n)); Bound(n) < exact || n > 100 && Bound(n) > 1.02*exact {
			t.Errorf("%d: %g, exactly %g", n, Bound(n), exact)
		}
	}
}
