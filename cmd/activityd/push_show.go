package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// pushLook is what the flags of push show say.
type pushLook struct {
	output string
	limit  int
	only   member.ID // 0: all members
}

func newPushShow() *cobra.Command {
	c, l, only := &config{}, pushLook{}, ""
	cmd := &cobra.Command{
		Use:   "show EVENT_OR_DELIVERY",
		Short: "Show which devices an event was for, and what became of each delivery",
		Long: "Show an event, which devices it was for, which not and why, what became of each delivery, and the\n" +
			"tasks of it that still wait. EVENT is the id that its producer gave it, or was given (task-4711 for\n" +
			"a row without one); a task of type notify, target or deliver stands for its event, too: of a\n" +
			"delivery, what concerns its member is shown. Events are kept for a day after they expire, and\n" +
			"followers without a device are not recorded. To find the tasks, all that wait are looked through." + outputHelp,
		Example: "  activityd push show task-4711\n  activityd push show upload-901 --member 12345\n  activityd push show 4712 -o json",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if only != "" {
				if l.only, err = member.Parse(only); err != nil {
					return fmt.Errorf("--member: %w", err)
				}
			}
			if l.limit < 0 {
				return fmt.Errorf("--limit: is %d: want at least 0", l.limit)
			}
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			db, err := openMySQL(c, c.mysqlConnections)
			if err != nil {
				return err
			}
			defer func() { _ = db.Close() }() // it only read
			return l.run(cmd.Context(), db, args[0], cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&only, "member", "", "only what concerns this `member`")
	f.IntVar(&l.limit, "limit", 50, "how many deliveries to show; 0: all")
	outputFlag(f, &l.output)
	c.mysqlFlags(f)
	return cmd
}

func (l *pushLook) run(ctx context.Context, db *sql.DB, name string, out, notes io.Writer) error {
	if err := schema.Compatible(ctx, db); err != nil {
		return err
	}
	store := push.NewMySQL(db)
	events := &inspect.Events{Queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), Store: store, Only: l.only, Deep: true}
	e, waiting, err := events.Find(ctx, name)
	switch {
	case err != nil:
		return err
	case waiting != nil && l.output == outputJSON:
		return newLineEncoder(out).Encode(newTaskJSON(*waiting))
	case waiting != nil:
		_, err := fmt.Fprintf(out, "the event has not been targeted yet\n%s", taskSheet(*waiting, time.Now()))
		return err
	}
	l.only = events.Only
	view := pushView{Event: e}
	if view.Counts, err = store.CountReceipts(ctx, e.Number, math.MaxInt64); err != nil {
		return err
	}
	if view.Tasks, err = events.Tasks(ctx, e); err != nil {
		return err
	}
	printer := newPushPrinter(out, l.output)
	if err := printer.event(view); err != nil {
		return err
	}
	return l.fates(ctx, store, e.Number, printer, notes)
}

// fates prints what became of the event for each device.
func (l *pushLook) fates(ctx context.Context, store *push.MySQL, event uint64, printer *pushPrinter, notes io.Writer) error {
	shown := 0
	for page, err := range store.Fates(ctx, event, l.only) {
		if err != nil {
			return err
		}
		more := l.limit > 0 && shown+len(page) > l.limit
		if more {
			page = page[:l.limit-shown]
		}
		if err := printer.fates(page); err != nil {
			return err
		}
		if shown += len(page); more {
			fmt.Fprintln(notes, "there are more: show all with --limit 0, or those of one with --member ID")
			return nil
		}
	}
	return nil
}

// pushView is what is known of an event, without its deliveries.
type pushView struct {
	Event  *push.StoredEvent
	Counts []push.ReceiptCount
	Tasks  []inspect.EventTask
}

// eventJSON is an event as other programs read it.
type eventJSON struct {
	ID        string          `json:"id"`
	Number    uint64          `json:"number,string"`
	Task      uint64          `json:"task_id,string"`
	Actor     member.ID       `json:"actor_id"`
	Event     json.RawMessage `json:"event"`
	CreatedAt string          `json:"created_at"`
	ExpiresAt string          `json:"expires_at"`
}

func newEventJSON(e *push.StoredEvent) eventJSON {
	raw, err := json.Marshal(e.Event)
	if err != nil {
		raw = []byte("null") // it was read from JSON, so it can be written
	}
	return eventJSON{
		ID: e.ID, Number: e.Number, Task: e.Task, Actor: e.Actor, Event: raw, CreatedAt: inspect.Stamp(e.Created), ExpiresAt: inspect.Stamp(e.Expires),
	}
}

