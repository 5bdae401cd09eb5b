package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// State is where a task stands.
type State string

// The states.
const (
	Waiting   State = "waiting"   // for a worker, or behind another task of its ordering key
	Scheduled State = "scheduled" // for its time: delayed, or to be tried again
	Running   State = "running"   // under a lease
	Dead      State = "dead"      // failed for good; kept with its reason
	Done      State = "done"      // of a [Verdict]: its row is deleted
)

// behind is the state, in the table only, of a task that waits until another task of its ordering key is done.
const behind = "behind"

// shown returns a state of the table as [Record] has it.
func shown(state string) State {
	if state == behind {
		return Waiting
	}
	return State(state)
}

// States returns the states that a task can be found in, in the order of its life.
func States() []State { return []State{Waiting, Scheduled, Running, Dead} }

// inTable returns states as the table has them.
func inTable(states []State) (list []any) {
	for _, s := range states {
		if list = append(list, string(s)); s == Waiting {
			list = append(list, behind)
		}
	}
	return list
}

// Filter selects the tasks that match all its fields. A field matches if any of its values does; the zero value matches all tasks.
type Filter struct {
	IDs       []uint64
	Kinds     []string
	States    []State
	Queues    []string
	Key       uint64
	DedupeKey string
	Error     string // the last error contains it; % and _ are as in LIKE, and case does not count
	After     uint64 // only ids above it
}

// names reports whether the filter names tasks by an index of their own.
func (f Filter) names() bool { return len(f.IDs) > 0 || f.Key != 0 || f.DedupeKey != "" }

// from returns a filter as SQL: by the index of what it names, else from tables.
func (f Filter) from(tables string) (text string, args []any) {
	switch {
	case len(f.IDs) > 0:
		tables = "tasks FORCE INDEX (PRIMARY)"
	case f.Key != 0:
		tables = "tasks FORCE INDEX (subjects)"
	case f.DedupeKey != "":
		tables = "tasks FORCE INDEX (dedupe)"
	}
	text = " FROM " + tables + " WHERE id >= 0" // a site may have forced an id of 0
	in := func(column string, list []any) {
		if len(list) > 0 {
			text, args = text+" AND "+column+" IN ("+mysql.Marks(len(list))+")", append(args, list...)
		}
	}
	in("id", mysql.Args(f.IDs))
	in("state", inTable(f.States))
	in("queue", mysql.Args(f.Queues))
	in("type", mysql.Args(f.Kinds))
	if f.Key != 0 {
		in("subject", []any{f.Key})
	}
	if f.DedupeKey != "" {
		in("dedupe_key", []any{f.DedupeKey})
	}
	if f.After > 0 {
		text, args = text+" AND id > ?", append(args, f.After)
	}
	if f.Error != "" {
		text, args = text+" AND last_error LIKE ?", append(args, "%"+f.Error+"%")
	}
	return text, args
}

// Record is a task as operators see it.
type Record struct {
	ID          uint64          `json:"id,string"`
	Queue       string          `json:"queue"`
	Kind        string          `json:"type"`
	Key         uint64          `json:"subject,string"`
	Payload     json.RawMessage `json:"args,omitempty"` // a JSON string instead if it has more than MaxPayload bytes or is no JSON
	Priority    int             `json:"priority"`
	State       State           `json:"state"`
	Attempts    int             `json:"attempts"`
	MaxAttempts int             `json:"max_attempts,omitzero"` // 0: as its kind says
	RunAt       time.Time       `json:"run_at,omitzero"`       // scheduled: when it may start; else zero
	ExpiresAt   time.Time       `json:"expires_at,omitzero"`   // when it is dropped if it was not started; zero: never
	LeaseOwner  string          `json:"lease_owner,omitzero"`  // running: the process and the claim
	LeaseUntil  time.Time       `json:"lease_until,omitzero"`  // running: when it is free again
	Behind      bool            `json:"behind,omitzero"`       // waiting: until another task of its ordering key is done
	DedupeKey   string          `json:"dedupe_key,omitzero"`   // empty once it was started
	LastError   string          `json:"last_error,omitzero"`
	Created     time.Time       `json:"created_at"`
	Started     time.Time       `json:"started_at,omitzero"` // last; zero: never
	Died        time.Time       `json:"died_at,omitzero"`    // dead: when
}

