package queue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
)

// MaxQueueName is how many bytes the name of a queue may have.
const MaxQueueName = 32

// maxDedupeKey is how many bytes a dedupe key may have.
const maxDedupeKey = 128

// Validate returns the batch with defaults filled in, or an error that wraps
// [ErrInvalid].
func Validate(batch []New) ([]New, error) {
	for _, n := range batch {
		if n.DedupeKey == "" {
			return nil, fmt.Errorf("%w: %s task for %d: it has no dedupe key", ErrInvalid, n.Kind, n.Key)
		}
	}
	return ValidateNext(batch)
}

// ValidateNext is Validate for follow-up tasks, which need no dedupe key: see [Outcome].
func ValidateNext(batch []New) ([]New, error) {
	out := make([]New, len(batch))
	for i, n := range batch {
		n.Queue = cmp.Or(n.Queue, DefaultQueue)
		if len(n.Payload) == 0 {
			n.Payload = json.RawMessage("{}")
		}
		wrong := ""
		switch {
		case len(n.DedupeKey) > maxDedupeKey:
			wrong = fmt.Sprintf("dedupe key %q: want at most %d bytes", n.DedupeKey, maxDedupeKey)
		case len(n.Payload) > MaxPayload || !json.Valid(n.Payload):
			wrong = fmt.Sprintf("its payload is not JSON of at most %d bytes", MaxPayload)
		case len(n.Queue) > MaxQueueName:
			wrong = fmt.Sprintf("queue %q: want at most %d bytes", n.Queue, MaxQueueName)
		case n.Priority < math.MinInt16 || n.Priority > math.MaxInt16:
			wrong = fmt.Sprintf("priority %d: want between %d and %d", n.Priority, math.MinInt16, math.MaxInt16)
		case n.Delay < 0 || n.Life < 0:
			wrong = fmt.Sprintf("delay %v and life %v: want none below 0", n.Delay, n.Life)
		}
		if wrong != "" {
			return nil, fmt.Errorf("%w: %s task for %d: %s", ErrInvalid, n.Kind, n.Key, wrong)
		}
		out[i] = n
	}
	return out, nil
}

// CheckName returns an error that wraps [ErrInvalid] unless the name may be a queue's.
func CheckName(queue string) error {
	if queue == "" || len(queue) > MaxQueueName {
		return fmt.Errorf("%w: queue %q: want 1 to %d bytes", ErrInvalid, queue, MaxQueueName)
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
