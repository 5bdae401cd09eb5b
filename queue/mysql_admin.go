package queue

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// table is one in which tasks are that no worker has: the states that they can be in, and state and
// the time of the last change as SQL.
type table struct {
	name, state, updated string
	states               []State
}

var tables = []table{
	// One that came back did so when it was due.
	{"tasks", "IF(due_at > " + now + ", 'scheduled', 'waiting')", "IF(due_at <= " + now + ", due_at, created_at)", []State{Waiting, Scheduled}},
	{"parked_tasks", "state", "updated_at", []State{Scheduled, Dead}},
}

// in returns the matching tasks of a table as SQL; "": none can be there. No index is named but that of subjects: which
// is best depends on what the operator asks for, and locked rows are not waited for.
func (f Filter) in(t table) (from string, args []any) {
	states := slices.DeleteFunc(slices.Clone(f.States), func(s State) bool { return !slices.Contains(t.states, s) })
	if len(f.States) > 0 && len(states) == 0 {
		return "", nil
	}
	from = " FROM " + t.name
	if f.Key != 0 && len(f.IDs) == 0 {
		from += " FORCE INDEX (subjects)"
	}
	from += " WHERE id >= 0" // a site may have forced an id of 0
	if f.After > 0 {
		from, args = from+" AND id > ?", []any{f.After}
	}
	condition, more := f.condition(t, states)
	return from + condition, append(args, more...)
}

// condition is what the fields but After say of a table's tasks in those states, as SQL.
func (f Filter) condition(t table, states []State) (text string, args []any) {
	keys := []uint64{f.Key}
	if f.Key == 0 {
		keys = nil
	}
	for column, list := range map[string][]any{
		"id": mysql.Args(f.IDs), "type": mysql.Args(f.Kinds), "queue": mysql.Args(f.Queues), "subject": mysql.Args(keys), t.state: mysql.Args(states),
	} {
		if len(list) > 0 {
			text, args = text+" AND "+column+" IN ("+mysql.Marks(len(list))+")", append(args, list...)
		}
	}
	if f.Error != "" {
		text, args = text+" AND last_error LIKE ?", append(args, "%"+f.Error+"%")
	}
	return text, args
}

// matches is in for a task that runs.
func (f Filter) matches(r row) bool {
	return (f.After == 0 || r.ID > f.After) && among(f.IDs, r.ID) && among(f.Kinds, r.Kind) && among(f.States, Running) && among(f.Queues, r.Queue) && (f.Key == 0 || f.Key == r.Key) && f.FitsError(r.lastError)
}

func among[T comparable](list []T, one T) bool { return len(list) == 0 || slices.Contains(list, one) }

// List returns up to limit tasks that match, by id. It reads up to limit rows of each table, and all
// leases, in one statement, which sees a task that moves in one place.
func (q *Queue) List(ctx context.Context, match Filter, limit int) (list []Record, err error) {
	var parts []string
	var all []any
	for _, table := range tables {
		if from, args := match.in(table); from != "" {
			parts = append(parts, "("+table.records()+from+" ORDER BY id LIMIT ?)")
			all = append(append(all, args...), limit)
		}
	}
	list, err = q.records(ctx, match, parts, all)
	slices.SortFunc(list, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return list[:min(len(list), limit)], mysql.Translate(ctx, "list tasks", err)
}

// records selects the columns that [Queue.records] reads.
func (t table) records() string {
	return "SELECT id, queue, type, subject, " + boundedArgs + ", priority, " + t.state + ", attempts, max_attempts," +
		" COALESCE(expires_at, 0), COALESCE(due_at, 0), COALESCE(dedupe_key, ''), COALESCE(last_error, ''), created_at, " + t.updated + ", NULL"
}

// records reads what the parts select, and those of the running tasks that match, in one statement.
func (q *Queue) records(ctx context.Context, match Filter, parts []string, all []any) (list []Record, err error) {
	if among(match.States, Running) {
		parts = append(parts, "(SELECT 0, queue, '', 0, tasks, 0, 'running', 0, 0, ends_at, claimed_at, token, '', 0, 0, done FROM task_leases)")
	}
	if len(parts) == 0 {
		return nil, nil
	}
	_, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var r Record
		var args, done []byte
		var expires, due, created, updated uint64
		err = rows.Scan(&r.ID, &r.Queue, &r.Kind, &r.Key, &args, &r.Priority, &r.State, &r.Attempts, &r.MaxAttempts,
			&expires, &due, &r.DedupeKey, &r.LastError, &created, &updated, &done)
		if err == nil && r.State == Running {
			l := lease{token: r.DedupeKey, queue: r.Queue, claimed: due, ends: expires, done: done}
			err = l.decodeTasks(args)
			for _, one := range l.open() {
				if match.matches(one) {
					list = append(list, one.record(&l))
				}
			}
			return struct{}{}, err
		}
		r.Payload = payloadOf(args)
		r.ExpiresAt, r.Created, r.Updated = timeOrNone(expires), timeOf(created), timeOf(updated)
		if r.State == Scheduled {
			r.RunAt = timeOrNone(due)
		}
		list = append(list, r)
		return struct{}{}, err
	}, strings.Join(parts, " UNION ALL "), all...)
	return list, err
}

