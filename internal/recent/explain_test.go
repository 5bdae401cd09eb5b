package recent_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

// explained reads, and explains to an operator.
func (b bench) explained(t *testing.T) (recent.Answer, recent.OperatorExplanation) {
	t.Helper()
	a, err := b.Read(t.Context(), me, 10)
	if err != nil {
		t.Fatal(err)
	}
	e, err := a.ToOperator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a, e
}

// wants checks a candidate's contact, verdict and words of the reason.
func wants(t *testing.T, c recent.Candidate, contact contactID, verdict recent.Verdict, why string) {
	t.Helper()
	if c.Contact != contact || c.Verdict != verdict || !strings.Contains(c.Why, why) {
		t.Errorf("contact %d is %q because %q, want %d, %q, %q", c.Contact, c.Verdict, c.Why, contact, verdict, why)
	}
	if c.Now == nil || c.Now.Owner != contact {
		t.Errorf("contact %d now: %+v", contact, c.Now)
	}
}

// says checks the words of a sentence.
func says(t *testing.T, sentence string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(sentence, w) {
			t.Errorf("%q does not say %q", sentence, w)
		}
	}
}

func TestExplainingTheCommonRead(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	b.contact(12, 200)
	b.contact(13, 100)
	b.store.SetContact(11, me.ID, true, false)
	a, e := b.explained(t)
	b.called(t, "photos of 11", "details of 3")
	wants(t, e.Candidates[0], 11, recent.Chosen, "nobody has a newer")
	bound := "(1970-01-01 00:05:00 UTC) beats the next score (1970-01-01 00:03:20 UTC)"
	wants(t, e.Candidates[1], 12, recent.NotLooked, bound)
	wants(t, e.Candidates[2], 13, recent.NotLooked, bound)
	says(t, e.Proof, "first candidate (1970-01-01 00:05:00 UTC)", "next one (1970-01-01 00:03:20 UTC)")
	if c := e.Candidates[0]; !c.InSet || c.Score != 300 || c.Newest != 300 || c.NewestID != 1100 || !c.Now.Friend || c.Now.Username != "member 11" {
		t.Errorf("chosen: %+v, now %+v", c, c.Now)
	}
	if e.Candidates[1].Newest != 0 || e.Candidates[1].Now.Newest.DateUpload != 200 {
		t.Errorf("not looked at: %+v: the read looked at its photos", e.Candidates[1])
	}
	if e.Walk != nil || len(e.Steps) != len(a.Trace.Steps)+1 || e.Steps[len(e.Steps)-1].Name != "details" {
		t.Errorf("walk %+v, steps %+v", e.Walk, e.Steps)
	}
}

func TestExplainingTheLosers(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900)
	b.contact(12, 890)
	b.contact(13, 880)
	b.contact(14, 870)
	b.contact(15, 500)
	b.contact(16, 500)
	b.contact(17, 400)
	b.contact(18, 390)
	b.contact(19, 100)
	b.store.Block(12, me.ID)
	b.store.RemoveContact(me.ID, 13)
	b.store.DeleteMember(14)
	b.store.SetVisibility(1800, contacts.Family)
	_, e := b.explained(t)
	for i, want := range []struct {
		contact contactID
		verdict recent.Verdict
		why     string
	}{
		{11, recent.Nothing, "its newest (1970-01-01 00:15:00 UTC) is private"},
		{12, recent.Blocked, "it blocks the viewer"},
		{13, recent.NotContact, "does not call it a contact"},
		{14, recent.NotContact, "no member any more"},
		{16, recent.Chosen, "nobody has a newer"},
		{15, recent.Older, "same second"},
		{17, recent.Older, "older than the answer's (1970-01-01 00:08:20 UTC)"},
		{18, recent.Nothing, "for its family"},
		{19, recent.Older, "older"},
	} {
		at := slices.IndexFunc(e.Candidates, func(c recent.Candidate) bool { return c.Contact == want.contact })
		if at < 0 {
			t.Fatalf("case %d: no candidate %d", i, want.contact)
		}
		wants(t, e.Candidates[at], want.contact, want.verdict, want.why)
	}
	says(t, e.Proof, "all candidates (1970-01-01 00:08:20 UTC)", "lowest score of the set (1970-01-01 00:01:40 UTC)")
}

