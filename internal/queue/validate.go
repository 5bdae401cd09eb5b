package queue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// MostQueueName is how many bytes the name of a queue may have.
const MostQueueName = 32

// mostDedupeKey is how many bytes a dedupe key may have.
const mostDedupeKey = 128

// validated returns the batch with defaults filled in, or an error that wraps
// [ErrInvalid].
func validated(batch []New) ([]New, error) {
	out := make([]New, len(batch))
	for i, n := range batch {
		n.Queue = cmp.Or(n.Queue, DefaultQueue)
		if len(n.Payload) == 0 {
			n.Payload = json.RawMessage("{}")
		}
		if wrong := n.wrong(); wrong != "" {
			return nil, fmt.Errorf("%w: %s task for %d: %s", ErrInvalid, n.Kind, n.Key, wrong)
		}
		out[i] = n
	}
	return out, nil
}

// wrong says what is wrong with a task.
func (n New) wrong() string {
	switch {
	case n.DedupeKey == "":
		return "it has no dedupe key"
	case len(n.DedupeKey) > mostDedupeKey || strings.HasPrefix(n.DedupeKey, "~"):
		return fmt.Sprintf("dedupe key %q: want at most %d bytes, and no ~ at the beginning", n.DedupeKey, mostDedupeKey)
	case len(n.Payload) > MostPayload || !json.Valid(n.Payload):
		return fmt.Sprintf("its payload is not JSON of at most %d bytes", MostPayload)
	case len(n.Queue) > MostQueueName:
		return fmt.Sprintf("queue %q: want at most %d bytes", n.Queue, MostQueueName)
	case n.Priority < math.MinInt16 || n.Priority > math.MaxInt16:
		return fmt.Sprintf("priority %d: want between %d and %d", n.Priority, math.MinInt16, math.MaxInt16)
	case n.Delay < 0 || n.Life < 0:
		return fmt.Sprintf("delay %v and life %v: want none below 0", n.Delay, n.Life)
	}
	return ""
}

func checkQueueName(queue string) error {
	if queue == "" || len(queue) > MostQueueName {
		return fmt.Errorf("%w: queue %q: want 1 to %d bytes", ErrInvalid, queue, MostQueueName)
	}
	return nil
}

// with returns the task that stands for n and m, which have one dedupe key: it
// runs as early, as urgently and lives as long as either would.
func (n New) with(m New) New {
	n.Priority = min(n.Priority, m.Priority)
	n.Delay = min(n.Delay, m.Delay)
	if n.Life == 0 || m.Life == 0 {
		n.Life = 0
	} else {
		n.Life = max(n.Life, m.Life)
	}
	return n
}

// distinct returns the tasks of a batch by dedupe key.
func distinct(batch []New) map[string]New {
	byKey := make(map[string]New, len(batch))
	for _, n := range batch {
		if other, ok := byKey[n.DedupeKey]; ok {
			n = other.with(n)
		}
		byKey[n.DedupeKey] = n
	}
	return byKey
}

// timing is the part of a waiting or scheduled task that absorbing can change.
// Times are unix milliseconds; 0 stands for at once, and for never.
type timing struct {
	priority         int
	runAt, expiresAt int64
}

// timingOf returns the timing of a task that is enqueued at now.
func timingOf(n New, now int64) timing {
	t := timing{priority: n.Priority}
	if n.Delay > 0 {
		t.runAt = now + n.Delay.Milliseconds()
	}
	if n.Life > 0 {
		t.expiresAt = now + n.Life.Milliseconds()
	}
	return t
}

// absorbs tells whether the record, which has the dedupe key of n, does the work of
// n when it starts. A producer may have written that key into any row: one that is
// over, or about something else.
func (r *record) absorbs(n New) bool {
	notStarted := r.Attempts == 0 && (r.state == Scheduled || r.state == Waiting && r.dueAt == r.expiresAt)
	return notStarted && r.ID != 0 && r.Queue == n.Queue && n.SameWork(r.Kind, r.Key, r.Payload)
}

// absorbing returns the timing of a task that absorbs one of another timing.
func (t timing) absorbing(o timing) timing {
	out := timing{priority: min(t.priority, o.priority), runAt: min(t.runAt, o.runAt)}
	if t.expiresAt != 0 && o.expiresAt != 0 {
		out.expiresAt = max(t.expiresAt, o.expiresAt)
	}
	return out
}

// state is where a task with this timing waits.
func (t timing) state() State {
	if t.runAt > 0 {
		return Scheduled
	}
	return Waiting
}

// dueAt is when something must happen to it next; 0: never.
func (t timing) dueAt() int64 {
	if t.runAt > 0 {
		return t.runAt
	}
	return t.expiresAt
}

// queuesOf returns the queues of a batch, each once.
func queuesOf(batch []New) []string {
	seen := make(map[string]bool)
	for _, n := range batch {
		seen[n.Queue] = true
	}
	return slices.Sorted(maps.Keys(seen))
}