// toJSON is a device that a delivery is for.
type toJSON struct {
	Member member.ID `json:"member"`
	Device uint64    `json:"device,string"`
}

// pushTaskJSON is a task of an event that is not done.
type pushTaskJSON struct {
	ID       uint64      `json:"id,string"`
	Type     string      `json:"type"`
	To       []toJSON    `json:"to,omitempty"` // deliver
	State    queue.State `json:"state"`
	Attempts int         `json:"attempts"`
	RunAt    string      `json:"run_at,omitempty"`
	Error    string      `json:"last_error,omitempty"`
}

func newPushTask(r inspect.EventTask) pushTaskJSON {
	t := pushTaskJSON{ID: r.ID, Type: r.Kind, State: r.State, Attempts: r.Attempts, RunAt: inspect.Stamp(r.RunAt), Error: r.LastError}
	for _, to := range r.To {
		t.To = append(t.To, toJSON(to))
	}
	return t
}

// fateJSON is what became of a delivery.
type fateJSON struct {
	Member     member.ID     `json:"member"`
	Device     uint64        `json:"device,string,omitempty"` // absent: the member as a whole
	Platform   push.Platform `json:"platform,omitempty"`
	State      push.State    `json:"state"`
	Reason     string        `json:"reason,omitempty"`
	ProviderID string        `json:"provider_id,omitempty"`
	At         string        `json:"at"`
	Gone       string        `json:"device_gone,omitempty"`
}

// pushPrinter writes as a table for people, or as lines of JSON: {"event":…}, {"count":…},
// {"task":…} and {"delivery":…}.
type pushPrinter struct {
	out   io.Writer
	lines *json.Encoder // nil: a table
	now   time.Time
	begun bool
}

func newPushPrinter(out io.Writer, output string) *pushPrinter {
	p := &pushPrinter{out: out, now: time.Now()}
	if output == outputJSON {
		p.lines = newLineEncoder(out)
	}
	return p
}

func (p *pushPrinter) event(v pushView) error {
	if p.lines == nil {
		return p.sheet(v)
	}
	if err := p.lines.Encode(map[string]any{"event": newEventJSON(v.Event)}); err != nil {
		return err
	}
	for _, c := range v.Counts {
		count := struct {
			State  push.State `json:"state"`
			Reason string     `json:"reason,omitempty"`
			Count  int        `json:"count"`
		}{c.State, c.Reason, c.Count}
		if err := p.lines.Encode(map[string]any{"count": count}); err != nil {
			return err
		}
	}
	for _, t := range v.Tasks {
		if err := p.lines.Encode(map[string]any{"task": newPushTask(t)}); err != nil {
			return err
		}
	}
	return nil
}

// maxPushTasks is how many tasks of an event people are shown.
const maxPushTasks = 20

func (p *pushPrinter) sheet(v pushView) error {
	var text strings.Builder
	facts := append(inspect.Event(v.Event, v.Counts, p.now), [2]string{"tasks", strconv.Itoa(len(v.Tasks)) + " not done"})
	text.WriteString(sheet("event "+inspect.OneLine(v.Event.ID), facts...))
	if len(v.Tasks) > 0 {
		table := inspect.EventTasks(v.Tasks[:min(len(v.Tasks), maxPushTasks)], p.now)
		for _, row := range append([][]string{table.Head}, table.Rows...) {
			row[0] = "  " + row[0]
		}
		if err := printTable(&text, table); err != nil {
			return err
		}
		if more := len(v.Tasks) - maxPushTasks; more > 0 {
			fmt.Fprintf(&text, "  and %d more\n", more)
		}
	}
	_, err := io.WriteString(p.out, text.String())
	return err
}

func (p *pushPrinter) fates(page []push.Fate) error {
	if p.lines != nil {
		for _, f := range page {
			one := fateJSON{f.Member, f.Device, f.Platform, f.State, f.Reason, f.ProviderID, inspect.Stamp(f.At), f.Gone}
			if err := p.lines.Encode(map[string]any{"delivery": one}); err != nil {
				return err
			}
		}
		return nil
	}
	table := newTable(p.out)
	fates := inspect.Fates(page, p.now)
	if len(page) > 0 && !p.begun {
		p.begun = true
		fmt.Fprintln(table, strings.Join(fates.Head, "\t")) // Flush returns its error
	}
	for _, row := range fates.Rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}
