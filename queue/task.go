package queue

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf16"
)

// DefaultQueue is the queue of a task that names none, as in schema.sql.
const DefaultQueue = "default"

// New is a task that is to be enqueued. It needs a Kind; the zero value of each further field will do.
//
// Its JSON is what [Queue.EnqueueOnce] compares: under other names, a client that repeats itself over an update of activityd would
// be refused.
type New struct {
	Kind      string          `json:"type"`
	Key       uint64          `json:"subject,string"` // the object of the task; see [Kind] and [KeyOf]
	Payload   json.RawMessage `json:"args"`           // JSON of at most [MaxPayload] bytes; empty: {}, or Args
	Args      any             `json:"-"`              // the payload before it is encoded as JSON; nil: Payload is it
	Queue     string          `json:"queue"`          // "": that of its kind
	DedupeKey string          `json:"dedupe_key"`     // unique among tasks that have not started: see [Queue.Enqueue]. At most 128 bytes of printable ASCII, no blank at the end

	Priority    int           `json:"priority,omitzero"`     // the lower the more urgent; see [Normal]
	Delay       time.Duration `json:"delay,omitzero"`        // it starts no sooner
	Life        time.Duration `json:"life,omitzero"`         // it is dropped if it has not started by then; 0: never
	MaxAttempts int           `json:"max_attempts,omitzero"` // at most 65535; 0: as its kind says
	Backoff     time.Duration `json:"backoff,omitzero"`      // at most 24 hours; 0: as its kind says
}

// KeyOf returns the key of an object that has a name instead of a number, as "album/7": the first eight bytes of the SHA-256 of
// the name. In SQL it is CONV(LEFT(SHA2(name, 256), 16), 16, 10). Should two names have the same key, their tasks run one at a time;
// it is unlikely among fewer than a billion names.
func KeyOf(name string) uint64 {
	sum := sha256.Sum256([]byte(name))
	return binary.BigEndian.Uint64(sum[:8])
}

// Priorities. Any number between -32768 and 32767 will do.
const (
	Urgent = -10
	Normal = 0
	Idle   = 10
)

// Task is a task as it was claimed. It is the work of its claimer until the lease ends.
type Task struct {
	ID          uint64
	Kind        string
	Key         uint64
	Payload     json.RawMessage
	Queue       string
	Priority    int
	Attempts    int // with this attempt
	MaxAttempts int
	Backoff     time.Duration // after the first failure
	Lease       string        // the token of the claim: only its holder can extend and finish the task

	Created time.Time     // by the database's clock, as the fields below
	Waited  time.Duration // from when it was enqueued, or became due, to the claim
	Claimed time.Time
}

// ErrInvalid is wrapped by the errors for a task that cannot be understood.
var ErrInvalid = errors.New("invalid task")

// MaxPayload is how many bytes the payload of a task may have, with \uXXXX for characters that are not ASCII. A claim reads no more: the
// payloads of a claim of 1024 tasks have 32 MiB.
const MaxPayload = 32 << 10

// MaxQueueName is how many bytes the name of a queue may have.
const MaxQueueName = 32

const (
	maxDedupeKey = 128            // bytes
	maxTaskPause = 24 * time.Hour // of New.Backoff
)

var noArgs = json.RawMessage("{}")

// Validate returns the batch with defaults filled in and payloads encoded, or an error that wraps [ErrInvalid].
func (k Kinds) Validate(batch []New) ([]New, error) {
	out := make([]New, len(batch))
	for i, n := range batch {
		wrong := ""
		if n.Args != nil && len(n.Payload) == 0 {
			var err error
			if n.Payload, err = json.Marshal(n.Args); err != nil {
				wrong = fmt.Sprintf("its args: %v", err)
			}
			n.Args = nil
		}
		is, _ := k.of(n.Kind)
		n.Queue = cmp.Or(n.Queue, is.Queue, DefaultQueue)
		n.Payload = inASCII(n.Payload)
		if len(n.Payload) == 0 {
			n.Payload = noArgs
		}
		if wrong = cmp.Or(wrong, n.wrong()); wrong != "" {
			return nil, fmt.Errorf("%w: %s task for %d: %s", ErrInvalid, n.Kind, n.Key, wrong)
		}
		out[i] = n
	}
	return out, nil
}

// wrong says why a task makes no sense.
func (n New) wrong() string {
	switch {
	case n.Args != nil:
		return "it has a payload and args"
	case len(n.DedupeKey) > maxDedupeKey || strings.ContainsFunc(n.DedupeKey, unprintable) || strings.HasSuffix(n.DedupeKey, " "):
		return fmt.Sprintf("dedupe key %q: want at most %d bytes of printable ASCII, and no blank at the end", n.DedupeKey, maxDedupeKey)
	case len(n.Payload) > MaxPayload || !json.Valid(n.Payload):
		return fmt.Sprintf("its payload is not JSON of at most %d bytes", MaxPayload)
	case len(n.Queue) > MaxQueueName:
		return fmt.Sprintf("queue %q: want at most %d bytes", n.Queue, MaxQueueName)
	case n.Priority < math.MinInt16 || n.Priority > math.MaxInt16:
		return fmt.Sprintf("priority %d: want between %d and %d", n.Priority, math.MinInt16, math.MaxInt16)
	case n.Delay < 0 || n.Life < 0:
		return fmt.Sprintf("delay %v and life %v: want none below 0", n.Delay, n.Life)
	case n.MaxAttempts < 0 || n.MaxAttempts > math.MaxUint16 || n.Backoff < 0 || n.Backoff > maxTaskPause:
		return fmt.Sprintf("%d attempts, backoff %v: want at most %d, and %v", n.MaxAttempts, n.Backoff, math.MaxUint16, maxTaskPause)
	}
	return ""
}

// unprintable reports whether a character is none of printable ASCII.
func unprintable(r rune) bool { return r < ' ' || r > '~' }

// inASCII returns JSON with \uXXXX for characters that are not ASCII, so that no character set of a connection garbles it.
func inASCII(text json.RawMessage) json.RawMessage {
	if !bytes.ContainsFunc(text, func(r rune) bool { return r >= 0x80 }) {
		return text
	}
	var out []byte
	for _, r := range string(text) {
		if r < 0x80 {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}

// CheckName returns an error that wraps [ErrInvalid] unless the name may be a queue's.
func CheckName(queue string) error {
	if queue == "" || len(queue) > MaxQueueName {
		return fmt.Errorf("%w: queue %q: want 1 to %d bytes", ErrInvalid, queue, MaxQueueName)
	}
	return nil
}

// with returns the task that stands for n and m, which have the same dedupe key: it runs as early, as urgently and lives as long as
// either would.
func (n New) with(m New) New {
	n.Priority = min(n.Priority, m.Priority)
	n.Delay = min(n.Delay, m.Delay)
	if min(n.Life, m.Life) == 0 {
		n.Life = 0
	} else {
		n.Life = max(n.Life, m.Life)
	}
	return n
}