const recordColumns = "SELECT id, queue, type, subject, " + boundedArgs + ", priority, state, attempts, max_attempts, run_at, COALESCE(expires_at, 0)," +
	" lease, COALESCE(dedupe_key, ''), COALESCE(last_error, ''), created_at, started_at"

func scanRecord(rows *sql.Rows) (r Record, err error) {
	var args []byte
	var runAt, expires, created, started uint64
	err = rows.Scan(&r.ID, &r.Queue, &r.Kind, &r.Key, &args, &r.Priority, &r.State, &r.Attempts, &r.MaxAttempts, &runAt, &expires,
		&r.LeaseOwner, &r.DedupeKey, &r.LastError, &created, &started)
	r.Payload, r.ExpiresAt, r.Created, r.Started = payloadOf(args), timeOf(expires), timeOf(created), timeOf(started)
	switch r.State {
	case Scheduled:
		r.RunAt = timeOf(runAt)
	case Running:
		r.LeaseUntil = timeOf(runAt)
	case Dead:
		r.Died = timeOf(runAt)
	case Waiting, Done:
	}
	r.Behind, r.State = r.State == behind, shown(string(r.State))
	return r, err
}

// List returns up to limit tasks that match, by id.
func (q *Queue) List(ctx context.Context, match Filter, limit int) ([]Record, error) {
	text, args := match.from("tasks")
	list, err := mysql.Select(ctx, q.db, scanRecord, recordColumns+text+" ORDER BY id LIMIT ?", append(args, limit)...)
	return list, mysql.Translate(ctx, "list tasks", err)
}

// SearchLimit bounds the rows of each state that [Queue.Search] looks at.
const SearchLimit = 10_000

// Search returns up to limit tasks that match, the newest first, and is fast on tables of any size: unless the filter names ids, a key
// or a dedupe key, it looks at the [SearchLimit] latest tasks of each state alone, and at the next of those that wait in a queue.
// partial: there are more.
func (q *Queue) Search(ctx context.Context, match Filter, limit int) (list []Record, partial bool, err error) {
	states := match.States
	if len(states) == 0 {
		states = States()
	}
	var latest, more []string
	var places []any
	for _, state := range inTable(states) {
		where, order := "tasks FORCE INDEX (timers) WHERE state = ?", "run_at DESC"
		places = append(places, state)
		if s, _ := state.(string); shown(s) == Waiting && len(match.Queues) == 1 {
			where, order = "tasks FORCE INDEX (claim) WHERE state = ? AND queue = ?", "priority, id"
			places = append(places, match.Queues[0])
		}
		latest = append(latest, "(SELECT id FROM "+where+" ORDER BY "+order+" LIMIT ?)")
		more = append(more, "EXISTS (SELECT id FROM "+where+" LIMIT 1 OFFSET ?)")
		places = append(places, SearchLimit)
	}
	text, args := match.from("(" + strings.Join(latest, " UNION ALL ") + ") AS latest STRAIGHT_JOIN tasks FORCE INDEX (PRIMARY) USING (id)")
	if !match.names() {
		args = slices.Concat(places, args)
		if err = q.db.QueryRowContext(ctx, "SELECT "+strings.Join(more, " OR "), places...).Scan(&partial); err != nil {
			return nil, false, mysql.Translate(ctx, "search tasks", err)
		}
	}
	list, err = mysql.Select(ctx, q.db, scanRecord, recordColumns+text+" ORDER BY id DESC LIMIT ?", append(args, limit)...)
	return list, partial, mysql.Translate(ctx, "search tasks", err)
}

