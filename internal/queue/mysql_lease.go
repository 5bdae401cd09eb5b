package queue

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// lease is a row of task_leases.
type lease struct {
	token      string
	queue      string
	claimed    uint64
	ends       uint64
	unfinished int
	done       map[uint64]bool
	tasks      []row // if they were read
}

// The tasks of a lease are a JSON list of lists: id, type, subject, arguments, and milliseconds
// from the creation to the claim; then, of a task for which one of them is not as usual, also
// priority, attempts (this one included), attempts at most, expiry and the last error.
const (
	usualAttempts    = 1
	usualMaxAttempts = 25
)

func encodeTasks(list []row, claimed uint64) string {
	b := []byte{'['}
	for i, r := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, '['), r.ID, 10)
		b = appendString(append(b, ','), r.Kind)
		b = strconv.AppendUint(append(b, ','), r.Key, 10)
		b = append(append(b, ','), r.Payload...)
		b = strconv.AppendInt(append(b, ','), int64(claimed-r.created), 10) // also the difference of times that make no sense
		if r.Priority != 0 || r.Attempts != usualAttempts || r.MaxAttempts != usualMaxAttempts || r.expiresAt != 0 || r.lastError != "" {
			b = fmt.Appendf(b, ",%d,%d,%d,%d,", r.Priority, r.Attempts, r.MaxAttempts, r.expiresAt)
			b = appendString(b, r.lastError)
		}
		b = append(b, ']')
	}
	return string(append(b, ']'))
}

func appendString(b []byte, s string) []byte {
	text, _ := json.Marshal(s) // of a string it cannot fail
	return append(b, text...)
}

func (l *lease) decodeTasks(text []byte) error {
	var lists [][]json.RawMessage
	if err := json.Unmarshal(text, &lists); err != nil {
		return fmt.Errorf("tasks of lease %s: %w", l.token, err)
	}
	l.tasks = make([]row, len(lists))
	for i, list := range lists {
		r := row{Task: Task{Queue: l.queue, Attempts: usualAttempts, MaxAttempts: usualMaxAttempts, Lease: l.token, Claimed: timeOf(l.claimed)}, state: Running}
		var age int64
		for at, into := range []any{&r.ID, &r.Kind, &r.Key, &r.Payload, &age, &r.Priority, &r.Attempts, &r.MaxAttempts, &r.expiresAt, &r.lastError} {
			if at >= len(list) {
				break
			}
			if err := json.Unmarshal(list[at], into); err != nil {
				return fmt.Errorf("tasks of lease %s: %w", l.token, err)
			}
		}
		r.created, r.Expires = l.claimed-uint64(age), r.expiresAt != 0
		r.Created = timeOf(r.created)
		l.tasks[i] = r
	}
	return nil
}

// open returns the tasks that are not finished.
func (l *lease) open() []row {
	return slices.DeleteFunc(slices.Clone(l.tasks), func(r row) bool { return l.done[r.ID] })
}

const leaseColumns = "token, queue, claimed_at, ends_at, unfinished, done"

// scanLease reads a lease from leaseColumns and tasks, which come after others.
func scanLease(rows *sql.Rows, before ...any) (*lease, error) {
	l := &lease{done: make(map[uint64]bool)}
	var tasks, done []byte
	if err := rows.Scan(append(before, &l.token, &l.queue, &l.claimed, &l.ends, &l.unfinished, &done, &tasks)...); err != nil {
		return nil, err
	}
	for ; len(done) >= 8; done = done[8:] {
		l.done[binary.BigEndian.Uint64(done)] = true
	}
	if len(tasks) == 0 {
		return l, nil
	}
	return l, l.decodeTasks(tasks)
}

// readLeases returns leases, with their tasks if those are asked for. The condition and what
// follows it come with their arguments.
func readLeases(ctx context.Context, db mysql.Querier, tasks bool, condition string, args ...any) ([]*lease, error) {
	text := ", ''"
	if tasks {
		text = ", tasks"
	}
	return mysql.Select(ctx, db, func(rows *sql.Rows) (*lease, error) { return scanLease(rows) }, "SELECT "+leaseColumns+text+" FROM task_leases "+condition, args...)
}

