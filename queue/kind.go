package queue

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Kind is what the queue knows of a kind of task. It reads neither keys nor
// payloads: whether two tasks are the same work, it asks the kind.
type Kind struct {
	Name string
	// Queue is where its tasks belong; "": [DefaultQueue].
	Queue string
	// Ordered tasks of a queue that have the same key, which is not 0, run one at a time, by priority and then in the order
	// of their ids, in all processes: the queue and the key are their ordering key, whatever their kinds. Tasks of other kinds run
	// side by side. Those of a kind that the queue does not know are ordered.
	Ordered bool
	// MaxAttempts is how often a task is tried, unless its row says otherwise; 0: 25 times.
	MaxAttempts int
	// Backoff is the pause after the first failure, unless the row says otherwise. It doubles with each further failure, up to
	// 5 minutes, or Backoff if that is more. 0: half a second.
	Backoff time.Duration
	// DedupeKey returns the dedupe key of a task: of tasks with the same key, at most
	// one waits to be started, and does the work of all. An error says that the payload
	// is not one of this kind. Nil: those of its tasks that have the same [New].DedupeKey are the
	// same work, and that of the first is done. It does not fill [New].DedupeKey: it tells
	// whether a task that waits with that key is the same work.
	DedupeKey func(key uint64, payload json.RawMessage) (string, error)
	// Needs are the names of what its handler needs: see [Dependency].
	Needs []string
	// Group names the kinds whose tasks one handler takes together: that of the first of them
	// in a share. "": its own name.
	Group string
}

// Kinds are the kinds of task that a queue and its workers know. A row may be of any other: its task
// is dead as soon as a pool has it; other workers may take it.
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
