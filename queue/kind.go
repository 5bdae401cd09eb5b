package queue

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"
)

// Kind is a kind of task. The queue reads neither keys nor payloads: it asks the kind whether two tasks are the same work.
type Kind struct {
	Name string
	// Queue is where its tasks belong; "": [DefaultQueue].
	Queue string
	// Ordered tasks of a queue with the same key, which is not 0, run one at a time, by priority and then in the order of their
	// ids, in all processes. The queue and the key are their ordering key, whatever their kinds. Unordered tasks run side by side.
	// Tasks of an unknown kind are ordered.
	Ordered bool
	// MaxAttempts is how often a task is tried, unless its row has a number; 0: 25 times.
	MaxAttempts int
	// Backoff is the pause after the first failure, unless the row has a number. It doubles with each further failure, up to
	// 5 minutes, or Backoff if that is more. 0: half a second.
	Backoff time.Duration
	// DedupeKey returns the dedupe key of a task, or an error if the payload is not of this kind. The queue asks whether the task that
	// has a dedupe key is the same work as a new task with that key; it does not fill [New].DedupeKey. Nil: tasks of the kind
	// with the same [New].DedupeKey are the same work, and the payload of the first is done.
	DedupeKey func(key uint64, payload json.RawMessage) (string, error)
	// Group names the kinds whose tasks a handler takes together. The handler is that of the first task in a batch. "": the name
	// of the kind.
	Group string
}

// Kinds are the kinds of task that a queue and its workers know. A row may have any kind: pools bury tasks of unknown kinds, dead, and
// HTTP workers may do them.
type Kinds []Kind

// Names returns the names of the kinds, in order.
func (k Kinds) Names() []string {
	names := make([]string, len(k))
	for i := range k {
		names[i] = k[i].Name
	}
	return names
}

// Queues returns the default queue and the queues of the kinds, sorted.
func (k Kinds) Queues() []string {
	names := []string{DefaultQueue}
	for _, kind := range k {
		names = append(names, cmp.Or(kind.Queue, DefaultQueue))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// of returns the kind of that name.
func (k Kinds) of(name string) (is Kind, known bool) {
	i := slices.IndexFunc(k, func(k Kind) bool { return k.Name == name })
	if known = i >= 0; known {
		is = k[i]
	}
	is.Queue = cmp.Or(is.Queue, DefaultQueue)
	return is, known
}

// isOrdered reports whether a task has an ordering key.
func (k Kinds) isOrdered(t Task) bool {
	is, known := k.of(t.Kind)
	return t.Key != 0 && (is.Ordered || !known)
}

// workOf returns the dedupe key of a task by its kind; known: the kind can tell.
func (k Kinds) workOf(t Task) (dedupeKey string, known bool) {
	is, _ := k.of(t.Kind)
	if is.DedupeKey == nil {
		return "", false
	}
	dedupeKey, err := is.DedupeKey(t.Key, t.Payload)
	return dedupeKey, err == nil
}

// sameWork reports whether a task does the work of n. A producer may have given the dedupe key of n to a row about something else.
func (k Kinds) sameWork(n New, t Task) bool {
	is, known := k.of(t.Kind)
	if !known || is.DedupeKey == nil {
		return known && n.Kind == t.Kind
	}
	dedupeKey, known := k.workOf(t)
	return known && dedupeKey == n.DedupeKey
}
