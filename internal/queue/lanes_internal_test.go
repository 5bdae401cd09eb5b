package queue

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPropertyLanes lets random batches enter, run in parts and leave, in any
// order, and compares with the plainest account of who is in a lane. At any time
// the oldest batch can run all that it has left, so that whatever the others do
// there is no deadlock.
func TestPropertyLanes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		w := &laneWorld{lanes: newLanes(siteKinds), owner: map[lane]*crowd{}}
		rt.Repeat(map[string]func(*rapid.T){
			"enter":   w.enter,
			"proceed": w.proceed,
			"done":    w.done,
			"leave":   w.leave,
			"":        w.check,
		})
		for len(w.crowds) > 0 { // the oldest first: it never has to wait
			w.proceedWith(rt, w.crowds[0])
			if len(w.crowds[0].left) > 0 {
				rt.Fatalf("the oldest batch waits for %v", w.crowds[0].left)
			}
			w.remove(w.crowds[0])
		}
		if len(w.lanes.lines) > 0 {
			rt.Fatalf("lanes are left behind: %v", w.lanes.lines)
		}
	})
}

// laneWorld is the account of a test: the batches, the oldest first.
type laneWorld struct {
	lanes  *lanes
	crowds []*crowd
	owner  map[lane]*crowd // who runs in a lane
	nextID uint64
}

// crowd is a batch.
type crowd struct {
	ticket  *ticket
	left    []Task // not given out
	running []Task
	looked  bool
}

func (w *laneWorld) enter(t *rapid.T) {
	task := rapid.Custom(func(t *rapid.T) Task {
		w.nextID++
		return Task{
			ID:   w.nextID,
			Kind: rapid.SampledFrom([]string{AddContact, RemoveContact, Refill, Upload, FanOut, "mystery"}).Draw(t, "type"),
			Key:  uint64(rapid.IntRange(1, 4).Draw(t, "subject")),
		}
	})
	batch := rapid.SliceOfN(task, 1, 5).Draw(t, "batch")
	w.crowds = append(w.crowds, &crowd{ticket: w.lanes.enter(batch), left: slices.Clone(batch)})
}

func (w *laneWorld) some(t *rapid.T) *crowd {
	if len(w.crowds) == 0 {
		t.Skip("nobody is there")
	}
	return rapid.SampledFrom(w.crowds).Draw(t, "who")
}

func (w *laneWorld) proceed(t *rapid.T) { w.proceedWith(t, w.some(t)) }

// proceedWith expects exactly the tasks in whose lanes nobody older is.
func (w *laneWorld) proceedWith(t *rapid.T, c *crowd) {
	var want, rest []Task
	for _, task := range c.left {
		if w.older(c, task) {
			rest = append(rest, task)
		} else {
			want = append(want, task)
		}
	}
	got := c.ticket.free()
	if !slices.EqualFunc(got, want, func(a, b Task) bool { return a.ID == b.ID }) {
		t.Fatalf("may run %v, want %v", got, want)
	}
	c.looked = true
	c.left, c.running = rest, append(c.running, got...)
	for _, task := range got {
		if way, ok := siteKinds.lane(task); ok {
			if other := w.owner[way]; other != nil && other != c {
				t.Fatalf("two run in lane %v", way)
			}
			w.owner[way] = c
		}
	}
}

// older tells whether an older batch is in the task's lane.
func (w *laneWorld) older(c *crowd, task Task) bool {
	way, ok := siteKinds.lane(task)
	if !ok {
		return false
	}
	for _, other := range w.crowds[:slices.Index(w.crowds, c)] {
		for _, t := range slices.Concat(other.left, other.running) {
			if l, ok := siteKinds.lane(t); ok && l == way {
				return true
			}
		}
	}
	return false
}

func (w *laneWorld) done(t *rapid.T) {
	c := w.some(t)
	c.ticket.done(c.running)
	w.forget(c)
}

func (w *laneWorld) leave(t *rapid.T) { w.remove(w.some(t)) }

func (w *laneWorld) forget(c *crowd) {
	for way, owner := range w.owner {
		if owner == c {
			delete(w.owner, way)
		}
	}
	c.running = nil
}

func (w *laneWorld) remove(c *crowd) {
	c.ticket.leave()
	c.ticket.leave() // twice is as good as once
	w.forget(c)
	w.crowds = slices.DeleteFunc(w.crowds, func(other *crowd) bool { return other == c })
}

// check expects of a batch that looked, and may run what it could not run then,
// that it was told.
func (w *laneWorld) check(t *rapid.T) {
	for _, c := range w.crowds {
		for _, task := range c.left {
			if c.looked && !w.older(c, task) && len(c.ticket.moved) == 0 {
				t.Fatalf("nobody told that task %d may run", task.ID)
			}
		}
	}
}

// A batch that waits for a lane stops when its context ends.
func TestWaitingForALaneStops(t *testing.T) {
	t.Parallel()
	l, batch := newLanes(siteKinds), []Task{{ID: 1, Kind: Upload, Key: 1}}
	first, second := l.enter(batch), l.enter(batch)
	if part, err := first.next(t.Context()); len(part) != 1 || err != nil {
		t.Fatalf("%v, %v", part, err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStopped)
	if part, err := second.next(ctx); part != nil || !errors.Is(err, errStopped) {
		t.Errorf("%v, %v", part, err)
	}
	if rest := second.leave(); len(rest) != 1 {
		t.Errorf("left over %v", rest)
	}
}
