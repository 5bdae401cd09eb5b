package recent_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

func TestTheCommonReadIsOneQuery(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	for i := range int64(5) {
		b.contact(11+contactID(i), 100*(i+1))
	}
	got := b.read(t, 15, recent.FromIndex)
	b.called(t, "look at 15")
	b.hinted(t)
	if c := got.Candidates(); c[0].Verdict != recent.Chosen || c[0].Newest.DateUpload != 500 || c[1].Verdict != recent.NotLooked {
		t.Errorf("trace %+v", c)
	}
}

// The measures of a viewer are in docs/page.md: how many statements a read is, by what
// is hidden from the viewer. Two that differ here can be told apart by their time.
func TestWhatIsHiddenShowsInTheNumberOfStatements(t *testing.T) {
	t.Parallel()
	const newest, older = 900, 100
	others := func(b bench) { // they show what they uploaded last
		b.contact(12, 800)
		b.contact(13, 700)
		b.contact(14, 600)
	}
	hides := func(b bench) { b.contact(11, -newest) }
	for situation, test := range map[string]struct {
		world      func(b bench)
		statements int // without those of a walk
		walks      bool
	}{
		"the newest upload of the contact that was active last can be seen, and is newer than those of all others": {func(b bench) { b.contact(11, newest); others(b) }, 1, false},
		"that upload is hidden, or one of the two blocks the other, and what is shown is older":                    {func(b bench) { hides(b); others(b) }, 3, false},
		"so many uploads are hidden that no candidate's proves the answer": {func(b bench) {
			for id := contactID(11); id < 14; id++ {
				b.contact(id, -newest, older)
			}
		}, 2, true},
		"the viewer has one contact, whatever that hides": {hides, 2, false},
	} {
		b := newBench(recent.Options{})
		test.world(b)
		a, err := b.Read(t.Context(), me, 10)
		if err != nil {
			t.Fatal(err)
		}
		statements := len(b.store.calls)
		if test.walks {
			statements--
		}
		if walked := a.Source == recent.FromDatabase; statements != test.statements || walked != test.walks {
			t.Errorf("%s: %d statements, walked %v: %q", situation, statements, walked, b.store.calls)
		}
		row := fmt.Sprintf("| %s | %d |", situation, statements)
		if test.walks {
			row = fmt.Sprintf("| %s | %d, and a walk |", situation, statements)
		}
		if page, err := os.ReadFile("../../docs/page.md"); err != nil || !strings.Contains(string(page), row) {
			t.Errorf("docs/page.md does not say %s (%v)", row, err)
		}
	}
	// A block, a photo for friends and a private one that the site counts look the same.
	for what, hide := range map[string]func(b bench){
		"a block":   func(b bench) { b.contact(11, newest); b.store.Block(11, me.ID) },
		"friends":   func(b bench) { b.contact(11, newest); b.store.SetVisibility(1100, contacts.Friends) },
		"private":   func(b bench) { b.contact(11, newest); b.store.SetVisibility(1100, contacts.Private) },
		"not there": func(b bench) { b.contact(11, newest); b.store.RemoveContact(me.ID, 11) },
	} {
		b := newBench(recent.Options{})
		hide(b)
		others(b)
		b.read(t, 12, recent.FromIndex)
		t.Run(what, func(t *testing.T) { b.called(t, "look at 11", "compare 4", "look at 12") })
	}
}

func TestTheFirstHasOnlyPrivatePhotosOfLate(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900, 100) // its visible photo is older than others'
	b.contact(12, 800)
	b.contact(13, 700)
	got := b.read(t, 12, recent.FromIndex)
	b.called(t, "look at 11", "compare 3", "look at 12")
	if c := got.Candidates(); c[0].Verdict != recent.Older || c[0].Newest.DateUpload != 100 || c[1].Verdict != recent.Chosen || c[2].Verdict != recent.Older {
		t.Errorf("trace %+v", c)
	}
}

func TestTheFirstWinsThoughNotAtOnce(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900, 650)
	b.contact(12, -800, 600)
	b.contact(13, 300)
	b.read(t, 11, recent.FromIndex)
	b.called(t, "look at 11", "compare 3", "look at 11")
}

