package queue

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
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
	token   string
	queue   string
	claimed uint64
	ends    uint64
	done    []byte // a bit for each task that is finished, and for those that there are not
	tasks   []row  // if they were read
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
	number := func(n int64) { b = append(strconv.AppendInt(b, n, 10), ',') }
	unsigned := func(n uint64) { b = append(strconv.AppendUint(b, n, 10), ',') }
	text := func(s string) {
		quoted, _ := json.Marshal(s)
		b = append(append(b, quoted...), ',')
	}
	for i := range list {
		r := &list[i]
		b = append(b, '[')
		unsigned(r.ID)
		text(r.Kind)
		unsigned(r.Key)
		b = append(append(b, r.Payload...), ',')
		number(int64(claimed - r.created)) // also the difference of times that make no sense
		if r.Priority != 0 || r.Attempts != usualAttempts || r.MaxAttempts != usualMaxAttempts || r.expiresAt != 0 || r.lastError != "" {
			number(int64(r.Priority))
			number(int64(r.Attempts))
			number(int64(r.MaxAttempts))
			unsigned(r.expiresAt)
			text(r.lastError)
		}
		b[len(b)-1] = ']'
		b = append(b, ',')
	}
	return string(append(bytes.TrimSuffix(b, []byte(",")), ']'))
}

// noneDone are the bits of a lease with n tasks: clear for each, and set for those that there are not.
func noneDone(n int) []byte {
	done := make([]byte, (n+7)/8)
	if n%8 > 0 {
		done[n/8] = 0xFF << (n % 8)
	}
	return done
}

// isDone reports whether a task is finished, by its place among those of the lease.
func (l *lease) isDone(place int) bool {
	return place/8 >= len(l.done) || l.done[place/8]&(1<<(place%8)) != 0
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
		r.created, r.Expires, r.Index = l.claimed-uint64(age), r.expiresAt != 0, i
		r.Created = timeOf(r.created)
		l.tasks[i] = r
	}
	return nil
}

// open returns the tasks that are not finished.
func (l *lease) open() []row {
	return slices.DeleteFunc(slices.Clone(l.tasks), func(r row) bool { return l.isDone(r.Index) })
}

const leaseColumns = "token, queue, claimed_at, ends_at, done"

// scanLease reads a lease from leaseColumns and tasks, which come after others.
func scanLease(rows *sql.Rows, before ...any) (*lease, error) {
	l := &lease{}
	var tasks []byte
	if err := rows.Scan(append(before, &l.token, &l.queue, &l.claimed, &l.ends, &l.done, &tasks)...); err != nil || len(tasks) == 0 {
		return l, err
	}
	err := l.decodeTasks(tasks)
	return l, err
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

// The locks of a lease: one transaction changes it, or several keep it as it is.
const (
	toChange = "FOR UPDATE"
	toKeep   = "LOCK IN SHARE MODE"
)

// lockLeases locks the leases of tasks until the end of the transaction, in one order everywhere, and returns them by
// their tokens, with their tasks if those are asked for; nil: it is lost, or all of its tasks are finished.
func lockLeases(ctx context.Context, tx *sql.Tx, held []Task, tasks bool, lock string) (map[string]*lease, error) {
	leases := make(map[string]*lease)
	for _, t := range held {
		leases[t.Lease] = nil
	}
	for _, token := range slices.Sorted(maps.Keys(leases)) {
		found, err := readLeases(ctx, tx, tasks, "WHERE token = ? "+lock, token)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			leases[token] = found[0]
		}
	}
	return leases, nil
}

// holds reports whether the task is not finished; of a lease that is lost, no task holds.
func (l *lease) holds(t Task) bool { return l != nil && !l.isDone(t.Index) }

// finish notes that the task at a place is finished, and reopen that it is not.
func (l *lease) finish(place int) { l.done[place/8] |= 1 << (place % 8) }
func (l *lease) reopen(place int) { l.done[place/8] &^= 1 << (place % 8) }

// end writes down which tasks of the lease, which the transaction has locked, are finished. The number of bytes
// stays, so the server need not write the row again.
func (l *lease) end(ctx context.Context, tx *sql.Tx) error {
	statement, args := "UPDATE task_leases SET done = ? WHERE token = ?", []any{l.done, l.token}
	if !slices.ContainsFunc(l.done, func(bits byte) bool { return bits != 0xFF }) {
		statement, args = "DELETE FROM task_leases WHERE token = ?", args[1:]
	}
	_, err := tx.ExecContext(ctx, statement, args...)
	return err
}

// ErrLeaseLost says that another worker may have a task by now, or that it is finished.
var ErrLeaseLost = errors.New("the lease was lost")

// Hold keeps the leases of tasks until the end of a transaction in the queue's database, or fails
// with [ErrLeaseLost]. Several transactions may hold the tasks of one claim at a time.
func Hold(ctx context.Context, tx *sql.Tx, held []Task) error {
	leases, err := lockLeases(ctx, tx, held, false, toKeep)
	if err == nil && slices.ContainsFunc(held, func(t Task) bool { return !leases[t.Lease].holds(t) }) {
		return ErrLeaseLost
	}
	return err
}

