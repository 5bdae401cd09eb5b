package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// shown is how many photos a read asks for.
const shown = 10

// noHints ignores hints: the sets exist, and no workers run.
type noHints struct{}

// Refill implements [recent.Hints].
func (noHints) Refill(member.ID) {}

// LookAgain implements [recent.Hints].
func (noHints) LookAgain(member.ID, member.ID) {}

// reader reads as a service does.
func (s *suite) reader() *recent.Reader {
	return recent.NewReader(s.index, s.store, noHints{}, recent.Options{IndexWait: time.Minute}) // a stall of the machine is no reason to walk
}

// query finds the answer for a viewer.
type query func(ctx context.Context, v contacts.Viewer) error

// read is activityd's query. It fails when the index was not enough, because then
// something else would be measured.
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

// benchReads measures reads by the number of contacts.
func (s *suite) benchReads(ctx context.Context) error {
	site := s.options.site
	if err := s.fill(ctx, append(site.viewers(), hiddenViewer, openViewer, privateViewer, countedViewer, plainViewer)); err != nil {
		return err
	}
	if err := s.readsByContacts(ctx); err != nil {
		return err
	}
	if err := s.readsOfHidden(ctx); err != nil {
		return err
	}
	if err := s.readsOfPrivate(ctx); err != nil {
		return err
	}
	return s.readsOfMany(ctx)
}

// quantileOf is a quantile and its name.
type quantileOf struct {
	name string
	q    float64
}

// quantiles are those of times that are reported.
var quantiles = []quantileOf{{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}}

// asking returns a contender that asks for a viewer.
func asking(name string, viewer member.ID, ask query) contender {
	return contender{name: name, run: func(ctx context.Context) (int, error) { return 1, ask(ctx, contacts.Viewer{ID: viewer}) }}
}

// readTimes measures reads one by one for their times, and as many in one run for what
// they cost besides.
func (s *suite) readTimes(ctx context.Context, list []contender) (times, costs map[string]samples, err error) {
	return s.readTimesOf(ctx, s.options.reads, list)
}

// readTimesOf is readTimes with a number of reads.
func (s *suite) readTimesOf(ctx context.Context, reads int, list []contender) (times, costs map[string]samples, err error) {
	if times, err = s.calls(ctx, reads, 0, list); err != nil {
		return nil, nil, err
	}
	many := make([]contender, len(list))
	for i, c := range list {
		many[i] = contender{name: c.name, run: func(ctx context.Context) (n int, err error) {
			for n < reads && err == nil {
				_, err = c.run(ctx)
				n++
			}
			return n, err
		}}
	}
	costs, err = s.runs(ctx, many)
	return times, costs, err
}

func (s *suite) readsByContacts(ctx context.Context) error {
	const part = "A read, by the viewer's number of contacts"
	site := s.options.site
	name := func(n int) string { return fmt.Sprintf("%d contacts", n) }
	list := make([]contender, len(site.Contacts))
	for i, n := range site.Contacts {
		list[i] = asking(name(n), site.viewer(i), s.read())
	}
	times, costs, err := s.readTimes(ctx, list)
	if err != nil {
		return err
	}
	for _, q := range quantiles {
		for i, n := range site.Contacts {
			own := times[name(n)]
			f := figure{Part: part, Name: name(n) + ", " + q.name, Unit: "ms", Value: own.spread(atQuantile(q.q))}
			if i > 0 {
				first := name(site.Contacts[0])
				f.Ratio, f.Against = own.over(times[first], atQuantile(q.q)), first+", "+q.name
			}
			if n == site.most() && q.q == 0.5 {
				f.Aim = atMost(1.1)
			}
			if q.q == 0.5 {
				f.Samples, f.Each = costs[name(n)], costs[name(n)].expense()
			}
			s.results.add(f)
		}
	}
	return nil
}

