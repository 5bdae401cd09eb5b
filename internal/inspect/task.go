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

// Batch is how many tasks are read, or changed by a transaction, at once.
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

// Change changes the tasks of pages, a transaction for each page, and returns how many it changed, and how many it left
// alone, as they do not match any more or are locked. An end of ctx stops it between two pages: a page that began is
// finished, so that the numbers are true. It goes by id, so that no task is changed twice: a retried task may be dead
// again before the last page is reached.
func Change(
	ctx context.Context, pages iter.Seq2[[]queue.Record, error], match queue.Filter,
	do func(ctx context.Context, match queue.Filter, limit int) (int, error),
) (changed, missed int, err error) {
	for page, err := range pages {
		if err != nil {
			return changed, missed, err
		}
		batch := queue.Filter{States: match.States, Error: match.Error}
		for _, r := range page {
			batch.IDs = append(batch.IDs, r.ID)
		}
		n, err := do(context.WithoutCancel(ctx), batch, len(page))
		changed += n
		if err != nil {
			return changed, missed, err
		}
		missed += len(page) - n
	}
	return changed, missed, nil
}

// Tasks returns a row for each task.
func Tasks(list []queue.Record, now time.Time) Table {
	t := Table{Head: []string{"ID", "QUEUE", "TYPE", "MEMBER", "ARGS", "STATE", "ATTEMPTS", "AGE", "DUE", "LAST ERROR"}}
	for _, r := range list {
		t.Rows = append(t.Rows, []string{
			strconv.FormatUint(r.ID, 10), OneLine(r.Queue), OneLine(r.Kind), strconv.FormatUint(r.Key, 10), Args(r.Payload), string(r.State),
			attempts(r.Attempts, "/", r.MaxAttempts), Duration(now.Sub(r.Created)), Due(r, now), cmp.Or(Shortened(OneLine(r.LastError), MaxError), "-"),
		})
	}
	return t
}

// attempts says how many attempts there were, and how many there may be, if a limit is known.
func attempts(n int, of string, most int) string {
	if most == 0 {
		return strconv.Itoa(n)
	}
	return fmt.Sprint(n, of, most)
}

// Task returns all that is known about a task, but for its last error, as names and values.
func Task(r queue.Record, now time.Time) [][2]string {
	state := string(r.State)
	if r.Behind {
		state += ", behind another task of its key"
	}
	return [][2]string{
		{"type", OneLine(r.Kind)},
		{"member", strconv.FormatUint(r.Key, 10)},
		{"arguments", OneLine(string(r.Payload))},
		{"queue", OneLine(r.Queue)},
		{"priority", strconv.Itoa(r.Priority)},
		{"state", state},
		{"attempts", attempts(r.Attempts, " of ", r.MaxAttempts)},
		{"created", Moment(r.Created, now)},
		{"started", Moment(r.Started, now)},
		{"dead since", Moment(r.Died, now)},
		{"may start", Moment(r.RunAt, now)},
		{"expires", Moment(r.ExpiresAt, now)},
		{"leased by", OneLine(r.LeaseOwner)},
		{"lease ends", Moment(r.LeaseUntil, now)},
		{"dedupe key", OneLine(r.DedupeKey)},
	}
}

// Due says how a task goes on, and when.
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
