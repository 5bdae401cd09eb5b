package check

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func (b *bench) checkAnswers(t testing.TB, viewers ...member.ID) Report {
	t.Helper()
	r, err := b.CheckAnswers(t.Context(), viewers)
	must(t, err)
	return r
}

func TestARightAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	if r := b.checkAnswers(t, viewer); r.Checked != 1 || len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
}

func TestAWrongAnswer(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.upload(12, 500) // who is not in the set
	r := b.checkAnswers(t, viewer)
	found(t, r, "error wrong answer")
	f := r.Findings[0]
	if r.Checked != 1 || r.Erroneous != 1 || f.User != viewer || f.Contact != 12 || f.Stored != 200 || f.Actual != 500 {
		t.Errorf("%+v", r)
	}
	if !strings.Contains(f.Detail, "shown are 1 photos of 20") || !strings.Contains(f.Detail, "due are 2 photos of 12") {
		t.Errorf("detail %q", f.Detail)
	}
	b.enqueue(t, tasks.NewUpload(12))
	found(t, b.checkAnswers(t, viewer), "lag wrong answer")
	_, err := b.queue.Discard(t.Context(), queue.Filter{}, 10)
	must(t, err)
	b.enqueue(t, tasks.NewUpload(15)) // has no part in it
	found(t, b.checkAnswers(t, viewer), "error wrong answer")
	b.enqueue(t, tasks.NewRefill(viewer))
	found(t, b.checkAnswers(t, viewer), "lag wrong answer")
	b.refill(t, viewer)
	found(t, b.checkAnswers(t, viewer))
}

// An answer without a part of the index is right by construction.
func TestAnswersOfTheDatabaseAreNotCounted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.index.Forget(viewer)
	b.store.AddMember(2, "has nobody")
	if r := b.checkAnswers(t, viewer, 2, 4711); r.Checked != 0 || len(r.Skipped) != 3 || len(r.Findings) != 0 {
		t.Errorf("%+v", r)
	}
}

// Privacy is decided live: an answer that differs by it is no matter of the set.
func TestPrivacyIsNoDifference(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.store.Block(20, viewer)
	b.store.AddPhoto(0, 19, "for nobody", contacts.Private, 195)
	r := b.checkAnswers(t, viewer)
	found(t, r)
	if r.Checked != 1 {
		t.Errorf("%+v", r)
	}
}