// readsOfHidden compares the owner whose newest photos are private with the one
// without private photos.
func (s *suite) readsOfHidden(ctx context.Context) error {
	const part = "A read of an owner with many private photos"
	open, hidden := "no private photos", fmt.Sprintf("the newest %d are private", s.options.site.Private)
	times, costs, err := s.readTimes(ctx, []contender{asking(open, openViewer, s.read()), asking(hidden, hiddenViewer, s.read())})
	if err != nil {
		return err
	}
	median := atQuantile(0.5)
	s.results.add(figure{Part: part, Name: open + ", p50", Unit: "ms", Value: times[open].spread(median), Each: costs[open].expense()})
	s.results.add(figure{
		Part: part, Name: hidden + ", p50", Unit: "ms", Value: times[hidden].spread(median),
		Against: open + ", p50", Ratio: times[hidden].over(times[open], median), Aim: atMost(1.2), Each: costs[hidden].expense(),
	})
	return nil
}

// readsOfPrivate compares viewers with and without contacts that upload in private only,
// and those of a site which counts private uploads in last_upload: all candidates show
// nothing there, and each read walks.
func (s *suite) readsOfPrivate(ctx context.Context) error {
	const (
		part    = "A read of a viewer with 1000 contacts, of whom most upload in private"
		none    = "none uploads in private"
		most    = "nine in ten upload only in private, which costs nothing"
		counted = "nine in ten upload only in private, and the site counts that"
	)
	reader := s.reader()
	walk := func(ctx context.Context, v contacts.Viewer) error {
		a, err := reader.Read(ctx, v, shown)
		if err == nil && (a.Source != recent.FromDatabase || len(a.Photos) != shown) {
			err = fmt.Errorf("viewer %s was shown %d photos, from the %s: want %d, by a walk", v.ID, len(a.Photos), a.Source, shown)
		}
		return err
	}
	times, costs, err := s.readTimes(ctx, []contender{asking(none, plainViewer, s.read()), asking(most, privateViewer, s.read())})
	if err != nil {
		return err
	}
	// Apart: a read that follows a walk takes longer, as little of it is in the processor's caches.
	walks, walksCosts, err := s.readTimes(ctx, []contender{asking(counted, countedViewer, walk)})
	if err != nil {
		return err
	}
	maps.Copy(times, walks)
	maps.Copy(costs, walksCosts)
	median := atQuantile(0.5)
	for _, name := range []string{none, most, counted} {
		f := figure{Part: part, Name: name + ", p50", Unit: "ms", Value: times[name].spread(median), Each: costs[name].expense()}
		if name != none {
			f.Ratio, f.Against = times[name].over(times[none], median), none+", p50"
		}
		if name == most {
			f.Aim = atMost(1.1)
		}
		s.results.add(f)
	}
	return nil
}

// readsOfMany reads for ordinary members, whose candidates' newest photo is not
// always visible, and whose rows are not all cached.
func (s *suite) readsOfMany(ctx context.Context) error {
	const part, name = "Reads of ordinary members, one of five photos not public", "reads"
	users := s.options.site.refilled()
	if err := s.fill(ctx, users); err != nil {
		return err
	}
	reader := s.reader()
	proofs := make(map[recent.Proof]int)
	next := 0
	times, costs, err := s.readTimes(ctx, []contender{{name: name, run: func(ctx context.Context) (int, error) {
		next++
		a, err := reader.Read(ctx, contacts.Viewer{ID: users[next*7919%len(users)]}, shown)
		proofs[a.Trace.Proof]++
		return 1, err
	}}})
	if err != nil {
		return err
	}
	for _, q := range quantiles {
		f := figure{Part: part, Name: q.name, Unit: "ms", Value: times[name].spread(atQuantile(q.q))}
		if q.q == 0.5 {
			f.Each, f.Samples = costs[name].expense(), costs[name]
		}
		s.results.add(f)
	}
	s.results.notef("Of %d reads of ordinary members, the first candidate alone proved %s %%, all candidates %s %%, the full walk %s %%.", next,
		percent(proofs[recent.ByNext], next), percent(proofs[recent.ByLowest]+proofs[recent.ByAll], next), percent(proofs[recent.ByWalk], next))
	return nil
}

func percent(n, of int) string { return number(100 * float64(n) / float64(of)) }