// Extend makes the leases of the held tasks end after lease from now. Those
// whose lease was lost stay so and are counted in lost.
//
// It is one statement for each claim, without a transaction around it: a heartbeat must be
// quick, also over a slow line.
func (q *Queue) Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error) {
	extended := make(map[string]int)
	for _, t := range held {
		if _, asked := extended[t.Lease]; !asked {
			extended[t.Lease], err = mysql.Affected(q.db.ExecContext(ctx, "UPDATE task_leases SET ends_at = "+now+" + ? WHERE token = ?", min(lease, MaxLease).Milliseconds(), t.Lease))
			if err != nil {
				return 0, mysql.Translate(ctx, fmt.Sprintf("extend the leases of %d tasks", len(held)), err)
			}
		}
		if extended[t.Lease] == 0 {
			lost++
		}
	}
	return lost, nil
}

// Finish records results, and enqueues their follow-up tasks in the same transaction.
// Those whose lease was lost to another worker, or that are finished, are without effect and
// counted in lost: the lease is locked first, so a worker that was paused past it finishes nothing.
func (q *Queue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	what := fmt.Sprintf("finish %d tasks", len(results))
	if all, err := q.finishAll(ctx, results); all || err != nil && !mysql.IsRetryable(err) {
		return 0, mysql.Translate(ctx, what, err)
	}
	var next []New
	var done *enqueuing
	err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) error {
		if lost, next, err = q.end(ctx, tx, results); err != nil {
			return err
		}
		if next, err = q.options.Kinds.Validate(next); err == nil {
			done, err = enqueue(ctx, tx, q.options.Kinds, next, true)
		}
		return err
	})
	if err != nil {
		q.cursors.forget() // tasks may wait again before them: the answer may have been lost
		return 0, err
	}
	back := make(map[string]bool) // queues of tasks that wait again at once: those of a process that stops, say
	for _, r := range results {
		if Judge(r).State == Waiting {
			back[r.Task.Queue] = true
		}
	}
	if len(back) > 0 {
		q.cursors.forget()
		q.options.Notifier.Notify(slices.Sorted(maps.Keys(back))...)
	}
	q.committed(next, done)
	return lost, nil
}

// finishAll ends a lease by one statement, if the results are those of all its tasks, none of which was finished before,
// and leave nothing. Then the row has the bits that the claim wrote.
func (q *Queue) finishAll(ctx context.Context, results []Result) (ended bool, err error) {
	if len(results) == 0 {
		return false, nil
	}
	l := lease{token: results[0].Task.Lease, done: noneDone(len(results))}
	for i := range results {
		r := &results[i]
		if Judge(*r).State != Done || len(r.Next) > 0 || r.Task.Lease != l.token || !l.holds(r.Task) {
			return false, nil
		}
		l.finish(r.Task.Index)
	}
	n, err := mysql.Affected(q.db.ExecContext(ctx, "DELETE FROM task_leases WHERE token = ? AND done = ?", l.token, noneDone(len(results))))
	return n > 0, err
}

// end ends tasks, and returns of how many the lease was lost, and the follow-up tasks of the others.
func (q *Queue) end(ctx context.Context, tx *sql.Tx, results []Result) (lost int, next []New, err error) {
	moves := func(r Result) bool { return Judge(r).State != Done }
	held := make([]Task, len(results))
	for i, r := range results {
		held[i] = r.Task
	}
	leases, err := lockLeases(ctx, tx, held, slices.ContainsFunc(results, moves), toChange)
	if err != nil {
		return 0, nil, err
	}
	var ended []Result
	var moved []row
	for _, r := range results {
		l := leases[r.Task.Lease]
		if !l.holds(r.Task) { // it may come twice
			continue
		}
		l.finish(r.Task.Index)
		ended = append(ended, r)
		if moves(r) {
			moved = append(moved, l.tasks[r.Task.Index].after(Judge(r)))
		}
	}
	left, refused, err := put(ctx, tx, moved)
	if err != nil || refused != nil && len(results) == 1 {
		return 0, nil, cmp.Or(err, refused)
	}
	for _, r := range left { // they stay until the lease ends: only then they are tried again
		leases[r.Lease].reopen(r.Index)
	}
	for _, r := range ended {
		if !leases[r.Task.Lease].holds(r.Task) {
			next = append(next, Judge(r).Next...)
		}
	}
	for _, l := range leases {
		if l != nil {
			err = cmp.Or(err, l.end(ctx, tx))
		}
	}
	return len(results) - len(ended), next, err
}

// after returns the row as the end of its run leaves it.
func (r row) after(v Verdict) row {
	r.state, r.lastError, r.wait = v.State, v.Message, v.After.Milliseconds()
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
func (q *Queue) endLeases(ctx context.Context) (n int, more bool, err error) {
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
func (q *Queue) endLease(ctx context.Context, token string) (n int, err error) {
	err = mysql.Transact(ctx, q.db, "free the tasks of a lease that ran out", func(tx *sql.Tx) error {
		n = 0
		found, err := readLeases(ctx, tx, true, "WHERE token = ? AND "+leaseOver+" FOR UPDATE SKIP LOCKED", token)
		if err != nil || len(found) == 0 {
			return err
		}
		var back []row
		for _, r := range found[0].open() {
			found[0].finish(r.Index)
			back = append(back, r.expire())
		}
		left, refused, err := put(ctx, tx, back)
		if n = len(back) - len(left); err != nil || n == 0 && refused != nil {
			return cmp.Or(err, refused)
		}
		for _, r := range left {
			found[0].reopen(r.Index)
		}
		return found[0].end(ctx, tx)
	})
	return n, err
}