// lockLease locks the lease of a token until the end of the transaction; nil: it is lost, or all of
// its tasks are finished.
func lockLease(ctx context.Context, tx *sql.Tx, token string, tasks bool) (*lease, error) {
	found, err := readLeases(ctx, tx, tasks, "WHERE token = ? FOR UPDATE", token)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// byLease groups something by the leases of its tasks; these are locked in one order everywhere.
func byLease[T any](list []T, of func(T) string) (tokens []string, groups map[string][]T) {
	groups = make(map[string][]T)
	for _, one := range list {
		groups[of(one)] = append(groups[of(one)], one)
	}
	return slices.Sorted(maps.Keys(groups)), groups
}

func leaseOf(t Task) string { return t.Lease }

// end notes in the transaction that tasks of the lease, which it has locked, are finished.
func (l *lease) end(ctx context.Context, tx *sql.Tx, ids []uint64) error {
	if len(ids) == 0 {
		return nil
	}
	if len(ids) >= l.unfinished {
		_, err := tx.ExecContext(ctx, "DELETE FROM task_leases WHERE token = ?", l.token)
		return err
	}
	var done []byte
	for _, id := range ids {
		done = binary.BigEndian.AppendUint64(done, id)
	}
	_, err := tx.ExecContext(ctx, "UPDATE task_leases SET done = CONCAT(done, ?), unfinished = unfinished - ? WHERE token = ?", done, len(ids), l.token)
	return err
}

// lockHeld returns the tasks whose lease still holds, and keeps it so until the
// end of the transaction.
func lockHeld(ctx context.Context, tx *sql.Tx, held []Task) (ours []Task, err error) {
	tokens, groups := byLease(held, leaseOf)
	for _, token := range tokens {
		l, err := lockLease(ctx, tx, token, false)
		if err != nil {
			return nil, err
		}
		for _, t := range groups[token] {
			if l != nil && !l.done[t.ID] {
				ours = append(ours, t)
			}
		}
	}
	return ours, nil
}

// ErrLeaseLost says that another worker may have a task by now, or that it is finished.
var ErrLeaseLost = errors.New("the lease was lost")

// Hold keeps the leases of tasks until the end of a transaction in the queue's database, or fails
// with [ErrLeaseLost].
func Hold(ctx context.Context, tx *sql.Tx, held []Task) error {
	ours, err := lockHeld(ctx, tx, held)
	if err == nil && len(ours) < len(held) {
		return ErrLeaseLost
	}
	return err
}

// Extend makes the leases of the held tasks end after lease from now. Those
// whose lease was lost stay so and are counted in lost.
//
// It is one statement for each claim, without a transaction around it: a heartbeat must be
// quick, also over a slow line.
func (q *MySQLQueue) Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error) {
	tokens, groups := byLease(held, leaseOf)
	for _, token := range tokens {
		n, err := mysql.Affected(q.db.ExecContext(ctx, "UPDATE task_leases SET ends_at = "+now+" + ? WHERE token = ?", min(lease, MaxLease).Milliseconds(), token))
		if err != nil {
			return 0, mysql.Translate(ctx, fmt.Sprintf("extend the leases of %d tasks", len(held)), err)
		}
		if n == 0 {
			lost += len(groups[token])
		}
	}
	return lost, nil
}

// Finish records results, and enqueues their follow-up tasks in the same transaction.
// Those whose lease was lost to another worker, or that are finished, are without effect and
// counted in lost: the lease is locked first, so a worker that was paused past it finishes nothing.
func (q *MySQLQueue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	var next []New
	var done enqueued
	err = mysql.Transact(ctx, q.db, fmt.Sprintf("finish %d tasks", len(results)), func(tx *sql.Tx) error {
		lost, next = 0, nil
		tokens, groups := byLease(results, func(r Result) string { return r.Task.Lease })
		for _, token := range tokens {
			held, ended, err := q.finish(ctx, tx, token, groups[token])
			if err != nil {
				return err
			}
			lost += len(groups[token]) - held
			for _, r := range ended {
				next = append(next, FollowUps(r)...)
			}
		}
		next, err = ValidateNext(next)
		if err == nil {
			done, err = enqueueNext(ctx, tx, q.options.Kinds, next)
		}
		return err
	})
	if err != nil {
		q.cursors.forget() // tasks may wait again before them: the answer may have been lost
		return 0, err
	}
	if back := queuesOfReturned(results); len(back) > 0 {
		q.cursors.forget()
		q.options.Notifier.Notify(back...)
	}
	q.committed(next, done)
	return lost, nil
}