func TestExplainingASmallSet(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	_, e := b.explained(t)
	says(t, e.Proof, "complete (members: 1; below 3", "no other member has a newer visible photo")
	b.store.SetVisibility(1100, contacts.Private)
	_, e = b.explained(t)
	says(t, e.Proof, "complete (members: 1", "nobody in it has a visible photo")
	if e.Walk != nil || e.Candidates[0].Verdict != recent.Nothing {
		t.Errorf("%+v", e)
	}
}

// The walk chooses somebody outside of the set, which is told of, too.
func TestExplainingAWalk(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900)
	b.contact(12, -800)
	b.contact(13, -700)
	b.contact(14, 500)
	b.index.entries = b.index.entries[:3]
	a, e := b.explained(t)
	b.called(t, "photos of 11", "standings of 3", "walk", "details of 4")
	wants(t, e.Candidates[3], 14, recent.Chosen, "the set does not hold it")
	if c := e.Candidates[3]; c.InSet || c.Newest != 500 {
		t.Errorf("%+v", c)
	}
	if e.Walk == nil || e.Walk.Reason != recent.NothingVisible || e.Walk.LookedAt != 4 || a.Trace.Walk.LookedAt != 4 {
		t.Fatalf("walk %+v", e.Walk)
	}
	says(t, e.Walk.Stopped, "all contacts who ever uploaded (4)")
	says(t, e.Proof, e.Walk.Stopped)
}

// boundedStore's walks end before they saw everybody.
type boundedStore struct {
	*contacts.Memory
}

func (s boundedStore) Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error) {
	walked, err := s.Memory.Walk(ctx, v, limit)
	walked.Trace = contacts.WalkTrace{LookedAt: 32, Passes: 1, Statements: 3, Bound: 60}
	return walked, err
}

func TestExplainingAWalkThatStopped(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	for err, reason := range map[error]string{
		index.ErrMissing: recent.SetMissing, index.ErrUnavailable: recent.RedisUnavailable, &index.SettingsError{}: recent.OtherSettings,
	} {
		reader := recent.NewReader(&fakeIndex{err: err}, boundedStore{b.store.Memory}, b.hints, recent.Options{})
		a, err := reader.Read(t.Context(), me, 10)
		if err != nil {
			t.Fatal(err)
		}
		e, err := a.ToOperator(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if e.Walk.Reason != reason || e.Walk.Passes != 1 || e.Walk.Statements != 3 {
			t.Errorf("walk %+v, want reason %q", e.Walk, reason)
		}
		says(t, e.Walk.Stopped, "(1970-01-01 00:05:00 UTC) is newer than the last upload (1970-01-01 00:01:00 UTC at most)")
		wants(t, e.Candidates[0], 11, recent.Chosen, "the set does not hold it")
	}
}

func TestExplainingThatNobodyEverUploaded(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.index.err = index.ErrMissing
	_, e := b.explained(t)
	says(t, e.Proof, "no contact who ever uploaded")
	if len(e.Candidates) != 0 || e.Walk.LookedAt != 0 {
		t.Errorf("%+v", e)
	}
}

// What the comparison came to is void when the walk finds somebody else.
func TestTheWalkOverrulesTheComparison(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900)
	b.contact(12, 800, 50)
	b.contact(13, 700)
	b.store.before = func(_ context.Context, call string) error {
		if call == "photos of 12" {
			b.store.SetVisibility(1200, contacts.Private)
		}
		return nil
	}
	_, e := b.explained(t)
	wants(t, e.Candidates[1], 12, recent.Older, "changed while")
	wants(t, e.Candidates[2], 13, recent.Chosen, "nobody")
	says(t, e.Walk.Reason, recent.PhotosChanged)
}