// record is the task as people look at it while it runs.
func (r row) record(l *lease) Record {
	return Record{
		ID: r.ID, Queue: r.Queue, Kind: r.Kind, Key: r.Key, Payload: r.Payload, Priority: r.Priority, State: Running,
		Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, ExpiresAt: timeOrNone(r.expiresAt), LeaseOwner: l.token, LeaseUntil: timeOf(l.ends),
		LastError: r.lastError, Created: r.Created, Updated: timeOf(l.claimed),
	}
}

func timeOrNone(milliseconds uint64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return timeOf(milliseconds)
}

// Retry makes up to limit matching tasks that are dead, or scheduled for
// later, waiting again, with all their attempts and without an expiry, and
// returns how many.
func (q *Queue) Retry(ctx context.Context, match Filter, limit int) (int, error) {
	n, queues, err := q.change(ctx, "retry tasks", match, []State{Dead, Scheduled}, limit, map[string]change{
		"tasks":        byStatementOf(updateTasks + "due_at = NULL, expires_at = NULL, attempts = 0, lost = NULL WHERE id IN "),
		"parked_tasks": unparking{"0", "NULL", "priority", "dedupe_key"}.unpark,
	})
	if len(queues) > 0 {
		q.cursors.forget()
		q.options.Notifier.Notify(queues...)
	}
	return n, err
}

// Discard deletes up to limit matching tasks that do not run, and returns
// how many.
func (q *Queue) Discard(ctx context.Context, match Filter, limit int) (int, error) {
	n, _, err := q.change(ctx, "discard tasks", match, []State{Waiting, Scheduled, Dead}, limit, map[string]change{
		"tasks":        byStatementOf(deleteTasks),
		"parked_tasks": byStatementOf(deleteParked),
	})
	return n, err
}

// SetPriority gives up to limit matching tasks that wait, or are scheduled, a priority, and returns how
// many tasks matched. Pools of other processes notice within seconds that tasks became more urgent.
func (q *Queue) SetPriority(ctx context.Context, match Filter, limit, priority int) (int, error) {
	set := "priority = " + strconv.Itoa(priority) + " WHERE id IN "
	n, _, err := q.change(ctx, "set the priority of tasks", match, []State{Waiting, Scheduled}, limit, map[string]change{
		"tasks":        byStatementOf(updateTasks + set),
		"parked_tasks": byStatementOf("UPDATE parked_tasks FORCE INDEX (PRIMARY) SET " + set),
	})
	q.cursors.forget()
	return n, err
}

// updateTasks names the index for the reason of deleteTasks.
const updateTasks = "UPDATE tasks FORCE INDEX (PRIMARY) SET "

// change applies a change of each table to up to limit tasks that match, in one of the states that are
// possible, and are not locked: by a claim, by an enqueuing that they absorb, or by another
// operator. It returns their queues too.
func (q *Queue) change(ctx context.Context, what string, match Filter, possible []State, limit int, changes map[string]change) (n int, queues []string, err error) {
	if len(match.States) > 0 {
		possible = slices.DeleteFunc(possible, func(s State) bool { return !slices.Contains(match.States, s) })
	}
	if match.States = possible; len(possible) == 0 {
		return 0, nil, nil
	}
	err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) (err error) {
		n, queues = 0, nil
		for _, table := range tables {
			from, args := match.in(table)
			if from == "" || n >= limit {
				continue
			}
			var ids []uint64
			_, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (_ struct{}, err error) {
				var id uint64
				var queue string
				err = rows.Scan(&id, &queue)
				ids, queues = append(ids, id), append(queues, queue)
				return struct{}{}, err
			}, "SELECT id, queue"+from+" LIMIT ? FOR UPDATE SKIP LOCKED", append(args, limit-n)...)
			if err != nil {
				return err
			}
			if len(ids) == 0 {
				continue
			}
			some, err := changes[table.name].orAlone(ctx, tx, ids)
			if err != nil {
				return err
			}
			n += some
		}
		return nil
	})
	slices.Sort(queues)
	return n, slices.Compact(queues), err
}

// Pause lets no task of the queue start, until [Queue.Resume]; those that
// run go on. It reports whether that is a change. Pools notice at their next
// sweep.
func (q *Queue) Pause(ctx context.Context, queue string) (changed bool, err error) {
	if err := CheckName(queue); err != nil {
		return false, err
	}
	return q.changeQueue(ctx, "pause queue "+queue, "INSERT IGNORE INTO paused_queues (queue) VALUES (?)", queue)
}

// Resume ends a pause and reports whether there was one.
func (q *Queue) Resume(ctx context.Context, queue string) (changed bool, err error) {
	return q.changeQueue(ctx, "resume queue "+queue, "DELETE FROM paused_queues WHERE queue = ?", queue)
}

func (q *Queue) changeQueue(ctx context.Context, what, statement, queue string) (changed bool, err error) {
	n, err := mysql.Affected(q.db.ExecContext(ctx, statement, queue))
	return n > 0, mysql.Translate(ctx, what, err)
}

// Paused returns the queues that are paused, sorted.
func (q *Queue) Paused(ctx context.Context) ([]string, error) {
	list, err := pausedBy(ctx, q.db)
	return list, mysql.Translate(ctx, "look which queues are paused", err)
}

func pausedBy(ctx context.Context, db mysql.Querier) ([]string, error) {
	return mysql.Select(ctx, db, mysql.Column[string], "SELECT queue FROM paused_queues ORDER BY queue")
}
