package queue

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Kind is what the queue knows of a kind of task. It reads neither keys nor
// payloads: whether two tasks are the same work, it asks the kind.
type Kind struct {
	Name string
	// Queue is where its tasks belong.
	Queue string
	// Order names a space: tasks of the kinds that share it run one at a time if they
	// have the same key, in the order of their claims, within a process and a queue.
	// Tasks of kinds without one run side by side.
	Order string
	// DedupeKey returns the dedupe key of a task: of those with the same one, at most
	// one waits to be started, and does the work of all. An error says that the payload
	// is not one of this kind.
	DedupeKey func(key uint64, payload json.RawMessage) (string, error)
	// Needs are the names of what its handler needs: see [Dependency].
	Needs []string
}

// registered are the kinds of task that there are.
var registered []Kind

// Register adds a kind of task. It is for init functions, and not safe for
// concurrent use with anything else of this package.
func Register(k Kind) {
	if slices.ContainsFunc(registered, func(other Kind) bool { return other.Name == k.Name }) {
		panic(fmt.Sprintf("queue: kind %q is registered twice", k.Name))
	}
	registered = append(registered, k)
	registerMetrics(k)
}

// Kinds returns the names of the registered kinds, in order.
func Kinds() []string {
	names := make([]string, len(registered))
	for i, k := range registered {
		names[i] = k.Name
	}
	return names
}

// kindOf returns the registered kind of that name.
func kindOf(name string) (k Kind, ok bool) {
	i := slices.IndexFunc(registered, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	return registered[i], true
}

// Queues returns the default queue and those of the registered kinds, sorted.
func Queues() []string {
	names := []string{DefaultQueue}
	for _, k := range registered {
		names = append(names, k.Queue)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// HomeOf returns the queue of a kind's tasks.
func HomeOf(kind string) string {
	k, _ := kindOf(kind)
	return k.Queue
}

// SameWork reports whether a task of a kind, with that key and payload, does the work
// of n. A producer may have given n's dedupe key to a row about something else.
func (n New) SameWork(kind string, key uint64, payload json.RawMessage) bool {
	k, known := kindOf(kind)
	if !known {
		return false
	}
	dedupeKey, err := k.DedupeKey(key, payload)
	return err == nil && dedupeKey == n.DedupeKey
}

// StandsFor reports whether a task of a kind, with that key and payload, is the same work
// as t, by their dedupe keys.
func (t Task) StandsFor(kind string, key uint64, payload json.RawMessage) bool {
	if t.Kind != kind || t.Key != key {
		return false
	}
	k, known := kindOf(kind)
	if !known {
		return false
	}
	dedupeKey, err := k.DedupeKey(t.Key, t.Payload)
	return err == nil && New{DedupeKey: dedupeKey}.SameWork(kind, key, payload)
}
