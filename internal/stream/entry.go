package stream

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// Field is the only field of an entry.
const Field = "task"

// maxTask bounds the JSON of a task, in bytes: the largest payload of a task has room in it, with blanks and escapes.
const maxTask = 64 << 10

// entry is an entry of the stream.
type entry struct {
	id     string
	fields []string // names and values in turn, as they were added
}

// task returns the task that the entry asks for. now is by the clock of Redis. An error says why it makes no sense.
func (e entry) task(now time.Time) (queue.New, error) {
	if len(e.fields) != 2 || e.fields[0] != Field {
		return queue.New{}, fmt.Errorf("want one field, %s: it has %d", Field, len(e.fields)/2)
	}
	text := e.fields[1]
	if len(text) > maxTask {
		return queue.New{}, fmt.Errorf("the task has %d bytes: want at most %d", len(text), maxTask)
	}
	n, err := tasks.ParseLine([]byte(text))
	if err == nil && n.Kind == push.Notify {
		n, err = e.notify(n, now)
	}
	if err != nil {
		return queue.New{}, err
	}
	valid, err := tasks.Kinds().Validate([]queue.New{n})
	if err != nil {
		return queue.New{}, err
	}
	return valid[0], nil
}

// maxAge bounds the age of an entry: the id of an older entry is no time, but its producer's.
const maxAge = 5 * 365 * 24 * time.Hour

// notify returns the task for an event, with an id and an age: an event that expired in the stream is targeted as too late, with
// its receipts. now is by the clock of Redis, as the entry's id is.
func (e entry) notify(n queue.New, now time.Time) (queue.New, error) {
	event, err := push.ParseEvent(member.ID(n.Key), n.Payload)
	if err != nil {
		return queue.New{}, err
	}
	event.ID = cmp.Or(event.ID, e.eventID())
	if age := now.Sub(e.added()); age > 0 && age < maxAge {
		event.Age = age.Truncate(time.Millisecond)
	}
	return push.NewNotify(event)
}

// eventID is the id of an event whose producer gave none: the same whenever the entry is moved. The content is part of it, because
// a Redis that lost its data, and whose clock went back, gives an entry's id a second time.
func (e entry) eventID() string {
	sum := sha256.Sum256([]byte(e.fields[1]))
	return "stream-" + e.id + "-" + hex.EncodeToString(sum[:8])
}

// added returns when the entry was added, by the clock of Redis.
func (e entry) added() time.Time {
	milliseconds, _, _ := strings.Cut(e.id, "-")
	n, err := strconv.ParseInt(milliseconds, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// The bounds of an entry of the dead, in bytes.
const (
	maxReason = 500
	maxCopy   = 2048
)

// dead returns the fields of the copy that is set aside, at most about 3 KB.
func (e entry) dead(reason error) []any {
	size, text := 0, ""
	for _, s := range e.fields {
		size += len(s)
		if len(text) < maxCopy {
			text += strconv.Quote(clip(s, maxCopy)) + " "
		}
	}
	if len(e.fields) == 2 && e.fields[0] == Field {
		text = e.fields[1]
	}
	return []any{"id", e.id, "reason", clip(strings.ToValidUTF8(reason.Error(), "\uFFFD"), maxReason), "bytes", size, "entry", clip(text, maxCopy)}
}

func clip(s string, most int) string { return s[:min(len(s), most)] }
