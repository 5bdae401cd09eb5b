package recent_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/contactstest"
)

func (b bench) explain(t *testing.T) recent.Answer {
	t.Helper()
	e, err := b.Explain(t.Context(), me, 10)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// has checks the verdicts on all candidates, in order.
func has(t *testing.T, e recent.Answer, want ...recent.Candidate) {
	t.Helper()
	var got []recent.Candidate
	for _, c := range e.Trace.Candidates {
		got = append(got, recent.Candidate{Contact: c.Contact, Verdict: c.Verdict})
		if c.Now.Owner != c.Contact {
			t.Errorf("contact %d now: %+v", c.Contact, c.Now)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("candidates %+v, want %+v", got, want)
	}
}

// proves checks the proof of an answer.
func proves(t *testing.T, a recent.Answer, proof recent.Proof, bound uint64) {
	t.Helper()
	if a.Trace.Proof != proof || a.Trace.Bound != bound {
		t.Errorf("proven by %q with the bound %d, want %q, %d", a.Trace.Proof, a.Trace.Bound, proof, bound)
	}
}

func TestExplainingTheCommonRead(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	b.contact(12, 200)
	b.contact(13, 100)
	b.store.SetContact(11, me.ID, true, false)
	e := b.explain(t)
	b.called(t, "look at 11", "details of 3")
	has(t, e, recent.Candidate{Contact: 11, Verdict: recent.Chosen}, recent.Candidate{Contact: 12, Verdict: recent.NotLooked},
		recent.Candidate{Contact: 13, Verdict: recent.NotLooked})
	proves(t, e, recent.ByNext, 200)
	if c := e.Trace.Candidates[0]; !c.InSet || c.Score != 300 || c.Newest != (contacts.Photo{ID: 1100, DateUpload: 300}) || !c.Now.Friend || c.Now.Username != "member 11" {
		t.Errorf("chosen: %+v", c)
	}
	if c := e.Trace.Candidates[1]; c.Newest.ID != 0 || c.Now.Newest.DateUpload != 200 {
		t.Errorf("not looked at: %+v: the read looked at its photos", c)
	}
	if e.Source != recent.FromIndex || e.Trace.WalkReason != "" {
		t.Errorf("source %s, walk %q", e.Source, e.Trace.WalkReason)
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
	e := b.explain(t)
	slices.SortStableFunc(e.Trace.Candidates, func(x, y recent.Candidate) int { return int(x.Contact) - int(y.Contact) })
	has(t, e, recent.Candidate{Contact: 11, Verdict: recent.Nothing}, recent.Candidate{Contact: 12, Verdict: recent.Blocked},
		recent.Candidate{Contact: 13, Verdict: recent.NotContact}, recent.Candidate{Contact: 14, Verdict: recent.NotContact},
		recent.Candidate{Contact: 15, Verdict: recent.Older}, recent.Candidate{Contact: 16, Verdict: recent.Chosen},
		recent.Candidate{Contact: 17, Verdict: recent.Older}, recent.Candidate{Contact: 18, Verdict: recent.Nothing},
		recent.Candidate{Contact: 19, Verdict: recent.Older})
	proves(t, e, recent.ByLowest, 100)
	if hidden := e.Trace.Candidates[0].Now.Hidden; hidden.DateUpload != 900 || hidden.Visibility != contacts.Private {
		t.Errorf("hidden by 11: %+v", hidden)
	}
	if hidden := e.Trace.Candidates[7].Now.Hidden; hidden.Visibility != contacts.Family {
		t.Errorf("hidden by 18: %+v", hidden)
	}
	if removed, gone := e.Trace.Candidates[2].Now, e.Trace.Candidates[3].Now; !removed.IsMember || removed.IsContact || gone.IsMember {
		t.Errorf("13 now: %+v, 14 now: %+v", removed, gone)
	}
}

func TestExplainingASmallSet(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	proves(t, b.explain(t), recent.ByAll, 0)
	b.store.SetVisibility(1100, contacts.Private)
	e := b.explain(t)
	proves(t, e, recent.ByAll, 0)
	has(t, e, recent.Candidate{Contact: 11, Verdict: recent.Nothing})
	if e.Contact != nil || e.Trace.WalkReason != "" {
		t.Errorf("%+v", e)
	}
}

// The walk chooses a contact outside of the set. It is listed, too.
func TestExplainingAWalk(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, -900)
	b.contact(12, -800)
	b.contact(13, -700)
	b.contact(14, 500)
	b.index.entries = b.index.entries[:3]
	e := b.explain(t)
	b.called(t, "look at 11", "compare 3", "walk", "details of 4")
	has(t, e, recent.Candidate{Contact: 11, Verdict: recent.Nothing}, recent.Candidate{Contact: 12, Verdict: recent.Nothing},
		recent.Candidate{Contact: 13, Verdict: recent.Nothing}, recent.Candidate{Contact: 14, Verdict: recent.Chosen})
	if c := e.Trace.Candidates[3]; c.InSet || c.Newest.DateUpload != 500 {
		t.Errorf("%+v", c)
	}
	proves(t, e, recent.ByWalk, 0)
	if e.Trace.WalkReason != recent.NothingVisible || e.Trace.Walk.LookedAt != 4 {
		t.Errorf("trace %+v", e.Trace)
	}
}

// boundedStore's walks end before all contacts were looked at.
type boundedStore struct {
	*contactstest.Memory
}

func (s boundedStore) Walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Walked, error) {
	walked, err := s.Memory.Walk(ctx, v, limit)
	walked.Trace = contacts.WalkTrace{LookedAt: 32, Statements: 3, Bound: 60}
	return walked, err
}

func TestExplainingAWalkThatStopped(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	for err, reason := range map[error]recent.Reason{
		index.ErrMissing: recent.SetMissing, index.ErrUnavailable: recent.RedisUnavailable, index.ErrSettings: recent.OtherSettings,
		index.ErrUnknown: recent.SetUnknown,
	} {
		reader := recent.NewReader(&fakeIndex{err: err}, boundedStore{b.store.Memory}, b.hints, recent.Options{})
		e, err := reader.Explain(t.Context(), me, 10)
		if err != nil {
			t.Fatal(err)
		}
		proves(t, e, recent.ByWalk, 60)
		has(t, e, recent.Candidate{Contact: 11, Verdict: recent.Chosen})
		if e.Trace.WalkReason != reason || e.Trace.Walk.Statements != 3 || e.Trace.Candidates[0].InSet {
			t.Errorf("trace %+v, want reason %q", e.Trace, reason)
		}
	}
}

func TestExplainingThatNoContactEverUploaded(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.index.err = index.ErrMissing
	e := b.explain(t)
	b.called(t, "walk")
	proves(t, e, recent.ByWalk, 0)
	if len(e.Trace.Candidates) != 0 || e.Trace.Walk.LookedAt != 0 {
		t.Errorf("%+v", e)
	}
}

// The result of the comparison is void when the walk finds another contact.
func TestTheWalkOverrulesTheComparison(t *testing.T) {
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
	e := b.explain(t)
	has(t, e, recent.Candidate{Contact: 11, Verdict: recent.Nothing}, recent.Candidate{Contact: 12, Verdict: recent.Older},
		recent.Candidate{Contact: 13, Verdict: recent.Chosen})
	if e.Trace.WalkReason != recent.PhotosChanged {
		t.Errorf("reason %q", e.Trace.WalkReason)
	}
}

// The explanation is that of the read: later facts are kept apart.
func TestWhatChangedAfterTheReadStandsApart(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	b.contact(12, 200)
	b.store.before = func(_ context.Context, call string) error {
		if call == "details of 2" {
			b.store.Block(11, me.ID)
		}
		return nil
	}
	e := b.explain(t)
	has(t, e, recent.Candidate{Contact: 11, Verdict: recent.Chosen}, recent.Candidate{Contact: 12, Verdict: recent.NotLooked})
	if now := e.Trace.Candidates[0].Now; shown(e.Album) != 11 || !now.Blocks || now.Newest != nil || now.Hidden.ID != 1100 {
		t.Errorf("shown %d, now %+v", shown(e.Album), now)
	}
}

// A plain read asks for nothing that only an explanation needs.
func TestReadsDoNotPayForExplanations(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	b.contact(12, 200)
	b.read(t, 11, recent.FromIndex)
	b.called(t, "look at 11")
}

func TestExplanationsFail(t *testing.T) {
	t.Parallel()
	for _, failing := range []string{"look at 11", "details of 2"} {
		b := newBench(recent.Options{})
		b.contact(11, 300)
		b.contact(12, 200)
		b.store.before = func(_ context.Context, call string) error {
			if call == failing {
				return mysql.ErrUnavailable
			}
			return nil
		}
		if e, err := b.Explain(t.Context(), me, 10); !errors.Is(err, mysql.ErrUnavailable) || e.Trace.Candidates != nil {
			t.Errorf("%s: %+v, %v", failing, e, err)
		}
	}
}

// Where a candidate was found stands beside its verdict if that was not the set.
func TestWhereACandidateWasFound(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]recent.Candidate{
		"chosen":                    {InSet: true, Broadcast: true, Verdict: recent.Chosen},
		"chosen: found by the walk": {Verdict: recent.Chosen},
		"older: a broadcast member": {Broadcast: true, Verdict: recent.Older},
	} {
		c.Now = &contacts.Detail{}
		x := recent.Answer{Trace: recent.Trace{Candidates: []recent.Candidate{c}}}.Explanation(me.ID, nil)
		if row := x.Candidates[0]; row[len(row)-1] != want {
			t.Errorf("%+v: %q, want %q", c, row, want)
		}
	}
}

