package queue

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// from returns the matching tasks as SQL. No index is named but that of subjects: which
// is best depends on what the operator asks for, and locked rows are not waited for.
func (f Filter) from() (from string, args []any) {
	conditions := []string{"id >= 0"} // a site may have forced an id of 0
	if f.After > 0 {
		conditions, args = []string{"id > ?"}, []any{f.After}
	}
	for column, list := range map[string][]any{
		"id": mysql.Args(f.IDs), "type": mysql.Args(f.Kinds), "state": mysql.Args(f.States), "queue": mysql.Args(f.Queues),
	} {
		if len(list) > 0 {
			conditions = append(conditions, column+" IN ("+mysql.Marks(len(list))+")")
			args = append(args, list...)
		}
	}
	from = " FROM tasks WHERE "
	if f.Key != 0 {
		conditions = append(conditions, "subject = ?")
		args = append(args, f.Key)
		if len(f.IDs) == 0 && len(f.Kinds) > 0 {
			from = " FROM tasks FORCE INDEX (chains) WHERE "
		}
	}
	return from + strings.Join(conditions, " AND "), args
}

// typed names all types in a filter that names a subject and none: the index of
// subjects begins with the type, and without it the table is scanned. To find the
// types takes one step for each.
func (q *MySQLQueue) typed(ctx context.Context, match Filter) (Filter, error) {
	if match.Key == 0 || len(match.Kinds) > 0 || len(match.IDs) > 0 {
		return match, nil
	}
	var err error
	match.Kinds, err = mysql.Select(ctx, q.db, mysql.Column[string], "SELECT DISTINCT type FROM tasks FORCE INDEX (chains)")
	return match, err
}

// List returns up to limit tasks that match, by id.
func (q *MySQLQueue) List(ctx context.Context, match Filter, limit int) (list []Record, err error) {
	match, err = q.typed(ctx, match)
	if err != nil {
		return nil, mysql.Translate(ctx, "list tasks", err)
	}
	from, args := match.from()
	list, err = mysql.Select(ctx, q.db, scanRecord, "SELECT id, queue, type, subject, "+boundedArgs+", priority, state, attempts, max_attempts,"+
		" COALESCE(expires_at, 0), COALESCE(due_at, 0), COALESCE(dedupe_key, ''), COALESCE(lease_owner, ''), COALESCE(last_error, ''),"+
		" created_at, updated_at"+from+" ORDER BY id LIMIT ?", append(args, limit)...)
	return list, mysql.Translate(ctx, "list tasks", err)
}

func scanRecord(rows *sql.Rows) (r Record, err error) {
	var args []byte
	var expires, due, created, updated uint64
	err = rows.Scan(&r.ID, &r.Queue, &r.Kind, &r.Key, &args, &r.Priority, &r.State, &r.Attempts, &r.MaxAttempts,
		&expires, &due, &r.DedupeKey, &r.LeaseOwner, &r.LastError, &created, &updated)
	r.Payload = args
	if err == nil && !json.Valid(args) { // MariaDB takes more for JSON
		r.Payload, err = json.Marshal(string(args))
	}
	r.ExpiresAt = timeOrNone(expires)
	r.Created, r.Updated = timeOf(created), timeOf(updated)
	r.setDue(timeOrNone(due))
	if strings.HasPrefix(r.DedupeKey, "~") {
		r.DedupeKey = ""
	}
	if r.State != Running { // then it says that the last lease was lost
		r.LeaseOwner = ""
	}
	return r, err
}

