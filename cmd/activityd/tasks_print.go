package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/queue"
)

// taskPrinter writes tasks one by one. Nothing may be expected to be written
// before end.
type taskPrinter interface {
	print(r queue.Record) error
	end() error
}

// newTaskPrinter returns one for a form of --output; details makes of the table a
// sheet for each task.
func newTaskPrinter(w io.Writer, output string, details bool) taskPrinter {
	switch {
	case output == outputJSON:
		return jsonTasks{newLineEncoder(w)}
	case details:
		return &taskSheets{w: w, now: time.Now()}
	}
	return &taskTable{w: w, now: time.Now()}
}

// taskTable writes a row for each task.
type taskTable struct {
	w     io.Writer
	now   time.Time
	table *textTable // nil: nothing was printed yet
}

func (t *taskTable) print(r queue.Record) error {
	if t.table == nil {
		t.table = newTextTable(t.w, "ID", "QUEUE", "TYPE", "SUBJECT", "ARGS", "STATE", "ATTEMPTS", "AGE", "DUE", "LAST ERROR")
	}
	t.table.add(
		strconv.FormatUint(r.ID, 10), oneLine(r.Queue), oneLine(r.Kind), strconv.FormatUint(r.Key, 10), argsCell(r.Payload), string(r.State),
		fmt.Sprintf("%d/%d", r.Attempts, r.MaxAttempts), shortDuration(t.now.Sub(r.Created)), t.due(r), oneLine(r.LastError),
	)
	if len(t.table.rows) < taskBatch {
		return nil
	}
	return t.table.flush()
}

func (t *taskTable) end() error {
	if t.table == nil {
		return nil
	}
	return t.table.flush()
}

// due says what happens to a task next, and when.
func (t *taskTable) due(r queue.Record) string {
	switch {
	case r.State == queue.Scheduled && !r.RunAt.After(t.now):
		return "now"
	case r.State == queue.Scheduled:
		return "in " + shortDuration(r.RunAt.Sub(t.now))
	case r.State == queue.Running:
		return "lease " + shortDuration(r.LeaseUntil.Sub(t.now))
	case r.State == queue.Waiting && !r.ExpiresAt.IsZero():
		return "expires " + shortDuration(r.ExpiresAt.Sub(t.now))
	case r.State == queue.Done:
		return "kept " + shortDuration(r.ForgetAt.Sub(t.now))
	}
	return "-"
}

// mostArgs is how much of the arguments a table shows, in characters.
const mostArgs = 40

// argsCell returns the arguments without the signs that JSON needs, as in
// "contact_id:98765", and "-" for none.
func argsCell(raw json.RawMessage) string {
	var compact bytes.Buffer // MySQL spaces it out, MariaDB keeps it as it was
	text := string(raw)
	if json.Compact(&compact, raw) == nil {
		text = compact.String()
	}
	cell := strings.Map(func(r rune) rune {
		if r == '{' || r == '}' || r == '"' {
			return -1
		}
		return r
	}, text)
	return cmp.Or(shortened(oneLine(cell), mostArgs), "-")
}

// newLineEncoder returns an encoder of one object a line. Its output is for
// programs and terminals, and not for pages.
func newLineEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// jsonTasks writes a line of JSON for each task.
type jsonTasks struct{ encoder *json.Encoder }

func (j jsonTasks) print(r queue.Record) error { return j.encoder.Encode(newTaskJSON(r)) }

func (j jsonTasks) end() error { return nil }

// taskJSON is a task as other programs read it.
type taskJSON struct {
	ID          uint64          `json:"id,string"`
	Queue       string          `json:"queue"`
	Type        string          `json:"type"`
	Subject     uint64          `json:"subject,string"`
	Args        json.RawMessage `json:"args,omitempty"`
	Priority    int             `json:"priority"`
	State       queue.State     `json:"state"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts"`
	CreatedAt   string          `json:"created_at"`
	UpdatedAt   string          `json:"updated_at"`
	RunAt       string          `json:"run_at,omitempty"`
	ExpiresAt   string          `json:"expires_at,omitempty"`
	LeaseOwner  string          `json:"lease_owner,omitempty"`
	LeaseUntil  string          `json:"lease_until,omitempty"`
	ForgetAt    string          `json:"forget_at,omitempty"`
	DedupeKey   string          `json:"dedupe_key,omitempty"`
	LastError   string          `json:"last_error,omitempty"`
}

func newTaskJSON(r queue.Record) taskJSON {
	return taskJSON{
		ID: r.ID, Queue: r.Queue, Type: r.Kind, Subject: r.Key, Args: r.Payload, Priority: r.Priority, State: r.State,
		Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, CreatedAt: stamp(r.Created), UpdatedAt: stamp(r.Updated),
		RunAt: stamp(r.RunAt), ExpiresAt: stamp(r.ExpiresAt), LeaseOwner: r.LeaseOwner, LeaseUntil: stamp(r.LeaseUntil),
		ForgetAt: stamp(r.ForgetAt), DedupeKey: r.DedupeKey, LastError: r.LastError,
	}
}

// stamp returns a time as RFC 3339 in UTC with milliseconds; nothing for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}
