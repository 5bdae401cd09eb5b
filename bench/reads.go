package main

import (
	"context"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// shown is how many photos a read asks for.
const shown = 10

// noHints takes no note: the sets are there, and nothing is worked off.
type noHints struct{}

// Refill implements [recent.Hints].
func (noHints) Refill(member.ID) {}

// LookAgain implements [recent.Hints].
func (noHints) LookAgain(member.ID, member.ID) {}

// reader reads as a service does.
func (s *suite) reader() *recent.Reader {
	return recent.NewReader(s.index, s.store, noHints{}, recent.Options{})
}

// query is a way to find the answer for a viewer.
type query func(ctx context.Context, v contacts.Viewer) error

// read is activityd's way. It fails when the index was not enough: then something
// else would be measured.
func (s *suite) read() query {
	reader := s.reader()
	return func(ctx context.Context, v contacts.Viewer) error {
		a, err := reader.Read(ctx, v, shown)
		switch {
		case err != nil:
			return err
		case a.Source != recent.FromIndex || a.Trace.Proof != recent.ByNext || len(a.Photos) != shown:
			return fmt.Errorf("viewer %s was shown %d photos, from the %s, proof %q: want %d, from the index by its first candidate",
				v.ID, len(a.Photos), a.Source, a.Trace.Proof, shown)
		}
		return nil
	}
}

// walk is what activityd does without its index.
func (s *suite) walk(ctx context.Context, v contacts.Viewer) error {
	_, err := s.store.Walk(ctx, v, shown)
	return err
}

// benchReads measures reads by the number of contacts.
func (s *suite) benchReads(ctx context.Context) error {
	site := s.options.site
	if err := s.fill(ctx, append(site.viewers(), hiddenViewer, openViewer)); err != nil {
		return err
	}
	if err := s.readsByContacts(ctx); err != nil {
		return err
	}
	if err := s.readsOfHidden(ctx); err != nil {
		return err
	}
	if err := s.readsOfMany(ctx); err != nil {
		return err
	}
	return s.readsBesidePlain(ctx)
}

// timings are the times of reads, in milliseconds, by viewer and round.
type timings map[member.ID][][]float64

// interleaved reads for each viewer in turn, one read each, so that whatever else
// the machine does meets all of them.
func (s *suite) interleaved(ctx context.Context, viewers []member.ID, ask query) (timings, error) {
	all := make(timings)
	for round := range s.options.rounds + 1 {
		times := make(map[member.ID][]float64)
		for range s.options.reads {
			for _, id := range viewers {
				took, err := timed(func() error { return ask(ctx, contacts.Viewer{ID: id}) })
				if err != nil {
					return nil, err
				}
				times[id] = append(times[id], took)
			}
		}
		if round == 0 {
			continue // it warmed up
		}
		for _, id := range viewers {
			all[id] = append(all[id], times[id])
		}
	}
	return all, nil
}

// timed returns how many milliseconds do took.
func timed(do func() error) (float64, error) {
	start := time.Now()
	err := do()
	return milliseconds(time.Since(start)), err
}

// quantiles returns a quantile of each round.
func quantiles(rounds [][]float64, q float64) []float64 {
	values := make([]float64, len(rounds))
	for i, times := range rounds {
		values[i] = quantilesOf(times, q)[0]
	}
	return values
}

// ratios divides round by round.
func ratios(values, by []float64) spread {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = v / by[i]
	}
	return spreadOf(out)
}

func (s *suite) readsByContacts(ctx context.Context) error {
	const part = "A read, by the viewer's number of contacts"
	site := s.options.site
	read := s.read()
	times, err := s.interleaved(ctx, site.viewers(), read)
	if err != nil {
		return err
	}
	costs, err := s.readCosts(ctx, site.viewers(), read)
	if err != nil {
		return err
	}
	name := func(n int, what string) string { return fmt.Sprintf("%d contacts, %s", n, what) }
	for _, p := range []struct {
		what string
		q    float64
	}{{"p50", 0.5}, {"p99", 0.99}} {
		for i, n := range site.Contacts {
			own := quantiles(times[site.viewer(i)], p.q)
			value := spreadOf(own)
			f := figure{Part: part, Name: name(n, p.what), Unit: "ms", Value: &value}
			if i > 0 {
				ratio := ratios(own, quantiles(times[site.viewer(0)], p.q))
				f.Ratio, f.Against = &ratio, name(site.Contacts[0], p.what)
			}
			if n == site.most() && p.q == 0.5 {
				f.Aim = atMost(1.1)
			}
			if p.q == 0.5 {
				f.Samples, f.Each = costs[site.viewer(i).String()], costs[site.viewer(i).String()].expense()
			}
			s.results.add(f)
		}
	}
	return nil
}