// Photos of a second are distinguished by id, and no score knows it: equality with
// a bound proves nothing.
func TestTiesAreNoProof(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 500)
	b.contact(12, 500) // higher photo ids: wins by definition
	b.contact(13, 100)
	b.index.entries = []index.Entry{{Contact: 11, Score: 500}, {Contact: 12, Score: 500}, {Contact: 13, Score: 100}}
	b.read(t, 12, recent.FromIndex)
	b.called(t, "look at 11", "compare 3", "look at 12")
}

func TestATieWithTheLowestScoreWalks(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900)
	b.contact(12, -800)
	b.contact(13, 500)
	b.contact(14, 500) // outside the set, and wins by id
	b.index.entries = b.index.entries[:2]
	b.index.entries = append(b.index.entries, index.Entry{Contact: 13, Score: 500})
	got := b.read(t, 14, recent.FromDatabase)
	b.hinted(t) // the set is as it should be
	if got.Trace.WalkReason == "" {
		t.Error("the trace does not say why")
	}
}

func TestNothingVisibleInTheSetWalks(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	for i := range int64(3) {
		b.contact(11+contactID(i), -900-i)
	}
	b.store.AddMember(50, "outside the set")
	b.store.SetContact(me.ID, 50, false, false)
	b.store.AddPhoto(5000, 50, "old", contacts.Public, 10)
	b.store.SetLastUpload(50, 10)
	b.read(t, 50, recent.FromDatabase)
}

func TestASmallSetIsComplete(t *testing.T) {
	t.Parallel()
	for photos, want := range map[int64]contactID{-900: 12, 900: 11} {
		b := newBench(recent.Options{})
		b.contact(11, photos)
		b.contact(12, 5)
		b.read(t, want, recent.FromIndex)
	}
	b := newBench(recent.Options{})
	b.contact(11, -900)
	b.read(t, 0, recent.FromIndex)
	b = newBench(recent.Options{})
	b.contact(11, 900)
	b.read(t, 11, recent.FromIndex)
	b.called(t, "look at 11")
}

func TestGhostsAreFilteredAndReported(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 900)
	b.contact(12, 800)
	b.contact(13, 700)
	b.store.RemoveContact(me.ID, 11)
	got := b.read(t, 12, recent.FromIndex)
	b.hinted(t, "look again at 1, 11")
	if got.Candidates()[0].Verdict != recent.NotContact {
		t.Errorf("trace %+v", got.Candidates())
	}
}

func TestABlockLooksLikeNothingToSee(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 900)
	b.contact(12, 800)
	b.store.Block(11, me.ID)
	got := b.read(t, 12, recent.FromIndex)
	b.hinted(t)
	if got.Candidates()[0].Verdict != recent.Nothing {
		t.Errorf("trace %+v", got.Candidates())
	}
}

// Whatever is wrong with Redis, the answer stays right; a refill is asked for
// where one would help.
func TestWithoutAUsableSetTheDatabaseAnswers(t *testing.T) {
	t.Parallel()
	for err, refill := range map[error]bool{
		index.ErrMissing: true, index.ErrMalformed: true, index.ErrUnavailable: false,
		index.ErrSettings: false, errors.New("anything"): false,
	} {
		b := newBench(recent.Options{})
		b.contact(11, 900)
		b.index.err = err
		b.read(t, 11, recent.FromDatabase)
		if refill {
			b.hinted(t, "refill 1")
		} else {
			b.hinted(t)
		}
	}
}

func TestNoRefillForAViewerWithoutContactsToIndex(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11)
	b.index.err = index.ErrMissing
	if a := b.read(t, 0, recent.FromDatabase); a.Trace.WalkReason != recent.NoContacts {
		t.Errorf("%+v", a.Trace)
	}
	b.hinted(t)
}

func TestAMissingViewer(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, index.ErrMissing} {
		b := newBench(recent.Options{})
		b.contact(11, 900)
		b.store.DeleteMember(me.ID)
		b.index.err = err
		if _, err := b.Read(t.Context(), me, 10); !errors.Is(err, contacts.ErrNoMember) {
			t.Errorf("err %v, want ErrNoMember", err)
		}
	}
}

