package queue

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// row is a task on its way from one table to another. Each task is in one place at a time:
// in tasks, where it waits; in a row of task_leases, where it is worked on; or in parked_tasks.
// What moves it writes it to the new place and deletes it from the old one in one
// transaction. It keeps its id.
type row struct {
	Task
	state     State  // where it goes
	wait      int64  // Scheduled: due in so many milliseconds
	expiresAt uint64 // 0: never
	created   uint64
	lost      bool
	lastError string
}

// columns are those that tasks and parked_tasks have in common, but for those of times and keys.
const columns = "id, queue, type, subject, args, priority, attempts, max_attempts, expires_at, last_error, created_at"

// expiry selects expires_at, or 0.
const expiry = "COALESCE(GREATEST(expires_at, 1), 0)"

// boundedArgs selects the arguments of a task, and of what is too long the begin, which payloadOf tells.
const boundedArgs = "LEFT(args, 32769)"

// payloadOf returns arguments as JSON: where they have more than [MaxPayload] bytes, or are none (MariaDB takes more for
// it), a string.
func payloadOf(args []byte) json.RawMessage {
	if len(args) > MaxPayload {
		args = fmt.Appendf(nil, "more bytes: at most %d are read", MaxPayload)
	}
	if json.Valid(args) {
		return args
	}
	quoted, _ := json.Marshal(string(args))
	return quoted
}

// each does something to all rows of a list at once; or to each alone, if the server refuses that because of what
// is in one of them (a trigger or a constraint of the site's may), which must stop no others. It returns those with
// which it succeeded, and why it was refused for another.
func each[T any](list []T, do func([]T) error) (done []T, refused, err error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	refused = do(list)
	if refused == nil {
		return list, nil, nil
	}
	if !mysql.IsRowRefused(refused) {
		return nil, nil, refused
	}
	for i := 0; len(list) > 1 && i < len(list); i++ {
		err := do(list[i : i+1])
		if err == nil {
			done = append(done, list[i])
		} else if refused = err; !mysql.IsRowRefused(err) {
			return nil, nil, err
		}
	}
	return done, refused, nil
}

// refusal is the last error of a row that is buried.
func refusal(err error) string { return clip("the database refuses to change it: " + err.Error()) }

// put writes tasks to where they go, those that wait into tasks, the others into parked_tasks. One that the server refuses is
// buried with the reason; those of which it refuses that, too, are left, and refused says why.
func put(ctx context.Context, tx *sql.Tx, list []row) (left []row, refused, err error) {
	for _, waits := range []bool{true, false} {
		some := slices.DeleteFunc(slices.Clone(list), func(r row) bool { return (r.state == Waiting) != waits })
		for some := range byStatement(some, func(r row) int { return len(r.Payload) + len(r.lastError) }) {
			done, why, err := each(some, func(list []row) error {
				err := insertRows(ctx, tx, list)
				if len(list) == 1 && mysql.IsRowRefused(err) {
					list[0].state, list[0].lastError = Dead, refusal(err)
					err = insertRows(ctx, tx, list)
				}
				return err
			})
			if err != nil {
				return nil, nil, err
			}
			if len(done) < len(some) {
				refused = cmp.Or(refused, why)
				left = append(left, slices.DeleteFunc(slices.Clone(some), func(r row) bool {
					return slices.ContainsFunc(done, func(d row) bool { return d.ID == r.ID })
				})...)
			}
		}
	}
	return left, refused, nil
}

