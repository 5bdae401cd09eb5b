package main

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
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
	q, store := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), push.NewMySQL(db)
	e, waiting, err := l.find(ctx, q, store, name)
	switch {
	case err != nil:
		return err
	case waiting != nil && l.output == outputJSON:
		return newLineEncoder(out).Encode(newTaskJSON(*waiting))
	case waiting != nil:
		_, err := fmt.Fprintf(out, "the event has not been targeted yet\n%s", taskSheet(*waiting, time.Now()))
		return err
	}
	view := pushView{Event: newEventJSON(e)}
	if view.Counts, err = store.CountReceipts(ctx, e.Number); err != nil {
		return err
	}
	if view.Tasks, err = l.tasks(ctx, q, e); err != nil {
		return err
	}
	printer := newPushPrinter(out, l.output)
	if err := printer.event(view); err != nil {
		return err
	}
	return l.fates(ctx, store, e.Number, printer, notes)
}

// find returns the event that a name stands for, or, if that is not stored yet, its notify
// task. Of a delivery, it has l show its member alone.
func (l *pushLook) find(ctx context.Context, q taskAdmin, store *push.MySQL, name string) (*push.StoredEvent, *queue.Record, error) {
	if e, err := store.EventByID(ctx, name); err != nil || e != nil {
		return e, nil, err
	}
	match := queue.Filter{Kinds: []string{push.Notify}} // those of which none was stored
	id, isNumber := parseTaskID(name)
	if isNumber {
		match = queue.Filter{IDs: []uint64{id}}
	}
	for page, err := range inspect.Pages(ctx, q, match, inspect.Batch) {
		if err != nil {
			return nil, nil, err
		}
		for _, r := range page {
			switch {
			case isNumber && (r.Kind == push.Target || r.Kind == push.Deliver):
				e, err := l.eventOf(ctx, store, r)
				return e, nil, err
			case isNumber && r.Kind != push.Notify:
				return nil, nil, fmt.Errorf("task %d is of type %s: want notify, target or deliver", r.ID, inspect.OneLine(r.Kind))
			case isNumber || eventID(r) == name:
				e, err := store.EventByID(ctx, eventID(r))
				if e != nil || err != nil {
					return e, nil, err
				}
				return nil, &r, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("there is no event or task %s: events are kept for a day after they expire, and tasks until they are done", inspect.OneLine(name))
}

// parseTaskID reads 4711, and task-4711, as a row's event is named whose row is still there.
func parseTaskID(name string) (uint64, bool) {
	id, err := strconv.ParseUint(strings.TrimPrefix(name, "task-"), 10, 64)
	return id, err == nil
}

// eventID returns the id of the event of a notify task.
func eventID(r queue.Record) string {
	var e struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(r.Payload, &e) // one that cannot be read has none
	return cmp.Or(e.ID, "task-"+strconv.FormatUint(r.ID, 10))
}

// eventOf returns the event of a target or deliver task.
func (l *pushLook) eventOf(ctx context.Context, store *push.MySQL, r queue.Record) (*push.StoredEvent, error) {
	var d push.Delivery
	if err := json.Unmarshal(r.Payload, &d); err != nil {
		return nil, fmt.Errorf("arguments of task %d: %w", r.ID, err)
	}
	if r.Kind == push.Deliver && l.only == 0 {
		l.only = d.Member
	}
	found, err := store.Events(ctx, []uint64{d.Event})
	if err == nil && found[d.Event] == nil {
		err = fmt.Errorf("the event of task %d is not known any more", r.ID)
	}
	return found[d.Event], err
}

// tasks returns the tasks of an event that are not done.
func (l *pushLook) tasks(ctx context.Context, q taskAdmin, e *push.StoredEvent) (list []pushTaskJSON, err error) {
	burst := ""
	if hash := e.Burst(); e.Collapse != "" {
		burst = hex.EncodeToString(hash[:])
	}
	unfinished := []queue.State{queue.Waiting, queue.Scheduled, queue.Running, queue.Dead}
	for _, match := range []queue.Filter{
		{IDs: []uint64{e.Task}, Kinds: []string{push.Notify}, States: unfinished},
		{Kinds: []string{push.Target}, Key: uint64(e.Actor), States: unfinished},
		{Kinds: []string{push.Deliver}, States: unfinished},
	} {
		for page, err := range inspect.Pages(ctx, q, match, inspect.Batch) {
			if err != nil {
				return nil, err
			}
			for _, r := range page {
				var d push.Delivery
				_ = json.Unmarshal(r.Payload, &d) // one that cannot be read is of no event
				isOf := r.Kind == push.Notify || d.Event == e.Number || d.Burst != "" && d.Burst == burst
				if isOf && (l.only == 0 || r.Kind != push.Deliver || d.Member == l.only) {
					list = append(list, newPushTask(r, d))
				}
			}
		}
	}
	return list, nil
}

// fates prints what became of the event for each device.
func (l *pushLook) fates(ctx context.Context, store *push.MySQL, event uint64, printer *pushPrinter, notes io.Writer) error {
	var last push.Fate
	for shown := 0; ; {
		size := inspect.Batch
		if l.limit > 0 {
			size = min(inspect.Batch, l.limit-shown+1)
		}
		page, err := store.Fates(ctx, event, l.only, last.Member, last.Device, size)
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
		shown += len(page)
		switch {
		case more:
			fmt.Fprintln(notes, "there are more: show all with --limit 0, or those of one with --member ID")
			return nil
		case len(page) < size:
			return nil
		}
		last = page[len(page)-1]
	}
}

// pushView is what is known of an event, without its deliveries.
type pushView struct {
	Event  eventJSON
	Counts []push.ReceiptCount
	Tasks  []pushTaskJSON
}

// eventJSON is an event as other programs read it.
type eventJSON struct {
	ID         string          `json:"id"`
	Number     uint64          `json:"number,string"`
	Task       uint64          `json:"task_id,string"`
	Actor      member.ID       `json:"actor_id"`
	Event      json.RawMessage `json:"event"`
	CreatedAt  string          `json:"created_at"`
	ExpiresAt  string          `json:"expires_at"`
	recipients string
	created    time.Time
	expires    time.Time
}

func newEventJSON(e *push.StoredEvent) eventJSON {
	raw, err := json.Marshal(e.Event)
	if err != nil {
		raw = []byte("null") // it was read from JSON, so it can be written
	}
	to := fmt.Sprintf("%d recipients", len(e.Recipients))
	switch {
	case e.Followers:
		to = "the followers of the actor"
	case len(e.Recipients) == 1:
		to = "1 recipient"
	}
	return eventJSON{
		ID: e.ID, Number: e.Number, Task: e.Task, Actor: e.Actor, Event: raw, CreatedAt: inspect.Stamp(e.Created), ExpiresAt: inspect.Stamp(e.Expires),
		recipients: to, created: e.Created, expires: e.Expires,
	}
}

// pushTaskJSON is a task of an event that is not done.
type pushTaskJSON struct {
	ID       uint64      `json:"id,string"`
	Type     string      `json:"type"`
	Member   *member.ID  `json:"member,omitempty"`        // deliver
	Device   uint64      `json:"device,string,omitempty"` // deliver
	State    queue.State `json:"state"`
	Attempts int         `json:"attempts"`
	RunAt    string      `json:"run_at,omitempty"`
	Error    string      `json:"last_error,omitempty"`
	record   queue.Record
}

func newPushTask(r queue.Record, d push.Delivery) pushTaskJSON {
	t := pushTaskJSON{ID: r.ID, Type: r.Kind, State: r.State, Attempts: r.Attempts, RunAt: inspect.Stamp(r.RunAt), Error: r.LastError, record: r}
	if r.Kind == push.Deliver {
		t.Member, t.Device = &d.Member, r.Key
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
	if err := p.lines.Encode(map[string]any{"event": v.Event}); err != nil {
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
		if err := p.lines.Encode(map[string]any{"task": t}); err != nil {
			return err
		}
	}
	return nil
}

// maxPushTasks is how many tasks of an event people are shown.
const maxPushTasks = 20

func (p *pushPrinter) sheet(v pushView) error {
	var counts []string
	for _, c := range v.Counts {
		counts = append(counts, strings.TrimSuffix(fmt.Sprintf("%d %s (%s)", c.Count, c.State, inspect.OneLine(c.Reason)), " ()"))
	}
	var text strings.Builder
	text.WriteString(sheet("event "+inspect.OneLine(v.Event.ID), [][2]string{
		{"actor", v.Event.Actor.String()},
		{"for", v.Event.recipients},
		{"event", inspect.OneLine(string(v.Event.Event))},
		{"created", inspect.Moment(v.Event.created, p.now)},
		{"expires", inspect.Moment(v.Event.expires, p.now)},
		{"deliveries", cmp.Or(strings.Join(counts, ", "), "none has ended yet, or there is none")},
		{"tasks", strconv.Itoa(len(v.Tasks)) + " not done"},
	}...))
	if len(v.Tasks) > 0 {
		table := newTable(&text)
		fmt.Fprintln(table, "  TASK\tTYPE\tMEMBER\tDEVICE\tSTATE\tATTEMPTS\tDUE\tLAST ERROR") // Flush returns its error
		for _, t := range v.Tasks[:min(len(v.Tasks), maxPushTasks)] {
			of, device := "-", "-"
			if t.Member != nil {
				of, device = t.Member.String(), strconv.FormatUint(t.Device, 10)
			}
			fmt.Fprintf(table, "  %d\t%s\t%s\t%s\t%s\t%d\t%s\t%s\n", t.ID, t.Type, of, device, t.State, t.Attempts,
				inspect.Due(t.record, p.now), cmp.Or(inspect.Shortened(inspect.OneLine(t.Error), inspect.MaxError), "-"))
		}
		if err := table.Flush(); err != nil {
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
	if len(page) > 0 && !p.begun {
		p.begun = true
		fmt.Fprintln(table, "MEMBER\tDEVICE\tPLATFORM\tSTATE\tREASON\tAGE\tPROVIDER'S ID\tDEVICE GONE") // Flush returns its error
	}
	for _, f := range page {
		device := "-"
		if f.Device != 0 {
			device = strconv.FormatUint(f.Device, 10)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", f.Member, device, cmp.Or(string(f.Platform), "-"), f.State,
			cmp.Or(inspect.OneLine(f.Reason), "-"), inspect.Duration(p.now.Sub(f.At)), cmp.Or(inspect.OneLine(f.ProviderID), "-"), cmp.Or(inspect.OneLine(f.Gone), "-"))
	}
	return table.Flush()
}
