package recent_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

func (b bench) explain(t *testing.T) recent.Explanation {
	t.Helper()
	e, err := b.Explain(t.Context(), me, 10)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// has checks the verdicts on all candidates, in order.
func has(t *testing.T, e recent.Explanation, want ...recent.Examined) {
	t.Helper()
	var got []recent.Examined
	for _, c := range e.Candidates {
		got = append(got, recent.Examined{Contact: c.Contact, Verdict: c.Verdict})
		if c.Now.Owner != c.Contact {
			t.Errorf("contact %d now: %+v", c.Contact, c.Now)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("candidates %+v, want %+v", got, want)
	}
}

// proves checks what an answer rests on.
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
	has(t, e, recent.Examined{Contact: 11, Verdict: recent.Chosen}, recent.Examined{Contact: 12, Verdict: recent.NotLooked},
		recent.Examined{Contact: 13, Verdict: recent.NotLooked})
	proves(t, e.Answer, recent.ByNext, 200)
	if c := e.Candidates[0]; !c.InSet || c.Score != 300 || c.Newest != 300 || c.NewestID != 1100 || !c.Now.Friend || c.Now.Username != "member 11" {
		t.Errorf("chosen: %+v", c)
	}
	if c := e.Candidates[1]; c.Newest != 0 || c.Now.Newest.DateUpload != 200 {
		t.Errorf("not looked at: %+v: the read looked at its photos", c)
	}
	if steps := e.Trace.Steps; e.Source != recent.FromIndex || e.Trace.WalkReason != "" || steps[len(steps)-1].Name != "details" {
		t.Errorf("source %s, walk %q, steps %+v", e.Source, e.Trace.WalkReason, steps)
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
	slices.SortStableFunc(e.Candidates, func(x, y recent.Candidate) int { return int(x.Contact) - int(y.Contact) })
	has(t, e, recent.Examined{Contact: 11, Verdict: recent.Nothing}, recent.Examined{Contact: 12, Verdict: recent.Blocked},
		recent.Examined{Contact: 13, Verdict: recent.NotContact}, recent.Examined{Contact: 14, Verdict: recent.NotContact},
		recent.Examined{Contact: 15, Verdict: recent.Older}, recent.Examined{Contact: 16, Verdict: recent.Chosen},
		recent.Examined{Contact: 17, Verdict: recent.Older}, recent.Examined{Contact: 18, Verdict: recent.Nothing},
		recent.Examined{Contact: 19, Verdict: recent.Older})
	proves(t, e.Answer, recent.ByLowest, 100)
	if hidden := e.Candidates[0].Now.Hidden; hidden.DateUpload != 900 || hidden.Visibility != contacts.Private {
		t.Errorf("hidden by 11: %+v", hidden)
	}
	if hidden := e.Candidates[7].Now.Hidden; hidden.Visibility != contacts.Family {
		t.Errorf("hidden by 18: %+v", hidden)
	}
	if removed, gone := e.Candidates[2].Now, e.Candidates[3].Now; !removed.IsMember || removed.IsContact || gone.IsMember {
		t.Errorf("13 now: %+v, 14 now: %+v", removed, gone)
	}
}

func TestExplainingASmallSet(t *testing.T) {
	t.Parallel()
	b := newBench(recent.Options{})
	b.contact(11, 300)
	proves(t, b.explain(t).Answer, recent.ByAll, 0)
	b.store.SetVisibility(1100, contacts.Private)
	e := b.explain(t)
	proves(t, e.Answer, recent.ByAll, 0)
	has(t, e, recent.Examined{Contact: 11, Verdict: recent.Nothing})
	if e.Contact != nil || e.Trace.WalkReason != "" {
		t.Errorf("%+v", e)
	}
}

// The walk chooses a contact outside of the set, which is listed, too.
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
	has(t, e, recent.Examined{Contact: 11, Verdict: recent.Nothing}, recent.Examined{Contact: 12, Verdict: recent.Nothing},
		recent.Examined{Contact: 13, Verdict: recent.Nothing}, recent.Examined{Contact: 14, Verdict: recent.Chosen})
	if c := e.Candidates[3]; c.InSet || c.Newest != 500 {
		t.Errorf("%+v", c)
	}
	proves(t, e.Answer, recent.ByWalk, 0)
	if e.Trace.WalkReason != recent.NothingVisible || e.Trace.Walk.LookedAt != 4 {
		t.Errorf("trace %+v", e.Trace)
	}
}

// boundedStore's walks end before all contacts were looked at.
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
	for err, reason := range map[error]recent.Reason{
		index.ErrMissing: recent.SetMissing, index.ErrUnavailable: recent.RedisUnavailable, index.ErrSettings: recent.OtherSettings,
		index.ErrUnknown: recent.SetUnknown,
	} {
		reader := recent.NewReader(&fakeIndex{err: err}, boundedStore{b.store.Memory}, b.hints, recent.Options{})
		e, err := reader.Explain(t.Context(), me, 10)
		if err != nil {
			t.Fatal(err)
		}
		proves(t, e.Answer, recent.ByWalk, 60)
		has(t, e, recent.Examined{Contact: 11, Verdict: recent.Chosen})
		if e.Trace.WalkReason != reason || e.Trace.Walk.Passes != 1 || e.Trace.Walk.Statements != 3 || e.Candidates[0].InSet {
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
	proves(t, e.Answer, recent.ByWalk, 0)
	if len(e.Candidates) != 0 || e.Trace.Walk.LookedAt != 0 {
		t.Errorf("%+v", e)
	}
}

// What the comparison came to is void when the walk finds another contact.
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
	e := b.explain(t)
	has(t, e, recent.Examined{Contact: 11, Verdict: recent.Nothing}, recent.Examined{Contact: 12, Verdict: recent.Older},
		recent.Examined{Contact: 13, Verdict: recent.Chosen})
	if e.Trace.WalkReason != recent.PhotosChanged {
		t.Errorf("reason %q", e.Trace.WalkReason)
	}
}

// The explanation is that of the read: what is seen after it is kept apart.
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
	has(t, e, recent.Examined{Contact: 11, Verdict: recent.Chosen}, recent.Examined{Contact: 12, Verdict: recent.NotLooked})
	if now := e.Candidates[0].Now; shown(e.Album) != 11 || !now.Blocks || now.Newest != nil || now.Hidden.ID != 1100 {
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
		if e, err := b.Explain(t.Context(), me, 10); !errors.Is(err, mysql.ErrUnavailable) || e.Candidates != nil {
			t.Errorf("%s: %+v, %v", failing, e, err)
		}
	}
}
