package queue

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// MaxQueueName is how many bytes the name of a queue may have.
const MaxQueueName = 32

// maxDedupeKey is how many bytes a dedupe key may have.
const maxDedupeKey = 128

// Validate returns the batch with defaults filled in and payloads encoded, or an error that wraps
// [ErrInvalid].
func (k Kinds) Validate(batch []New) ([]New, error) {
	out := make([]New, len(batch))
	for i, n := range batch {
		is, _ := k.of(n.Kind)
		wrong := ""
		if n.Args != nil && len(n.Payload) == 0 {
			var err error
			if n.Payload, err = json.Marshal(n.Args); err != nil {
				wrong = fmt.Sprintf("its args: %v", err)
			}
			n.Args = nil
		}
		n.Queue = cmp.Or(n.Queue, is.Queue, DefaultQueue)
		if len(n.Payload) == 0 {
			n.Payload = json.RawMessage("{}")
		}
		switch {
		case wrong != "":
		case n.Args != nil:
			wrong = "it has a payload and args"
		case len(n.DedupeKey) > maxDedupeKey || strings.ContainsFunc(n.DedupeKey, unprintable):
			wrong = fmt.Sprintf("dedupe key %q: want at most %d bytes of printable ASCII", n.DedupeKey, maxDedupeKey)
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

// unprintable reports whether a character is none of printable ASCII.
func unprintable(r rune) bool { return r < ' ' || r > '~' }

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
