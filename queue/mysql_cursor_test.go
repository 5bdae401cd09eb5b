package queue

import (
	"testing"
	"time"
)

func TestAClaimBeginsAtTheCursor(t *testing.T) {
	t.Parallel()
	now := time.Now()
	c := newCursors(func() time.Time { return now })
	at := func(want position, wantFront bool) {
		t.Helper()
		if from, front := c.begin("q"); front != wantFront || !front && from != want {
			t.Fatalf("begins at %v, front %v, want %v, %v", from, front, want, wantFront)
		}
	}
	none := position{}

	at(position{}, true)
	c.found("q", none, none, false, true, time.Second) // nothing was ever there: nothing is known
	at(position{}, true)
	c.found("q", position{0, 5}, position{0, 9}, true, true, 100*time.Millisecond)
	at(position{0, 9}, false)
	c.found("q", position{0, 10}, position{0, 10}, true, false, time.Millisecond)
	at(position{0, 10}, false)
	c.found("q", none, none, false, false, time.Millisecond)
	at(position{0, 10}, false)
	now = now.Add(901 * time.Millisecond)
	at(position{}, true)
	c.found("q", none, none, false, true, 100*time.Millisecond)
	at(position{0, 10}, false)
	c.enqueued([]New{{Queue: "q"}, {Queue: "other", Priority: Urgent}})
	at(position{0, 10}, false)
	c.enqueued([]New{{Queue: "q", Priority: Urgent}})
	at(position{}, true)
	c.found("q", position{0, 12}, position{0, 12}, true, true, time.Hour)
	c.found("q", position{Urgent, 20}, position{0, 11}, true, true, time.Hour)
	at(position{}, true) // two priorities: from the front, always
	c.found("q", position{0, 11}, position{0, 11}, true, true, time.Hour)
	at(position{0, 11}, false)
	now = now.Add(maxRest)
	at(position{}, true)
	c.found("q", position{0, 11}, position{0, 11}, true, true, time.Hour)
	c.forget()
	at(position{}, true)
	c.found("q", position{0, 11}, position{0, 11}, false, true, time.Millisecond)
	at(position{}, true) // it was quick, and there was no more behind
	c.found("q", position{0, 11}, position{0, 11}, true, true, time.Millisecond)
	at(position{0, 11}, false)
	for took, want := range map[time.Duration][2]bool{2 * time.Millisecond: {true, true}, 3 * time.Millisecond: {false, true}, 21 * time.Millisecond: {}} {
		c.found("q", position{0, 11}, position{0, 11}, false, true, took)
		if some, none := c.cheap("q", true), c.cheap("q", false); some != want[0] || none != want[1] {
			t.Errorf("a look of %v is cheap: %v, of a claim that found nothing %v, want %v", took, some, none, want)
		}
		at(position{0, 11}, want[0])
	}
}
