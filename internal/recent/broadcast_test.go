package recent_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/contactstest"
)

// broadcasts makes id a broadcast member with a photo for each date, followed by me or not. It is in no set.
func (b bench) broadcasts(t *testing.T, id member.ID, followed bool, dates ...int64) {
	t.Helper()
	before := slices.Clone(b.index.entries)
	b.contact(id, dates...)
	b.index.entries = before
	if !followed {
		b.store.RemoveContact(me.ID, id)
	}
	if err := b.store.AddBroadcast(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
}

// The questions of a read, and its answer, where broadcast members stand before, between and behind the candidates of
// the set: 11 of 90, 12 of 80, 13 of 60, and 14 of 50, without a place in it.
func TestReadWithBroadcastMembers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(t *testing.T, b bench)
		shown  member.ID
		source recent.Source
		proof  recent.Proof
		bound  uint64
		calls  []string
	}{
		"none": {func(*testing.T, bench) {}, 11, recent.FromIndex, recent.ByNext, 80, []string{"look at 11"}},
		"behind the second": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, 70)
		}, 11, recent.FromIndex, recent.ByNext, 80, []string{"look at 11"}},
		"no contacts, before all": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, false, 99)
			b.broadcasts(t, 22, false, 95)
		}, 11, recent.FromIndex, recent.ByNext, 80, []string{"look at 11"}},
		"a contact before all": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, false, 99)
			b.broadcasts(t, 22, true, 95)
		}, 22, recent.FromIndex, recent.ByNext, 90, []string{"look at 11", "look at 22"}},
		"two contacts before all": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, 99)
			b.broadcasts(t, 22, true, 95)
		}, 21, recent.FromIndex, recent.ByNext, 95, []string{"look at 11", "look at 21"}},
		"a contact in the second of the first": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, 90)
		}, 21, recent.FromIndex, recent.ByLowest, 60, []string{"look at 11", "look at 21", "compare 3", "look at 21"}},
		"a contact with nothing to show": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, -99)
		}, 11, recent.FromIndex, recent.ByLowest, 60, []string{"look at 11", "look at 21", "compare 3", "look at 11"}},
		"between the first two, older than the first's newest": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, 85)
		}, 11, recent.FromIndex, recent.ByNext, 85, []string{"look at 11"}},
		"between the first two, newer than the first's newest": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, 85)
			b.store.DeletePhoto(1100)
			b.store.AddPhoto(1101, 11, "photo", contacts.Public, 82)
		}, 21, recent.FromIndex, recent.ByLowest, 60, []string{"look at 11", "compare 3", "look at 21"}},
		"in the set with an old score": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, 99)
			b.index.entries = append(b.index.entries[:2:2], index.Entry{Contact: 21, Score: 60})
		}, 21, recent.FromIndex, recent.ByNext, 90, []string{"look at 11", "look at 21"}},
		"the first of the set": {func(t *testing.T, b bench) {
			b.broadcasts(t, 21, true, 95)
			b.index.entries = append([]index.Entry{{Contact: 21, Score: 95}}, b.index.entries[:2]...)
		}, 21, recent.FromIndex, recent.ByNext, 90, []string{"look at 21"}},
		"more than are compared": {func(t *testing.T, b bench) {
			for i := range 40 { // all of them private but the last
				b.broadcasts(t, member.ID(100+i), true, -int64(200-i))
			}
			b.broadcasts(t, 200, true, 150)
		}, 200, recent.FromDatabase, recent.ByWalk, 0, []string{"look at 11", "look at 100", "compare 3", "walk"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(recent.Options{})
			b.contact(11, 90)
			b.contact(12, 80)
			b.contact(13, 60)
			b.contact(14, 50)
			b.index.entries = b.index.entries[:3]
			test.change(t, b)
			a := b.read(t, test.shown, test.source)
			if a.Trace.Proof != test.proof || a.Trace.Bound != test.bound {
				t.Errorf("proof %s, bound %d, want %s, %d", a.Trace.Proof, a.Trace.Bound, test.proof, test.bound)
			}
			b.called(t, test.calls...)
			var hints []string
			if test.proof == recent.ByNext && len(test.calls) > 1 { // the set has the broadcast member next time
				hints = append(hints, fmt.Sprintf("look again at 1, %d", test.shown))
			}
			b.hinted(t, hints...)
		})
	}
}

