package queue

import (
	"cmp"
	"encoding/json"
	"slices"
)

// Kind is what the queue knows of a kind of task. It reads neither keys nor
// payloads: whether two tasks are the same work, it asks the kind.
type Kind struct {
	Name string
	// Queue is where its tasks belong; "": [DefaultQueue].
	Queue string
	// Order names a space: tasks of the kinds that share it run one at a time if they
	// have the same key, in the order of their claims, within a process and a queue.
	// Tasks of kinds without one run side by side.
	Order string
	// DedupeKey returns the dedupe key of a task: of those with the same one, at most
	// one waits to be started, and does the work of all. An error says that the payload
	// is not one of this kind. Nil: those of its tasks that have the same [New].DedupeKey are the
	// same work, and that of the first one is done. It does not fill [New].DedupeKey: it tells
	// whether a task that waits with that key is the same work.
	DedupeKey func(key uint64, payload json.RawMessage) (string, error)
	// Needs are the names of what its handler needs: see [Dependency].
	Needs []string
	// Group names the kinds whose tasks one handler takes together: that of the first of them
	// in a share. "": its own name.
	Group string
}

// Kinds are the kinds of task that a queue and its workers know. A row may be of any other: its task
// is dead as soon as a pool has it, and is lent ([Queue.Lend]) as any other.
type Kinds []Kind

// Names returns their names, in order.
func (k Kinds) Names() []string {
	names := make([]string, len(k))
	for i := range k {
		names[i] = k[i].Name
	}
	return names
}

// of returns the kind of that name.
func (k Kinds) of(name string) (Kind, bool) {
	i := slices.IndexFunc(k, func(k Kind) bool { return k.Name == name })
	if i < 0 {
		return Kind{}, false
	}
	is := k[i]
	is.Queue = cmp.Or(is.Queue, DefaultQueue)
	return is, true
}

// Queues returns the default queue and those of the kinds, sorted.
func (k Kinds) Queues() []string {
	names := []string{DefaultQueue}
	for i := range k {
		names = append(names, cmp.Or(k[i].Queue, DefaultQueue))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// queuesOf returns the queues of some kinds.
func (k Kinds) queuesOf(names []string) (queues []string) {
	for _, name := range names {
		if is, known := k.of(name); known {
			queues = append(queues, is.Queue)
		}
	}
	return queues
}

// sameWork reports whether a task of a kind, with that key and payload, does the work
// of n. A producer may have given n's dedupe key to a row about something else.
func (k Kinds) sameWork(n New, kind string, key uint64, payload json.RawMessage) bool {
	is, known := k.of(kind)
	if !known || is.DedupeKey == nil {
		return known && n.Kind == kind
	}
	dedupeKey, err := is.DedupeKey(key, payload)
	return err == nil && dedupeKey == n.DedupeKey
}

// standsFor reports whether a task of a kind, with that key and payload, is the same work
// as t, by their dedupe keys.
func (k Kinds) standsFor(t Task, kind string, key uint64, payload json.RawMessage) bool {
	is, known := k.of(kind)
	if t.Kind != kind || t.Key != key || !known || is.DedupeKey == nil {
		return false
	}
	dedupeKey, err := is.DedupeKey(t.Key, t.Payload)
	return err == nil && k.sameWork(New{DedupeKey: dedupeKey}, kind, key, payload)
}

// label returns a kind as a label of metrics: rows may have any.
func (k Kinds) label(kind string) string {
	if _, ok := k.of(kind); ok {
		return kind
	}
	return otherKinds
}

// orderingKey is what tasks share that run one at a time: the space that their kind
// names, and their key.
type orderingKey struct {
	space string
	key   uint64
}

// orderingKeyOf returns the task's ordering key, if its kind has one.
func (k Kinds) orderingKeyOf(t Task) (key orderingKey, ordered bool) {
	is, _ := k.of(t.Kind)
	return orderingKey{is.Order, t.Key}, is.Order != ""
}