// setDue puts the time of what happens next into the field of the state.
func (r *Record) setDue(due time.Time) {
	switch r.State {
	case Scheduled:
		r.RunAt = due
	case Running:
		r.LeaseUntil = due
	case Done:
		r.ForgetAt = due
	case Waiting, Dead:
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
func (q *MySQLQueue) Retry(ctx context.Context, match Filter, limit int) (int, error) {
	match.States = among(match.States, Dead, Scheduled)
	n, queues, err := q.change(ctx, "retry tasks", match, limit,
		updateTasks+"state = 'waiting', due_at = NULL, expires_at = NULL, attempts = 0, lease_owner = NULL, updated_at = "+now+" WHERE id IN ")
	if len(queues) > 0 {
		q.cursors.forget()
		q.options.Notifier.Notify(queues...)
	}
	return n, err
}

// Discard deletes up to limit matching tasks that do not run, and returns
// how many.
func (q *MySQLQueue) Discard(ctx context.Context, match Filter, limit int) (int, error) {
	match.States = among(match.States, Waiting, Scheduled, Dead, Done)
	n, _, err := q.change(ctx, "discard tasks", match, limit, deleteIdle)
	return n, err
}

// Defer gives up to limit matching tasks that wait, or are scheduled, a priority, unless
// theirs is as low, and returns how many tasks matched. The lower one is the larger number.
func (q *MySQLQueue) Defer(ctx context.Context, match Filter, limit, priority int) (int, error) {
	match.States = among(match.States, Waiting, Scheduled)
	n, _, err := q.change(ctx, "defer tasks", match, limit,
		updateTasks+"priority = GREATEST(priority, "+strconv.Itoa(priority)+"), updated_at = "+now+" WHERE id IN ")
	return n, err
}

// among returns those of the wanted states that are possible; all of these, when
// none is named.
func among(wanted []State, possible ...State) []State {
	if len(wanted) == 0 {
		return possible
	}
	return slices.DeleteFunc(slices.Clone(wanted), func(s State) bool { return !slices.Contains(possible, s) })
}

// change applies a statement, which their ids complete, to up to limit tasks that
// match and are not locked: by a claim, by an enqueuing that they absorb, or by another
// operator. It returns their queues too.
func (q *MySQLQueue) change(ctx context.Context, what string, match Filter, limit int, statement string) (n int, queues []string, err error) {
	if len(match.States) == 0 {
		return 0, nil, nil
	}
	match, err = q.typed(ctx, match)
	if err != nil {
		return 0, nil, mysql.Translate(ctx, what, err)
	}
	from, args := match.from()
	err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) (err error) {
		n, queues = 0, nil
		found, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (r Record, err error) {
			err = rows.Scan(&r.ID, &r.Queue)
			return r, err
		}, "SELECT id, queue"+from+" LIMIT ? FOR UPDATE SKIP LOCKED", append(args, limit)...)
		if err != nil || len(found) == 0 {
			return err
		}
		ids := make([]any, len(found))
		for i, r := range found {
			ids[i] = r.ID
			queues = append(queues, r.Queue)
		}
		n, err = mysql.Affected(tx.ExecContext(ctx, statement+"("+mysql.Marks(len(ids))+")", ids...))
		return err
	})
	slices.Sort(queues)
	return n, slices.Compact(queues), err
}

// Pause lets no task of the queue start, until [MySQLQueue.Resume]; those that
// run go on. It reports whether that is a change. Pools notice at their next
// sweep.
func (q *MySQLQueue) Pause(ctx context.Context, queue string) (changed bool, err error) {
	if err := CheckName(queue); err != nil {
		return false, err
	}
	return q.changeQueue(ctx, "pause queue "+queue, "INSERT IGNORE INTO paused_queues (queue) VALUES (?)", queue)
}

// Resume ends a pause and reports whether there was one.
func (q *MySQLQueue) Resume(ctx context.Context, queue string) (changed bool, err error) {
	return q.changeQueue(ctx, "resume queue "+queue, "DELETE FROM paused_queues WHERE queue = ?", queue)
}

func (q *MySQLQueue) changeQueue(ctx context.Context, what, statement, queue string) (changed bool, err error) {
	n, err := mysql.Affected(q.db.ExecContext(ctx, statement, queue))
	return n > 0, mysql.Translate(ctx, what, err)
}

// Paused returns the queues that are paused, sorted.
func (q *MySQLQueue) Paused(ctx context.Context) ([]string, error) {
	list, err := mysql.Select(ctx, q.db, mysql.Column[string], "SELECT queue FROM paused_queues ORDER BY queue")
	return list, mysql.Translate(ctx, "look which queues are paused", err)
}