// finish ends tasks of one lease, and returns how many it still held, and the results of those that ended.
func (q *MySQLQueue) finish(ctx context.Context, tx *sql.Tx, token string, results []Result) (held int, ended []Result, err error) {
	ends := make(map[uint64]Verdict, len(results))
	moves := false
	for _, r := range results {
		v := Judge(r)
		ends[r.Task.ID] = v
		moves = moves || v.State != Done || q.options.Keep > 0
	}
	l, err := lockLease(ctx, tx, token, moves)
	if err != nil || l == nil {
		return 0, nil, err
	}
	var moved []row
	for _, r := range l.open() {
		if v, ends := ends[r.ID]; ends && (v.State != Done || q.options.Keep > 0) {
			moved = append(moved, r.after(v, q.options.Keep))
		}
	}
	written, refused, err := put(ctx, tx, moved)
	if err != nil {
		return 0, nil, err
	}
	var ids []uint64
	for _, r := range results {
		if l.done[r.Task.ID] {
			continue
		}
		held++
		l.done[r.Task.ID] = true // also against one that comes twice
		is := func(m row) bool { return m.ID == r.Task.ID }
		if len(written) < len(moved) && slices.ContainsFunc(moved, is) && !slices.ContainsFunc(written, is) {
			continue // it stays in the lease
		}
		ended, ids = append(ended, r), append(ids, r.Task.ID)
	}
	if len(ids) == 0 && refused != nil {
		return 0, nil, refused
	}
	return held, ended, l.end(ctx, tx, ids)
}

// after returns the row as the end of its run leaves it.
func (r row) after(v Verdict, keep time.Duration) row {
	r.state, r.lastError, r.wait = v.State, v.Message, v.After.Milliseconds()
	if v.State == Done {
		r.wait = keep.Milliseconds()
	}
	if v.Uncounted {
		r.Attempts--
	}
	return r
}

// expire returns the row as the end of its lease leaves it.
func (r row) expire() row {
	r.state, r.lost = Waiting, true
	r.lastError = "the lease of " + r.Lease + " ran out: it crashed, was stopped, or took too long"
	if r.Attempts >= r.MaxAttempts {
		r.state = Dead
	}
	return r
}

// leaseOver is the condition of a lease whose end has come. One that is to last longer than any can
// makes no sense.
var leaseOver = "(ends_at <= " + now + " OR ends_at > " + now + " + " + strconv.FormatInt(MaxLease.Milliseconds(), 10) + ")"

// endLeases ends leases that ran out, and returns how many tasks they had, and whether there may
// be more. One that fails keeps no other from that.
func (q *MySQLQueue) endLeases(ctx context.Context) (n int, more bool, err error) {
	over, err := mysql.Select(ctx, q.db, mysql.Column[string], "SELECT token FROM task_leases FORCE INDEX (ends) WHERE "+leaseOver+" ORDER BY ends_at LIMIT ?", sweepLeases)
	if err != nil {
		return 0, false, mysql.Translate(ctx, "look for leases that ran out", err)
	}
	var failed []error
	for _, token := range over {
		some, err := q.endLease(ctx, token)
		failed = append(failed, err)
		n += some
	}
	err = errors.Join(failed...)
	return n, len(over) == sweepLeases && err == nil, err
}

// endLease brings the tasks of a lease that ran out back, or buries those that have no attempts
// left. The locking read sees what is finished, and that the lease was not extended.
func (q *MySQLQueue) endLease(ctx context.Context, token string) (n int, err error) {
	err = mysql.Transact(ctx, q.db, "free the tasks of a lease that ran out", func(tx *sql.Tx) error {
		n = 0
		found, err := readLeases(ctx, tx, true, "WHERE token = ? AND "+leaseOver+" FOR UPDATE SKIP LOCKED", token)
		if err != nil || len(found) == 0 {
			return err
		}
		var back []row
		for _, r := range found[0].open() {
			back = append(back, r.expire())
		}
		written, refused, err := put(ctx, tx, back)
		if err != nil || len(written) == 0 {
			return cmp.Or(err, refused)
		}
		var ids []uint64
		for _, r := range written {
			ids = append(ids, r.ID)
		}
		n = len(ids)
		return found[0].end(ctx, tx, ids)
	})
	return n, err
}
