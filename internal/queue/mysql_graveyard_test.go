package queue

import (
	"testing"
	"time"
)

func TestAClaimSkipsWhatIsBuried(t *testing.T) {
	t.Parallel()
	now := time.Now()
	g := newGraveyard(func() time.Time { return now })
	at := func(want position, wantFront bool) {
		t.Helper()
		if from, front := g.begin("q"); front != wantFront || !front && from != want {
			t.Fatalf("begins at %v, front %v, want %v, %v", from, front, want, wantFront)
		}
	}
	task := func(priority int, id uint64) Task { return Task{ID: id, Priority: priority} }

	at(position{}, true)
	g.found("q", nil, false, true, time.Second) // nothing was ever there: nothing is known
	at(position{}, true)
	g.found("q", []Task{task(0, 5), task(0, 9)}, true, true, 100*time.Millisecond)
	at(position{0, 5}, false)
	g.found("q", []Task{task(0, 10)}, true, false, time.Millisecond)
	at(position{0, 5}, false)
	now = now.Add(901 * time.Millisecond)
	at(position{}, true)
	g.found("q", nil, false, true, 100*time.Millisecond)
	at(position{0, 10}, false)
	g.enqueued([]New{{Queue: "q"}, {Queue: "other", Priority: Urgent}})
	at(position{0, 10}, false)
	g.enqueued([]New{{Queue: "q", Priority: Urgent}})
	at(position{}, true)
	g.found("q", []Task{task(0, 12)}, true, true, time.Hour)
	g.found("q", []Task{task(Urgent, 20), task(0, 11)}, true, true, time.Hour)
	at(position{}, true) // two priorities: from the front, always
	g.found("q", []Task{task(0, 11)}, true, true, time.Hour)
	at(position{0, 11}, false)
	now = now.Add(mostRest)
	at(position{}, true)
	g.found("q", []Task{task(0, 11)}, true, true, time.Hour)
	g.forget()
	at(position{}, true)
	g.found("q", []Task{task(0, 11)}, false, true, time.Millisecond)
	at(position{}, true) // it was quick, and there was no more behind
	g.found("q", []Task{task(0, 11)}, true, true, time.Millisecond)
	at(position{0, 11}, false)
}
