package inspect

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

// ErrNoEvent says that a name stands for no event that is known.
var ErrNoEvent = errors.New("there is no event or task")

// Events finds events of push, and what became of them.
type Events struct {
	Queue Lister
	Store interface {
		EventByID(ctx context.Context, id string) (*push.StoredEvent, error)
		Events(ctx context.Context, numbers []uint64) (map[uint64]*push.StoredEvent, error)
	}
	Only member.ID // what concerns it alone; 0: all members
	// Deep: look through all tasks that wait. Else what it reads is found by an index.
	Deep bool
}

// EventTask is a task of an event.
type EventTask struct {
	queue.Record

	To []push.Recipient // of a delivery
}

// Find returns the event that a name stands for, or, if that is not stored yet, its notify
// task. Of a delivery, it has v show its member alone.
func (v *Events) Find(ctx context.Context, name string) (*push.StoredEvent, *queue.Record, error) {
	if e, err := v.Store.EventByID(ctx, name); err != nil || e != nil {
		return e, nil, err
	}
	match := queue.Filter{Kinds: []string{push.Notify}} // those of which none was stored
	id, isNumber := parseTaskID(name)
	switch {
	case isNumber:
		match = queue.Filter{IDs: []uint64{id}}
	case !v.Deep:
		return nil, nil, fmt.Errorf("%w %s", ErrNoEvent, OneLine(name))
	}
	for page, err := range Pages(ctx, v.Queue, match, Batch) {
		if err != nil {
			return nil, nil, err
		}
		for _, r := range page {
			switch {
			case isNumber && (r.Kind == push.Target || r.Kind == push.Deliver):
				e, err := v.eventOf(ctx, r)
				return e, nil, err
			case isNumber && r.Kind != push.Notify:
				return nil, nil, fmt.Errorf("%w: task %d is of type %s: want notify, target or deliver", ErrNoEvent, r.ID, OneLine(r.Kind))
			case isNumber || eventID(r) == name:
				e, err := v.Store.EventByID(ctx, eventID(r))
				if e != nil || err != nil {
					return e, nil, err
				}
				return nil, &r, nil
			}
		}
	}
	return nil, nil, fmt.Errorf("%w %s: events are kept for a day after they expire, and tasks until they are done", ErrNoEvent, OneLine(name))
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
func (v *Events) eventOf(ctx context.Context, r queue.Record) (*push.StoredEvent, error) {
	var d push.Delivery
	if err := json.Unmarshal(r.Payload, &d); err != nil {
		return nil, fmt.Errorf("arguments of task %d: %w", r.ID, err)
	}
	if r.Kind == push.Deliver && v.Only == 0 && len(d.To) == 1 {
		v.Only = d.To[0].Member
	}
	found, err := v.Store.Events(ctx, []uint64{d.Event})
	if err == nil && found[d.Event] == nil {
		err = fmt.Errorf("%w: that of task %d is not known any more", ErrNoEvent, r.ID)
	}
	return found[d.Event], err
}

// Tasks returns the tasks of an event that are not done, deliveries only where it looks through all of them.
func (v *Events) Tasks(ctx context.Context, e *push.StoredEvent) (list []EventTask, err error) {
	burst := ""
	if hash := e.Burst(); e.Collapse != "" {
		burst = hex.EncodeToString(hash[:])
	}
	unfinished := []queue.State{queue.Waiting, queue.Scheduled, queue.Running, queue.Dead}
	matches := []queue.Filter{
		{IDs: []uint64{e.Task}, Kinds: []string{push.Notify}, States: unfinished},
		{Kinds: []string{push.Target}, Key: uint64(e.Actor), States: unfinished},
	}
	if v.Deep {
		matches = append(matches, queue.Filter{Kinds: []string{push.Deliver}, States: unfinished})
	}
	for _, match := range matches {
		for page, err := range Pages(ctx, v.Queue, match, Batch) {
			if err != nil {
				return nil, err
			}
			for _, r := range page {
				var d push.Delivery
				_ = json.Unmarshal(r.Payload, &d) // one that cannot be read is of no event
				isOf := r.Kind == push.Notify || d.Event == e.Number || d.Burst != "" && d.Burst == burst
				isFor := func(to push.Recipient) bool { return to.Member == v.Only }
				if isOf && (v.Only == 0 || r.Kind != push.Deliver || slices.ContainsFunc(d.To, isFor)) {
					list = append(list, EventTask{r, d.To})
				}
			}
		}
	}
	return list, nil
}

// Event returns all that is known about an event, with how its deliveries ended, as names and values.
func Event(e *push.StoredEvent, counts []push.ReceiptCount, now time.Time) [][2]string {
	var ends []string
	for _, c := range counts {
		ends = append(ends, strings.TrimSuffix(fmt.Sprintf("%d %s (%s)", c.Count, c.State, OneLine(c.Reason)), " ()"))
	}
	to := fmt.Sprintf("%d recipients", len(e.Recipients))
	switch {
	case e.Followers:
		to = "the followers of the actor"
	case len(e.Recipients) == 1:
		to = "1 recipient"
	}
	raw, err := json.Marshal(e.Event)
	if err != nil {
		raw = []byte("null") // it was read from JSON, so it can be written
	}
	return [][2]string{
		{"actor", e.Actor.String()},
		{"for", to},
		{"event", OneLine(string(raw))},
		{"created", Moment(e.Created, now)},
		{"expires", Moment(e.Expires, now)},
		{"deliveries", cmp.Or(strings.Join(ends, ", "), "none has ended yet, or there is none")},
	}
}

// EventTasks returns a row for each task of an event.
func EventTasks(list []EventTask, now time.Time) Table {
	t := Table{Head: []string{"TASK", "TYPE", "MEMBER", "DEVICE", "STATE", "ATTEMPTS", "DUE", "LAST ERROR"}}
	for _, r := range list {
		of, device := "-", "-"
		switch {
		case len(r.To) == 1:
			of, device = r.To[0].Member.String(), strconv.FormatUint(r.To[0].Device, 10)
		case len(r.To) > 1:
			of, device = r.To[0].Member.String()+", …", fmt.Sprintf("%d devices", len(r.To))
		}
		t.Rows = append(t.Rows, []string{
			strconv.FormatUint(r.ID, 10), r.Kind, of, device, string(r.State), strconv.Itoa(r.Attempts),
			Due(r.Record, now), cmp.Or(Shortened(OneLine(r.LastError), MaxError), "-"),
		})
	}
	return t
}

// Fates returns a row for each delivery of an event.
func Fates(list []push.Fate, now time.Time) Table {
	t := Table{Head: []string{"MEMBER", "DEVICE", "PLATFORM", "STATE", "REASON", "AGE", "PROVIDER'S ID", "DEVICE GONE"}}
	for _, f := range list {
		device := "-"
		if f.Device != 0 {
			device = strconv.FormatUint(f.Device, 10)
		}
		t.Rows = append(t.Rows, []string{
			f.Member.String(), device, cmp.Or(string(f.Platform), "-"), string(f.State),
			cmp.Or(OneLine(f.Reason), "-"), Duration(now.Sub(f.At)), cmp.Or(OneLine(f.ProviderID), "-"), cmp.Or(OneLine(f.Gone), "-"),
		})
	}
	return t
}
