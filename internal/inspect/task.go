package inspect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/queue"
)

// Lister lists tasks.
type Lister interface {
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
}

// Batch is how many tasks are read, or changed in one transaction, at once.
const Batch = 500

// Pages returns the tasks that match, by id and at most size at a time, so that
// any number of them fits into memory. It goes forward only: a task that changes
// afterwards does not come back.
func Pages(ctx context.Context, q Lister, match queue.Filter, size int) iter.Seq2[[]queue.Record, error] {
	return func(yield func([]queue.Record, error) bool) {
		for ids := match.IDs; ; {
			if match.IDs = ids[:min(len(ids), size)]; ids != nil && len(ids) == 0 {
				return
			}
			page, err := q.List(ctx, match, size)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) > 0 && !yield(page, nil) {
				return
			}
			switch {
			case ids != nil:
				ids = ids[len(match.IDs):]
			case len(page) < size:
				return
			default:
				match.After = page[len(page)-1].ID
			}
		}
	}
}

// Task returns all that is known about a task, but for its last error, as names and values.
func Task(r queue.Record, now time.Time) [][2]string {
	return [][2]string{
		{"type", OneLine(r.Kind)},
		{"member", strconv.FormatUint(r.Key, 10)},
		{"arguments", OneLine(string(r.Payload))},
		{"queue", OneLine(r.Queue)},
		{"priority", strconv.Itoa(r.Priority)},
		{"state", string(r.State)},
		{"attempts", fmt.Sprintf("%d of %d", r.Attempts, r.MaxAttempts)},
		{"created", Moment(r.Created, now)},
		{"updated", Moment(r.Updated, now)},
		{"may start", Moment(r.RunAt, now)},
		{"expires", Moment(r.ExpiresAt, now)},
		{"leased by", OneLine(r.LeaseOwner)},
		{"lease ends", Moment(r.LeaseUntil, now)},
		{"deleted", Moment(r.ForgetAt, now)},
		{"dedupe key", OneLine(r.DedupeKey)},
	}
}

// Due says what happens to a task next, and when.
func Due(r queue.Record, now time.Time) string {
	switch {
	case r.State == queue.Scheduled && !r.RunAt.After(now):
		return "now"
	case r.State == queue.Scheduled:
		return "in " + Duration(r.RunAt.Sub(now))
	case r.State == queue.Running:
		return "lease " + Duration(r.LeaseUntil.Sub(now))
	case r.State == queue.Waiting && !r.ExpiresAt.IsZero():
		return "expires " + Duration(r.ExpiresAt.Sub(now))
	case r.State == queue.Done:
		return "kept " + Duration(r.ForgetAt.Sub(now))
	}
	return "-"
}

// How much of the arguments and of the last error a table shows, in characters.
const (
	maxArgs  = 40
	MaxError = 80
)

// Args returns the arguments without the signs that JSON needs, as in
// "contact_id:98765", and "-" for none.
func Args(raw json.RawMessage) string {
	var compact bytes.Buffer // MySQL spaces it out, MariaDB keeps it as it was
	text := string(raw)
	if json.Compact(&compact, raw) == nil {
		text = compact.String()
	}
	text = strings.NewReplacer("{", "", "}", "", `"`, "").Replace(text)
	return cmp.Or(Shortened(OneLine(text), maxArgs), "-")
}