// Retry makes up to limit matching tasks that are dead or scheduled wait again, with all their attempts and without an expiry, and
// returns how many. A task of [Queue.RunPeriodic] then starts before its tick, and the tick may get another task.
func (q *Queue) Retry(ctx context.Context, match Filter, limit int) (int, error) {
	return q.change(ctx, "retry tasks", match, []State{Dead, Scheduled}, limit,
		update+"state = 'waiting', run_at = "+now+", expires_at = NULL, attempts = 0, lost = 0 WHERE id IN ")
}

// Discard deletes up to limit matching tasks that do not run, and returns how many.
func (q *Queue) Discard(ctx context.Context, match Filter, limit int) (int, error) {
	return q.change(ctx, "discard tasks", match, []State{Waiting, Scheduled, Dead}, limit, deleteTasks)
}

// Cancel deletes matching tasks that wait or are scheduled, and returns how many. The filter must name ids, a key or a dedupe key; else
// it is an [ErrInvalid]. Tasks that run go on. Cancel passes over tasks that another transaction, as a claim, has locked.
func (q *Queue) Cancel(ctx context.Context, match Filter) (n int, err error) {
	if !match.names() {
		return 0, fmt.Errorf("%w: cancel which tasks? Name ids, a key or a dedupe key", ErrInvalid)
	}
	for more := sweepSize; more == sweepSize; n += more {
		if more, err = q.change(ctx, "cancel tasks", match, []State{Waiting, Scheduled}, sweepSize, deleteTasks); err != nil {
			return n, err
		}
	}
	return n, nil
}

// change changes up to limit matching tasks in possible states. It passes over locked tasks: a claim has them, a change is deduped into
// them, or another operator changes them.
func (q *Queue) change(ctx context.Context, what string, match Filter, possible []State, limit int, statement string) (n int, err error) {
	if len(match.States) > 0 {
		possible = slices.DeleteFunc(possible, func(s State) bool { return !slices.Contains(match.States, s) })
	}
	if match.States = possible; len(possible) == 0 {
		return 0, nil
	}
	queues := make(map[string]bool)
	text, args := match.from("tasks FORCE INDEX (PRIMARY)")
	n, err = q.changeQueried(ctx, what, queues, statement, "SELECT id, queue"+text+" LIMIT ? FOR UPDATE SKIP LOCKED", append(args, limit)...)
	if err == nil {
		q.cameBack(queues)
	}
	return n, err
}

// Pause lets no task of the queue start until [Queue.Resume]; running tasks go on. It reports whether the queue was not paused.
func (q *Queue) Pause(ctx context.Context, queue string) (changed bool, err error) {
	if err := CheckName(queue); err != nil {
		return false, err
	}
	return q.changeQueue(ctx, "pause queue "+queue, "INSERT IGNORE INTO paused_queues (queue) VALUES (?)", queue)
}

// Resume ends a pause. It reports whether the queue was paused.
func (q *Queue) Resume(ctx context.Context, queue string) (changed bool, err error) {
	defer q.Notify(queue)
	return q.changeQueue(ctx, "resume queue "+queue, "DELETE FROM paused_queues WHERE queue = ?", queue)
}

func (q *Queue) changeQueue(ctx context.Context, what, statement, queue string) (changed bool, err error) {
	n, err := mysql.Affected(q.db.ExecContext(ctx, statement, queue))
	return n > 0, mysql.Translate(ctx, what, err)
}

// Paused returns the queues that are paused, sorted.
func (q *Queue) Paused(ctx context.Context) ([]string, error) {
	list, err := mysql.Select(ctx, q.db, mysql.Column[string], "SELECT queue FROM paused_queues ORDER BY queue")
	return list, mysql.Translate(ctx, "look which queues are paused", err)
}
