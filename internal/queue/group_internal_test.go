package queue

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// idleHandler is one of several that can be told apart.
type idleHandler struct{ _ byte }

func (*idleHandler) Handle(_ context.Context, batch []Task) []error { return make([]error, len(batch)) }

// TestPropertyGroups: every task is in one group, of its handler; those of a lane
// keep their order; and those that were tried before come last, alone.
func TestPropertyGroups(t *testing.T) {
	t.Parallel()
	pairs, uploads, refills := &idleHandler{}, &idleHandler{}, &idleHandler{}
	s := &shift{Pool: &Pool{kinds: siteKinds, handlers: map[string]Handler{
		AddContact: pairs, RemoveContact: pairs, Upload: uploads, FanOut: uploads, Refill: refills,
	}}}
	rapid.Check(t, func(rt *rapid.T) {
		var batch []Task
		for i := range rapid.IntRange(0, 12).Draw(rt, "tasks") {
			batch = append(batch, Task{
				ID:       uint64(i + 1),
				Kind:     rapid.SampledFrom([]string{AddContact, RemoveContact, Refill, Upload, FanOut, "mystery"}).Draw(rt, "type"),
				Key:      uint64(rapid.IntRange(1, 3).Draw(rt, "subject")),
				Attempts: rapid.SampledFrom([]int{1, 1, 1, 2}).Draw(rt, "attempts"),
			})
		}
		checkGroups(rt, s, batch, s.groups(batch))
	})
}

func checkGroups(t *rapid.T, s *shift, batch []Task, groups []group) {
	var all []uint64
	last, again := make(map[lane]uint64), false
	for _, g := range groups {
		for _, task := range g.tasks {
			all = append(all, task.ID)
			if s.handlerOf(task) != g.handler {
				t.Fatalf("task %d is with another handler", task.ID)
			}
			switch way, ok := siteKinds.lane(task); {
			case task.Attempts > 1:
				if again = true; len(g.tasks) > 1 {
					t.Fatalf("task %d, tried before, is not alone", task.ID)
				}
			case again:
				t.Fatalf("task %d comes after some that were tried before", task.ID)
			case ok && last[way] > task.ID:
				t.Fatalf("task %d comes after %d", task.ID, last[way])
			case ok:
				last[way] = task.ID
			}
		}
	}
	slices.Sort(all)
	if len(all) != len(batch) || len(slices.Compact(all)) != len(batch) {
		t.Fatalf("the groups hold %v of %d tasks", all, len(batch))
	}
}

// What does not get into each other's way is handled together.
func TestABatchIsOneGroupForEachHandler(t *testing.T) {
	t.Parallel()
	pairs, refills := &idleHandler{}, &idleHandler{}
	s := &shift{Pool: &Pool{kinds: siteKinds, handlers: map[string]Handler{AddContact: pairs, RemoveContact: pairs, Refill: refills}}}
	var batch []Task
	for i := range 30 {
		batch = append(batch, Task{ID: uint64(i), Kind: []string{AddContact, RemoveContact, Refill}[i%3], Key: uint64(i), Attempts: 1})
	}
	if groups := s.groups(batch); len(groups) != 2 {
		t.Errorf("%d groups, want one for each handler", len(groups))
	}
}