// randomSite makes a site of few members and dates, where ties are frequent, with a set of me that has what the
// invariants promise: each contact above the lowest score that is no broadcast member (I1), bounds (I2), and all others
// if it is small (I3). Some broadcast members are in it, with old scores.
func randomSite(t *testing.T, random *rand.Rand) (*contactstest.Memory, []index.Entry) {
	t.Helper()
	const minSet, maxSet = 2, 3
	site := contactstest.NewMemory()
	site.AddMember(me.ID, "me")
	var set []index.Entry
	for i := range 1 + random.IntN(8) {
		id := member.ID(10 + i)
		site.AddMember(id, "")
		upload := uint64(0)
		for range random.IntN(3) {
			date, visibility := 1+random.Uint64N(9), contacts.Public
			if random.IntN(3) == 0 {
				visibility = contacts.Private
			}
			site.AddPhoto(0, id, "", visibility, date)
			upload = max(upload, date)
		}
		if random.IntN(4) == 0 {
			upload++ // it may be too high
		}
		site.SetLastUpload(id, upload)
		isContact := random.IntN(4) > 0
		if isContact {
			site.SetContact(me.ID, id, false, false)
		}
		isBroadcast := random.IntN(2) == 0
		if isBroadcast {
			if err := site.AddBroadcast(t.Context(), id, true); err != nil {
				t.Fatal(err)
			}
		}
		switch {
		case upload == 0:
		case isBroadcast && (random.IntN(2) == 0 || !isContact): // it is not in the set
		case isBroadcast:
			set = append(set, index.Entry{Contact: id, Score: 1 + random.Uint64N(upload)})
		case isContact:
			set = append(set, index.Entry{Contact: id, Score: upload})
		}
	}
	slices.SortStableFunc(set, func(x, y index.Entry) int { return int(y.Score) - int(x.Score) })
	if len(set) > maxSet {
		set = set[:maxSet]
	} else if len(set) >= minSet && random.IntN(2) == 0 {
		set = set[:minSet]
	}
	return site, set
}

// altered changes the answers of the store, as a read without the rule would.
type altered struct {
	*contactstest.Memory
	look    func(l *contacts.Look, bound uint64)
	compare func(c *contacts.Comparison)
}

func (s altered) Look(ctx context.Context, v contacts.Viewer, owner member.ID, limit int, bound uint64) (contacts.Look, error) {
	l, err := s.Memory.Look(ctx, v, owner, limit, bound)
	if s.look != nil {
		s.look(&l, bound)
	}
	return l, err
}

func (s altered) Compare(ctx context.Context, v contacts.Viewer, owners []member.ID, bound uint64) (contacts.Comparison, error) {
	c, err := s.Memory.Compare(ctx, v, owners, bound)
	if s.compare != nil {
		s.compare(&c)
	}
	return c, err
}

// wrongAnswers reads on some random sites, and returns the first answer that is not that of the definition.
func wrongAnswers(t *testing.T, sites int, alter altered) (wrong string, bySet int) {
	t.Helper()
	for seed := range uint64(sites) {
		site, set := randomSite(t, rand.New(rand.NewPCG(seed, 1)))
		if len(set) == 0 {
			continue
		}
		alter.Memory = site
		r := recent.NewReader(&fakeIndex{entries: set}, alter, &recordedHints{}, recent.Options{Min: 2})
		got, err := r.Read(t.Context(), me, 3)
		if err != nil {
			t.Fatal(err)
		}
		want, err := site.Walk(t.Context(), me, 3)
		if err != nil {
			t.Fatal(err)
		}
		if got.Source == recent.FromIndex {
			bySet++
		}
		if !got.IsSame(want.Album) {
			return fmt.Sprintf("site %d, set %v: %+v, want %+v", seed, set, got, want.Album), bySet
		}
	}
	return "", bySet
}

// Each answer is that of the definition, whatever stands beside the set.
func TestPropertyReadsAnswerByTheDefinition(t *testing.T) {
	t.Parallel()
	wrong, bySet := wrongAnswers(t, 60_000, altered{})
	if wrong != "" || bySet < 30_000 {
		t.Errorf("%s; %d answers by the set", wrong, bySet)
	}
}

// TestEachRuleOfBroadcastMembersIsNeeded leaves out a rule of the statements at a time: the property notices.
func TestEachRuleOfBroadcastMembersIsNeeded(t *testing.T) {
	t.Parallel()
	for rule, alter := range map[string]altered{
		"broadcast contacts above the set are asked for": {look: func(l *contacts.Look, _ uint64) { l.Above = nil }},
		"those of the very second of the first, too": {look: func(l *contacts.Look, bound uint64) {
			l.Above = slices.DeleteFunc(l.Above, func(c contacts.Contact) bool { return c.LastUpload == bound })
		}},
		"the second of them bounds the answer": {look: func(l *contacts.Look, _ uint64) { l.Above = l.Above[:min(1, len(l.Above))] }},
		"those below bound the answer":         {look: func(l *contacts.Look, _ uint64) { l.Below = 0 }},
		"a comparison has broadcast contacts": {compare: func(c *contacts.Comparison) {
			c.Standings = c.Standings[:len(c.Standings)-len(c.Broadcasts)]
			c.Broadcasts = nil
		}},
	} {
		t.Run(rule, func(t *testing.T) {
			t.Parallel()
			if wrong, _ := wrongAnswers(t, 60_000, alter); wrong == "" {
				t.Error("no answer was wrong")
			}
		})
	}
}