// insertRows inserts rows that all go into one table. What comes back to tasks has no dedupe key:
// another task may have it by now.
func insertRows(ctx context.Context, tx *sql.Tx, list []row) error {
	into, values := "parked_tasks ("+columns+", state, due_at)", "(?,?,?,?,?,?,?,?,NULLIF(?, 0),NULLIF(?, ''),?,?,"+now+"+?),"
	if list[0].state == Waiting {
		into, values = "tasks ("+columns+", lost, due_at)", "(?,?,?,?,?,?,?,?,NULLIF(?, 0),NULLIF(?, ''),?,NULLIF(?, FALSE),"+now+"),"
	}
	args := make([]any, 0, 13*len(list))
	for _, r := range list {
		args = append(args, r.ID, r.Queue, r.Kind, r.Key, string(r.Payload), r.Priority, r.Attempts, r.MaxAttempts, r.expiresAt, r.lastError, r.created)
		switch r.state {
		case Waiting:
			args = append(args, r.lost)
		case Dead:
			args = append(args, r.state, nil)
		default:
			args = append(args, r.state, r.wait)
		}
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO "+into+" VALUES "+strings.TrimSuffix(strings.Repeat(values, len(list)), ","), args...)
	return err
}

// unparking is how tasks come back from parked_tasks: with what was there, but for what it says.
type unparking struct{ attempts, expiresAt, priority, key string }

// asTheyWere brings tasks back as they were parked.
var asTheyWere = unparking{"attempts", "expires_at", "priority", "dedupe_key"}

// unpark is a change: it moves rows of parked_tasks that the transaction has locked to tasks. One that
// the server refuses there is buried with the reason; one whose dedupe key another task has loses it.
func (u unparking) unpark(ctx context.Context, tx *sql.Tx, ids []uint64) (n int, err error) {
	err = u.move(ctx, tx, ids)
	if len(ids) == 1 && mysql.IsDuplicate(err) {
		err = unparking{u.attempts, u.expiresAt, u.priority, "NULL"}.move(ctx, tx, ids)
	}
	if len(ids) == 1 && mysql.IsRowRefused(err) {
		_, err = tx.ExecContext(ctx, "UPDATE parked_tasks SET state = 'dead', due_at = NULL, last_error = ?, updated_at = "+now+" WHERE id = ?", refusal(err), ids[0])
	}
	return len(ids), err
}

// move moves rows as u says.
func (u unparking) move(ctx context.Context, tx *sql.Tx, ids []uint64) error {
	_, err := move("INSERT INTO tasks ("+columns+", dedupe_key, due_at) SELECT id, queue, type, subject, args, "+u.priority+", "+u.attempts+
		", max_attempts, "+u.expiresAt+", last_error, created_at, "+u.key+", "+now+" FROM parked_tasks FORCE INDEX (PRIMARY) WHERE id IN ", deleteParked)(ctx, tx, ids)
	return err
}

// move is a change that moves rows by two statements, or changes nothing: also if the server refuses one, after
// which the transaction may go on.
func move(insert, remove string) change {
	return func(ctx context.Context, tx *sql.Tx, ids []uint64) (n int, err error) {
		if _, err := tx.ExecContext(ctx, "SAVEPOINT moving"); err != nil {
			return 0, err
		}
		if n, err = byStatementOf(insert)(ctx, tx, ids); err == nil {
			_, err = byStatementOf(remove)(ctx, tx, ids)
		}
		if mysql.IsRowRefused(err) {
			if _, undo := tx.ExecContext(ctx, "ROLLBACK TO SAVEPOINT moving"); undo != nil {
				return 0, undo
			}
		}
		return n, err
	}
}

// How tasks are deleted by their ids: exactly those that were read, and never a range, as a
// transaction may commit later that took an id between them. The index is named because MySQL and
// MariaDB scan the table where a third of its rows or more are asked for. The scan of a
// DELETE waits for rows that others have locked or not committed yet, so for as long as a
// site's transaction takes. A DELETE can name an index only in the form for several
// tables, and the name counts only where the condition has a column that the index lacks,
// and not the id alone. One id is found by its row in any case.
const (
	deleteTasks  = "DELETE tasks FROM tasks FORCE INDEX (PRIMARY) WHERE type IS NOT NULL AND id IN "
	deleteParked = "DELETE parked_tasks FROM parked_tasks FORCE INDEX (PRIMARY) WHERE type IS NOT NULL AND id IN "
)

// change changes rows of one table by their ids, and returns how many.
type change func(ctx context.Context, tx *sql.Tx, ids []uint64) (int, error)

// byStatementOf is a change by a statement that the ids complete.
func byStatementOf(statement string) change {
	return func(ctx context.Context, tx *sql.Tx, ids []uint64) (int, error) {
		list := []byte("(") // of numbers: no arguments, which cost more
		for _, id := range ids {
			list = append(strconv.AppendUint(list, id, 10), ',')
		}
		list[len(list)-1] = ')'
		return mysql.Affected(tx.ExecContext(ctx, statement+string(list)))
	}
}

// orAlone is the change, of one row at a time if the server refuses that of all. It fails if it is refused for each.
func (c change) orAlone(ctx context.Context, tx *sql.Tx, ids []uint64) (n int, err error) {
	done, refused, err := each(ids, func(ids []uint64) error {
		_, err := c(ctx, tx, ids)
		return err
	})
	if len(done) == 0 {
		err = cmp.Or(err, refused)
	}
	return len(done), err
}

// changeFree applies a change, or alone, to the rows whose ids a query returns, but for those that are locked: one
// must not hold up all others.
func (q *Queue) changeFree(ctx context.Context, what string, c change, query string, args ...any) (n int, err error) {
	err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) error {
		n = 0
		ids, err := mysql.Select(ctx, tx, mysql.Column[uint64], query+" FOR UPDATE SKIP LOCKED", args...)
		if err != nil || len(ids) == 0 {
			return err
		}
		n, err = c.orAlone(ctx, tx, ids)
		return err
	})
	return n, err
}

// latest is the end of the year 9999, in unix milliseconds. A later time, which
// only a row that makes no sense can have, is taken for it.
const latest = 253402300799999

// timeOf returns a time of the table.
func timeOf(milliseconds uint64) time.Time { return time.UnixMilli(int64(min(milliseconds, latest))) }
