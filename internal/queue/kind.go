package queue

import (
	"encoding/json"
	"slices"
)

// Kind is a kind of task: what the queue has to know of it. The queue neither
// reads keys nor payloads; where it must tell whether two tasks are the same
// work, it asks the kind.
type Kind struct {
	Name string
	// Queue is where its tasks belong.
	Queue string
	// Order names a space: tasks of the kinds that share it run one at a time and in
	// the order of their claims if they have the same key. Tasks of kinds without one
	// run side by side.
	Order string
	// DedupeKey returns the dedupe key of a task of this kind: of tasks that have the
	// same one, at most one waits to be started, and does the work of all. An error
	// says that the payload is not one of this kind.
	DedupeKey func(key uint64, payload json.RawMessage) (string, error)
	// Away tells whether an error of the handler says that a server which it needs,
	// other than the queue's own, cannot be used; nil: none does. Then the task is
	// postponed, and no attempt is counted.
	Away func(error) bool
}

// Kinds are the kinds of task that a process knows.
type Kinds []Kind

// Named returns the kind of that name.
func (ks Kinds) Named(name string) (k Kind, ok bool) {
	i := slices.IndexFunc(ks, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return ks[i], true
}

// Names returns the names of the kinds, in their order.
func (ks Kinds) Names() []string {
	names := make([]string, len(ks))
	for i, k := range ks {
		names[i] = k.Name
	}
	return names
}

// Queues returns the queues of the kinds, sorted, each once.
func (ks Kinds) Queues() []string {
	var names []string
	for _, k := range ks {
		names = append(names, k.Queue)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
