package queue

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"
)

// DefaultQueue is the queue of a task that names none, as in schema.sql.
const DefaultQueue = "default"

// New is a task that is to be enqueued. It needs a Kind; all else may be zero.
//
// Its JSON is what [Queue.EnqueueOnce] compares: with other names, a client that
// repeats itself over an update of activityd would be refused.
type New struct {
	Kind      string          `json:"type"`
	Key       uint64          `json:"subject,string"` // what it is about; see [Kind] and [KeyOf]
	Payload   json.RawMessage `json:"args"`           // JSON of at most [MaxPayload] bytes; empty: {}, or Args
	Args      any             `json:"-"`              // the payload before it is encoded as JSON; nil: Payload is it
	Queue     string          `json:"queue"`          // "": that of its kind
	DedupeKey string          `json:"dedupe_key"`     // printable ASCII, 128 bytes at most; of tasks with one key, at most one waits to be started. "": nothing absorbs it

	Priority int           `json:"priority,omitzero"` // the lower the more urgent; see [Normal]
	Delay    time.Duration `json:"delay,omitzero"`    // it starts no sooner
	Life     time.Duration `json:"life,omitzero"`     // it is dropped if it was not started by then; 0: never
}

// KeyOf returns the key of what has a name, such as "album/7", and no number: the first eight bytes
// of its SHA-256. In SQL it is CONV(LEFT(SHA2(name, 256), 16), 16, 10). Should two names have one
// key, which is unlikely as long as they are fewer than a billion, their tasks run one at a time.
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

// Task is a task as it was claimed: it is this process's work until its lease
// ends.
type Task struct {
	ID          uint64
	Kind        string
	Key         uint64
	Payload     json.RawMessage
	Queue       string
	Priority    int
	Attempts    int // this one included
	MaxAttempts int
	Lease       string // the claim that it belongs to; no other may finish it
	Expires     bool   // it may be dropped when it is not started in time
	Index       int    // its place in the claim

	Created time.Time     // by the database's clock, as all that follows
	Waited  time.Duration // from when it was enqueued, or became due, to the claim
	Claimed time.Time
}

// ErrInvalid is wrapped by the errors for a task that cannot be understood.
var ErrInvalid = errors.New("invalid task")

// MaxPayload is how many bytes the payload of a task may have; a claim reads no
// more, so that what it holds is bounded: 1024 of them, the most that several workers claim
// at once, are 32 MiB.
const MaxPayload = 32 << 10