// The explanation tells of the read that was answered: what is seen afterwards
// stands apart.
func TestWhatChangedAfterTheReadStandsApart(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	b.contact(12, 200)
	a := b.read(t, 11, recent.FromIndex)
	b.store.Block(11, me.ID)
	e, err := a.ToOperator(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wants(t, e.Candidates[0], 11, recent.Chosen, "nobody")
	if now := e.Candidates[0].Now; !now.Blocks || now.Newest != nil || now.Hidden.ID != 1100 {
		t.Errorf("now %+v", now)
	}
	v, err := a.ToViewer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.Ranking[0].Contact != 11 || v.Ranking[0].Newest.ID != 1100 || len(v.Ranking) != 2 {
		t.Errorf("ranking %+v", v.Ranking)
	}
}

func TestTheViewerIsToldARanking(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900, 100)
	b.contact(12, 800)
	b.contact(13, -700)
	b.contact(14, 600)
	a := b.read(t, 12, recent.FromIndex)
	e, err := a.ToViewer(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []recent.Ranked{
		{Contact: 12, Newest: contacts.Photo{ID: 1200, DateUpload: 800}, Verdict: recent.Chosen},
		{Contact: 14, Newest: contacts.Photo{ID: 1400, DateUpload: 600}, Verdict: recent.Older},
		{Contact: 11, Newest: contacts.Photo{ID: 1101, DateUpload: 100}, Verdict: recent.Older},
	}
	if !slices.Equal(e.Ranking, want) {
		t.Errorf("ranking %+v, want %+v", e.Ranking, want)
	}
	says(t, e.Proof, "contact 12", "1970-01-01 00:13:20 UTC", "no other contact has a newer one")
	b.store.AddPhoto(1401, 14, "new", contacts.Public, 1000)
	if e, err = a.ToViewer(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.Ranking[0].Verdict != recent.Newer || e.Ranking[1].Verdict != recent.Chosen {
		t.Errorf("after an upload: ranking %+v", e.Ranking)
	}
	says(t, e.Proof, "Contact 14 has come first since")
}

func TestTheViewerIsToldOfNothingToShow(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900)
	e, err := b.read(t, 0, recent.FromIndex).ToViewer(t.Context())
	if err != nil || len(e.Ranking) != 0 {
		t.Fatalf("%+v, %v", e, err)
	}
	says(t, e.Proof, "No contact has a photo that the viewer may see")
}

// A plain read asks for nothing that only an explanation needs.
func TestExplainingCostsOnlyWhoAsks(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	b.contact(12, 200)
	a := b.read(t, 11, recent.FromIndex)
	b.called(t, "photos of 11")
	if _, err := a.ToViewer(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.called(t, "photos of 11", "ranking")
}

func TestExplanationsFail(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	a := b.read(t, 11, recent.FromIndex)
	b.store.before = func(context.Context, string) error { return mysql.ErrUnavailable }
	if e, err := a.ToOperator(t.Context()); !errors.Is(err, mysql.ErrUnavailable) || e.Candidates != nil {
		t.Errorf("to an operator: %+v, %v", e, err)
	}
	if e, err := a.ToViewer(t.Context()); !errors.Is(err, mysql.ErrUnavailable) || e.Ranking != nil {
		t.Errorf("to the viewer: %+v, %v", e, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.ToViewer(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A ranking is a walk, and bounded as they are.
func TestRankingsTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(recent.Options{Walks: 1, WalkWait: time.Second})
		b.contact(11, 900)
		a := b.read(t, 11, recent.FromIndex)
		release := make(chan struct{})
		b.store.before = func(context.Context, string) error {
			<-release
			return nil
		}
		first := make(chan error, 1)
		go func() {
			_, err := a.ToViewer(t.Context())
			first <- err
		}()
		synctest.Wait()
		if _, err := a.ToViewer(t.Context()); !errors.Is(err, recent.ErrBusy) {
			t.Errorf("the second: %v, want ErrBusy", err)
		}
		close(release)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if _, err := a.ToViewer(t.Context()); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// An answer that no reader found explains itself as far as it can.
func TestAnAnswerMadeByHand(t *testing.T) {
	t.Parallel()
	a := recent.Answer{Source: recent.FromIndex, Trace: recent.Trace{Candidates: []recent.Examined{{Contact: 11, Verdict: recent.NotLooked}}}}
	if e, err := a.ToOperator(t.Context()); err != nil || len(e.Candidates) != 1 || e.Candidates[0].Now != nil {
		t.Errorf("to an operator: %+v, %v", e, err)
	}
	if e, err := a.ToViewer(t.Context()); err != nil || len(e.Ranking) != 0 {
		t.Errorf("to the viewer: %+v, %v", e, err)
	}
}
