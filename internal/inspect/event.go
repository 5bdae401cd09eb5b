package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

// ErrNoEvent says that a name stands for no event that is known.
var ErrNoEvent = errors.New("there is no event or task")

// Events finds events of push and their deliveries.
type Events struct {
	Queue Lister
	Store *push.MySQL
}

// unfinished are the states of tasks that are not done.
var unfinished = []queue.State{queue.Waiting, queue.Scheduled, queue.Running, queue.Dead}

// Find returns the event that a name stands for: its id, or the number of a task of it. An event that is not stored yet
// is returned as its notify task.
func (v *Events) Find(ctx context.Context, name string) (*push.StoredEvent, *queue.Record, error) {
	if e, err := v.Store.EventByID(ctx, name); err != nil || e != nil {
		return e, nil, err
	}
	match := queue.Filter{Kinds: []string{push.Notify}, Queues: []string{push.QueuePush, push.QueueUrgent}, States: unfinished}
	id, err := strconv.ParseUint(strings.TrimPrefix(name, "task-"), 10, 64)
	if err == nil {
		if e, err := v.byNumber(ctx, id); e != nil || err != nil {
			return e, nil, err
		}
		match = queue.Filter{IDs: []uint64{id}}
	}
	list, err := v.Queue.List(ctx, match, Batch)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range list {
		var payload struct {
			ID    string `json:"id"`    // of a notify task
			Event uint64 `json:"event"` // of all further kinds
		}
		_ = json.Unmarshal(r.Payload, &payload) // a payload that cannot be read has neither
		switch {
		case r.Kind == push.Notify && (payload.ID == name || id != 0):
			e, err := v.Store.EventByID(ctx, payload.ID) // it may be a repetition
			return e, &r, err
		case r.Kind != push.Notify && strings.HasPrefix(r.Queue, push.QueuePush) && payload.Event != 0:
			if e, err := v.byNumber(ctx, payload.Event); e != nil || err != nil {
				return e, nil, err
			}
		}
	}
	return nil, nil, fmt.Errorf("%w %s of push: events are kept for a day after they expire, and their tasks until they are done", ErrNoEvent, OneLine(name))
}

// byNumber returns the event with a number, which is that of its notify task; nil if it is not stored.
func (v *Events) byNumber(ctx context.Context, number uint64) (*push.StoredEvent, error) {
	found, err := v.Store.Events(ctx, []uint64{number})
	return found[number], err
}

// Facts returns all that is known about an event, with how its deliveries ended, as names and values.
func (v *Events) Facts(ctx context.Context, e *push.StoredEvent, now time.Time) (facts [][2]string, err error) {
	counts, err := v.Store.CountReceipts(ctx, e.Number, maxCounted)
	if err != nil {
		return nil, err
	}
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
		return nil, err
	}
	facts = [][2]string{
		{"actor", e.Actor.String()},
		{"for", to},
		{"event", OneLine(string(raw))},
		{"created", Moment(e.Created, now)},
		{"expires", Moment(e.Expires, now)},
		{"deliveries", cmp.Or(strings.Join(ends, ", "), "none has ended yet, or there is none")},
	}
	// The tasks that still find recipients, if there is one.
	own, err := v.Queue.List(ctx, queue.Filter{IDs: []uint64{e.Number}, Kinds: []string{push.Notify}, States: unfinished}, 1)
	if err != nil {
		return nil, err
	}
	pages, err := v.Queue.List(ctx, queue.Filter{Kinds: []string{push.Target}, Key: e.Number, States: unfinished}, Batch)
	for _, r := range append(own, pages...) {
		facts = append(facts, [2]string{"under way", strings.TrimSuffix(fmt.Sprintf("task %d is %s: %s", r.ID, r.State, OneLine(r.LastError)), ": ")})
	}
	return facts, err
}

// maxCounted bounds how many receipts are counted.
const maxCounted = 1_000_000

// Fates yields the fate of an event for each device, of all members or of only: first the devices with a receipt,
// then the devices that a task still has to send it to. Of the latter the state is the task's, the reason its last error, and the
// time is when it is due.
func (v *Events) Fates(ctx context.Context, e *push.StoredEvent, only member.ID) iter.Seq2[[]push.Fate, error] {
	return func(yield func([]push.Fate, error) bool) {
		for page, err := range v.Store.Fates(ctx, e.Number, only) {
			if !yield(page, err) {
				return
			}
		}
		for page, err := range Pages(ctx, v.Queue, queue.Filter{Kinds: []string{push.Deliver}, Key: e.Number, States: unfinished}, Batch) {
			waiting := waitingFor(page, e.Number, only)
			if (len(waiting) > 0 || err != nil) && !yield(waiting, err) {
				return
			}
		}
	}
}

// waitingFor returns the fates of devices that deliver tasks of an event still name.
func waitingFor(tasks []queue.Record, event uint64, only member.ID) (list []push.Fate) {
	for _, r := range tasks {
		var payload push.Payload
		_ = json.Unmarshal(r.Payload, &payload) // a payload that cannot be read names no device
		for _, to := range payload.To {
			if only == 0 || to.Member == only {
				list = append(list, push.Fate{Receipt: push.Receipt{
					Event: event, Member: to.Member, Device: to.Device, State: push.State(r.State), Reason: r.LastError, At: r.RunAt,
				}})
			}
		}
	}
	return list
}

// Fates returns a row for each delivery of an event.
func Fates(list []push.Fate, now time.Time) Table {
	t := Table{Head: []string{"MEMBER", "DEVICE", "PLATFORM", "STATE", "REASON", "WHEN", "PROVIDER'S ID", "DEVICE GONE"}}
	for _, f := range list {
		device := "-"
		if f.Device != 0 {
			device = strconv.FormatUint(f.Device, 10)
		}
		when := Duration(now.Sub(f.At)) + " ago"
		if f.At.After(now) {
			when = "in " + Duration(f.At.Sub(now))
		}
		t.Rows = append(t.Rows, []string{
			f.Member.String(), device, cmp.Or(string(f.Platform), "-"), string(f.State), cmp.Or(Shortened(OneLine(f.Reason), MaxError), "-"),
			when, cmp.Or(OneLine(f.ProviderID), "-"), cmp.Or(OneLine(f.Gone), "-"),
		})
	}
	return t
}