// The words of a whole answer.
func TestAnExplanationInWords(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	b.contact(12, 200)
	b.store.SetContact(11, me.ID, true, true)
	b.store.AddPhoto(1201, 12, "p", contacts.Family, 250)
	a := b.explain(t)
	a.Trace.WalkReason, a.Trace.Walk = recent.SetMissing, contacts.WalkTrace{LookedAt: 7, Statements: 2}
	late := 40.0
	want := recent.Explanation{
		Headline: me.ID.String() + ` sees 11 ("member 11"), from the index; photos: 1, newest: 1970-01-01 00:05:00`,
		Head:     []string{"CONTACT", "SCORE", "LAST UPLOAD", "NEWEST VISIBLE", "NEWEST HIDDEN", "GRANTS", "VERDICT"},
		Candidates: [][]string{
			{`11 ("member 11")`, "1970-01-01 00:05:00", "1970-01-01 00:05:00", "1970-01-01 00:05:00", "-", "friend,family", "chosen"},
			{`12 ("member 12")`, "1970-01-01 00:03:20", "1970-01-01 00:03:20", "1970-01-01 00:03:20", "1970-01-01 00:04:10 family", "-", "not looked at"},
		},
		Facts: [][2]string{
			{"proof", string(recent.ByNext)},
			{"bound", "1970-01-01 00:03:20"},
			{"walk", "set_missing; contacts looked at: 7, statements: 2"},
			{"behind", "by up to 40.0 s, the wait of the oldest task that may change a set"},
		},
	}
	if diff := cmp.Diff(want, a.Explanation(me.ID, &late)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