// readCosts measures what reads cost besides time, viewer by viewer.
func (s *suite) readCosts(ctx context.Context, viewers []member.ID, ask query) (map[string]samples, error) {
	list := make([]entrant, len(viewers))
	for i, id := range viewers {
		list[i] = entrant{name: id.String(), run: func(ctx context.Context) (int, error) {
			for range s.options.reads {
				if err := ask(ctx, contacts.Viewer{ID: id}); err != nil {
					return 0, err
				}
			}
			return s.options.reads, nil
		}}
	}
	return s.meter.alternate(ctx, s.options.rounds, s.log, list)
}

// readsOfHidden compares the owner whose newest photos are private with the one
// who has none.
func (s *suite) readsOfHidden(ctx context.Context) error {
	const part = "A read of an owner with many private photos"
	viewers := []member.ID{openViewer, hiddenViewer}
	times, err := s.interleaved(ctx, viewers, s.read())
	if err != nil {
		return err
	}
	costs, err := s.readCosts(ctx, viewers, s.read())
	if err != nil {
		return err
	}
	open, hidden := quantiles(times[openViewer], 0.5), quantiles(times[hiddenViewer], 0.5)
	value, other, ratio := spreadOf(open), spreadOf(hidden), ratios(hidden, open)
	s.results.add(figure{Part: part, Name: "no private photos, p50", Unit: "ms", Value: &value, Each: costs[member.ID(openViewer).String()].expense()})
	s.results.add(figure{
		Part: part, Name: fmt.Sprintf("the newest %d are private, p50", s.options.site.Private), Unit: "ms", Value: &other,
		Against: "no private photos, p50", Ratio: &ratio, Aim: atMost(1.2), Each: costs[member.ID(hiddenViewer).String()].expense(),
	})
	return nil
}

// readsOfMany reads for ordinary members, whose candidates' newest photo is not
// always visible, and whose rows are not all at hand.
func (s *suite) readsOfMany(ctx context.Context) error {
	const part = "Reads of ordinary members, one of five photos not public"
	users := s.options.site.refilled()
	if err := s.fill(ctx, users); err != nil {
		return err
	}
	reader := s.reader()
	proofs := make(map[recent.Proof]int)
	var times [][]float64
	next := 0
	all, err := s.meter.alternate(ctx, s.options.rounds, s.log, []entrant{{name: "reads", run: func(ctx context.Context) (int, error) {
		times = append(times, nil)
		for range s.options.reads {
			next++
			took, err := timed(func() error {
				a, err := reader.Read(ctx, contacts.Viewer{ID: users[next*7919%len(users)]}, shown)
				proofs[a.Trace.Proof]++
				return err
			})
			if err != nil {
				return 0, err
			}
			times[len(times)-1] = append(times[len(times)-1], took)
		}
		return s.options.reads, nil
	}}})
	if err != nil {
		return err
	}
	times = times[len(times)-s.options.rounds:]
	median, high := spreadOf(quantiles(times, 0.5)), spreadOf(quantiles(times, 0.99))
	s.results.add(figure{Part: part, Name: "p50", Unit: "ms", Value: &median, Each: all["reads"].expense(), Samples: all["reads"]})
	s.results.add(figure{Part: part, Name: "p99", Unit: "ms", Value: &high})
	s.results.notef("Of %d reads of ordinary members, the first candidate alone proved %s %%, all candidates %s %%, the full walk %s %%.", next,
		percent(proofs[recent.ByNext], next), percent(proofs[recent.ByLowest]+proofs[recent.ByAll], next), percent(proofs[recent.ByWalk], next))
	return nil
}

func percent(n, of int) string { return number(100 * float64(n) / float64(of)) }