func TestAFailingDatabaseIsAnError(t *testing.T) {
	t.Parallel()
	for _, failing := range []string{"look at 11", "compare 3", "look at 12", "walk"} {
		b := newBench(recent.Options{})
		b.contact(11, -900)
		b.contact(12, 800)
		b.contact(13, 700)
		if failing == "walk" {
			b.index.err = index.ErrMissing
		}
		b.store.before = func(_ context.Context, call string) error {
			if call == failing {
				return fmt.Errorf("%s: %w", call, mysql.ErrUnavailable)
			}
			return nil
		}
		if got, err := b.Read(t.Context(), me, 10); !errors.Is(err, mysql.ErrUnavailable) {
			t.Errorf("%s fails: %+v, %v, want ErrUnavailable", failing, got.Album, err)
		}
	}
}

// The photos change between the statements of one read: an answer put together
// from several instants may be right at none, so the walk decides.
func TestAChangeDuringTheReadIsNoticed(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900)
	b.contact(12, 800, 50)
	b.contact(13, 700)
	b.store.before = func(_ context.Context, call string) error {
		if call == "look at 12" {
			b.store.SetVisibility(1200, contacts.Private)
		}
		return nil
	}
	b.read(t, 13, recent.FromDatabase)
	b.called(t, "look at 11", "compare 3", "look at 12", "walk")
}

// While Redis refuses writes the sets are behind. Then reads walk as far as they may, and beyond that
// are answered by way of the index, as are those that are not of viewers.
func TestReadsOfStaleSets(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		options recent.Options
		shown   contactID
		reason  recent.Reason
	}{
		"may walk":     {recent.Options{}, 11, recent.WritesRefused},
		"may not walk": {recent.Options{Limiter: withoutWalks(t)}, 14, ""},
		"uncounted":    {recent.Options{Uncounted: true}, 14, ""},
	} {
		b := newBench(test.options)
		b.index.err = index.ErrBehind
		for id := contactID(11); id < 15; id++ {
			b.contact(id, int64(id))
		}
		b.store.AddPhoto(9999, 11, "not indexed yet", contacts.Public, 900)
		b.store.SetLastUpload(11, 900)
		a, err := b.Read(t.Context(), me, 10)
		if err != nil || shown(a.Album) != test.shown || a.Trace.WalkReason != test.reason {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
		b.hinted(t)
	}
}

// A read that needs a walk asks MySQL for nothing when that is refused.
func TestAWalkThatIsRefusedAsksNothing(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{Limiter: withoutWalks(t)})
	b.contact(11, 900)
	b.index.err = index.ErrMissing
	if _, err := b.Read(t.Context(), me, 10); !errors.Is(err, recent.ErrBusy) {
		t.Fatalf("%v, want ErrBusy", err)
	}
	b.called(t)
	b.hinted(t)
}

// A read leaves its place, whatever it turns out to be. A refused read asks nothing.
func TestPlacesOfReads(t *testing.T) {
	t.Parallel()
	limiter := admit.New(1)
	for name, test := range map[string]struct {
		second int64 // the date of the second contact's photo
		set    error
		source recent.Source
	}{
		"proven":   {800, nil, recent.FromIndex},
		"compared": {900, nil, recent.FromIndex},
		"walk":     {800, index.ErrMissing, recent.FromDatabase},
		"fails":    {800, context.Canceled, ""},
	} {
		b := newBench(recent.Options{Limiter: limiter})
		b.index.err = test.set
		b.contact(11, 900)
		b.contact(12, test.second)
		b.store.before = func(context.Context, string) error {
			if test.source == "" {
				return test.set
			}
			return nil
		}
		if a, err := b.Read(t.Context(), me, 10); a.Source != test.source || (err != nil) != (test.source == "") {
			t.Errorf("%s: %s, %v", name, a.Source, err)
		}
	}
	place, err := limiter.Enter(t.Context())
	if err != nil {
		t.Fatalf("a place was not left: %v", err)
	}
	defer place.Leave(false)
	b := newBench(recent.Options{Limiter: limiter})
	if _, err := b.Read(t.Context(), me, 10); !errors.Is(err, recent.ErrBusy) {
		t.Errorf("without a place: %v", err)
	}
	b.called(t)
}
