package shadow

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

// asking asks a judge as a site does, whose code answers as ask says.
type asking struct {
	*Judge
	*town
	answer Answer
}

func newAsking(t *testing.T) *asking {
	t.Helper()
	w := newTown(t)
	v := w.add(t, 1)[0]
	w.refill(t, v)
	return &asking{NewJudge(w.comparer(t, 0)), w, Answer{Viewer: contacts.Viewer{ID: v}, Limit: 10, Photos: Photos{10*uint64(v) + 1, 10*uint64(v) + 2}}}
}

// ask sends the answer until there is a verdict, with change before each. It returns how many it took.
func (a *asking) ask(t *testing.T, change func(try int)) (v Verdict, tries int) {
	t.Helper()
	a.answer.Again = Again{}
	began := time.Now()
	for tries = 1; tries <= 2*maxAsked; tries++ {
		change(tries)
		a.answer.Asked = began.Add(time.Duration(tries) * time.Second) // each in a second of its own
		var err error
		v, err = a.Judge.Judge(t.Context(), a.answer)
		must(t, err)
		if v.Result != AskAgain {
			return v, tries
		}
		a.answer.Again, err = ParseAgain(v.Again.String())
		must(t, err)
	}
	t.Fatal("there is no end")
	return v, tries
}

func TestAnswersAreAskedForAgain(t *testing.T) {
	w := newAsking(t)
	v := uint64(w.answer.Viewer.ID)
	same := func(int) {}
	expect := func(result string) {
		t.Helper()
		if n := metricstest.Gather(t)[fmt.Sprintf(`activityd_shadow_answers_total{result=%q}`, result)]; n < 1 {
			t.Errorf("%s is not counted", result)
		}
	}
	if got, tries := w.ask(t, same); got.Result != Same || tries != 1 {
		t.Errorf("the same: %+v after %d", got, tries)
	}
	expect("same")
	right := w.answer.Photos
	w.answer.Photos = Photos{10*v + 3} // of the other contact
	got, tries := w.ask(t, same)
	if got.Result != Different || tries != 2 || got.Difference.Class != AnotherContact || got.Difference.Owner != w.answer.Viewer.ID+1 {
		t.Errorf("another contact: %+v after %d", got.Difference, tries)
	}
	expect("another_contact")
	// The same body, sent twice, is one answer.
	w.answer.Again, w.answer.Asked = Again{}, time.Now()
	first, err := w.Judge.Judge(t.Context(), w.answer)
	must(t, err)
	w.answer.Again = first.Again
	want := Verdict{Result: AskAgain, Again: Again{2, first.Again.at, first.Again.both}}
	if twice, err := w.Judge.Judge(t.Context(), w.answer); err != nil || twice != want || first.Result != AskAgain {
		t.Errorf("sent twice: %+v, %v; at first %+v", twice, err, first)
	}
	// The site's code was asked before a change, and ours after it: it is asked again, and then is right.
	w.answer.Photos = right
	late := 10*v + 6
	got, tries = w.ask(t, func(try int) {
		if try == 1 {
			w.exec(t, fmt.Sprintf("UPDATE users SET last_upload = 2000 WHERE id = %d; INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (%d, %d, 'public', 2000)", v+1, late, v+1))
		} else {
			w.answer.Photos = append(Photos{late}, right...)
		}
	})
	if got.Result != Same || tries != 2 {
		t.Errorf("a change in between: %+v after %d", got, tries)
	}
	// Where each answer is another one, there is an end.
	got, tries = w.ask(t, func(try int) { w.answer.Photos = Photos{right[0], uint64(try)} })
	if got.Result != Unsettled || tries != maxAsked {
		t.Errorf("always another: %+v after %d", got, tries)
	}
	expect("unsettled")
	// An answer that is old says nothing, and so is asked for again.
	w.answer.Photos = Photos{10*v + 3}
	w.now = func() time.Time { return time.Now().Add(2 * maxAge) }
	if got, tries := w.ask(t, same); got.Result != Unsettled || tries != maxAsked {
		t.Errorf("old ones: %+v after %d", got, tries)
	}
	w.now = time.Now
	if _, err := w.Judge.Judge(t.Context(), Answer{Viewer: contacts.Viewer{ID: 5}, Limit: 10, Asked: time.Now()}); !errors.Is(err, contacts.ErrNoMember) {
		t.Errorf("for no member: %v", err)
	}
}

// One answer is compared at a time.
func TestOneAnswerAtATime(t *testing.T) {
	t.Parallel()
	j := NewJudge(NewComparer(Options{}))
	j.place <- struct{}{}
	if _, err := j.Judge(context.Background(), Answer{}); !errors.Is(err, recent.ErrBusy) {
		t.Errorf("the second: %v", err)
	}
}

func TestAgain(t *testing.T) {
	t.Parallel()
	a := Again{2, 1795300000, digest([]uint64{1, 2}, []uint64{3})}
	if got, err := ParseAgain(a.String()); err != nil || got != a {
		t.Errorf("%+v, %v", got, err)
	}
	if a.both == digest([]uint64{1}, []uint64{2, 3}) || a.both == digest([]uint64{2, 1}, []uint64{3}) {
		t.Error("other answers have the same digest")
	}
	for _, text := range []string{
		"", "1", "1-" + a.both, "-1-1-" + a.both, "0-1-" + a.both, "5-1-" + a.both, "1-x-" + a.both, "1-1-" + a.both + "00", "1-1-" + a.both[2:],
		"1-1-xx" + a.both[2:], "x-1-" + a.both, "1-1-1-" + a.both,
	} {
		if got, err := ParseAgain(text); !errors.Is(err, ErrAgain) || got != (Again{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	now := time.Now()
	if CheckAsked(now.Add(2*time.Second), now) != nil || CheckAsked(now.Add(-time.Hour), now) != nil || CheckAsked(now.Add(time.Minute), now) == nil {
		t.Error("the clock of the site")
	}
}
