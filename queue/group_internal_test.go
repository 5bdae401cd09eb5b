package queue

import (
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// Kinds of package tasks, which the other tests of this package import.
const (
	addContact    = "add_contact"
	removeContact = "remove_contact"
	upload        = "upload"
	fanOut        = "fan_out"
	refill        = "refill"
)

// testKinds has what counts of them here.
var testKinds = Kinds{
	{Name: addContact, Order: "set", Group: "contacts"},
	{Name: removeContact, Order: "set", Group: "contacts"},
	{Name: upload, Order: "uploader", Group: "uploads"},
	{Name: fanOut, Group: "uploads"},
	{Name: refill, Order: "set"},
}

// idleHandler is one of several that can be told apart.
type idleHandler struct{ _ byte }

func (*idleHandler) Handle(_ context.Context, batch []Task) []Outcome {
	return make([]Outcome, len(batch))
}

// TestPropertyGroups: every task is in one group, of its handler; those of an
// ordering key keep their order; those that were tried once come after those that were not, and
// at last, alone, those that were tried more often.
func TestPropertyGroups(t *testing.T) {
	t.Parallel()
	pairs, uploads, refills := &idleHandler{}, &idleHandler{}, &idleHandler{}
	s := &run{Pool: &Pool{kinds: testKinds, handlers: map[string]Handler{
		addContact: pairs, removeContact: pairs, upload: uploads, fanOut: uploads, refill: refills,
	}}}
	rapid.Check(t, func(rt *rapid.T) {
		var batch []Task
		for i := range rapid.IntRange(0, 12).Draw(rt, "tasks") {
			batch = append(batch, Task{
				ID:       uint64(i + 1),
				Kind:     rapid.SampledFrom([]string{addContact, removeContact, refill, upload, fanOut, "mystery"}).Draw(rt, "type"),
				Key:      uint64(rapid.IntRange(1, 3).Draw(rt, "subject")),
				Attempts: rapid.SampledFrom([]int{1, 1, 1, 2, 2, 2, 3, 4}).Draw(rt, "attempts"),
			})
		}
		checkGroups(rt, s, batch, s.groups(batch))
	})
}

func checkGroups(t *rapid.T, s *run, batch []Task, groups []group) {
	var all []uint64
	last, tried := make(map[orderingKey]uint64), 1
	for _, g := range groups {
		for _, task := range g.tasks {
			all = append(all, task.ID)
			var want Handler = unknownKind{}
			if h, ok := s.handlers[task.Kind]; ok {
				want = h
			}
			if g.handler != want {
				t.Fatalf("task %d is with another handler", task.ID)
			}
			attempts := min(task.Attempts, 3)
			if attempts > tried {
				tried = attempts
				clear(last)
			}
			switch key, ok := testKinds.orderingKeyOf(task); {
			case attempts < tried:
				t.Fatalf("task %d comes after some that were tried more often", task.ID)
			case attempts == 3 && len(g.tasks) > 1:
				t.Fatalf("task %d, tried twice before, is not alone", task.ID)
			case ok && last[key] > task.ID:
				t.Fatalf("task %d comes after %d", task.ID, last[key])
			case ok:
				last[key] = task.ID
			}
		}
	}
	slices.Sort(all)
	if len(all) != len(batch) || len(slices.Compact(all)) != len(batch) {
		t.Fatalf("the groups hold %v of %d tasks", all, len(batch))
	}
}

// Tasks of different ordering keys are handled together.
func TestABatchIsOneGroupForEachHandler(t *testing.T) {
	t.Parallel()
	pairs, refills := &idleHandler{}, &idleHandler{}
	s := &run{Pool: &Pool{kinds: testKinds, handlers: map[string]Handler{addContact: pairs, removeContact: pairs, refill: refills}}}
	var batch []Task
	for i := range 30 {
		batch = append(batch, Task{ID: uint64(i), Kind: []string{addContact, removeContact, refill}[i%3], Key: uint64(i), Attempts: 1})
	}
	if groups := s.groups(batch); len(groups) != 2 {
		t.Errorf("%d groups, want one for each handler", len(groups))
	}
	for i := range batch {
		batch[i].Attempts += i % 2
	}
	if groups := s.groups(batch); len(groups) != 4 || groups[1].tasks[0].Attempts > 1 || groups[2].tasks[0].Attempts == 1 {
		t.Errorf("%d groups, want one for each handler, and one for each again", len(groups))
	}
}
