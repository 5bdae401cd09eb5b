package queue

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// Lend is [Queue.Claim] for a worker that is no [Pool], such as one in another language that asks by
// HTTP: it leases up to n tasks of a queue to it. They are of any kind. to names it for operators, in
// ASCII; the token of the lease, which no one can guess, is in each task ([Task].Lease). The lease lasts from
// [Task].Claimed on; [Queue.Renew] makes it longer, and [Queue.Return] ends it.
//
// Tasks that have the same key, which is not 0, are in one lease at a time, whatever process lends them, and
// are lent by priority and then by id:
//
//   - Who lends tasks of a queue has the lock of its turn row, until the commit. So between the look at
//     the leases of the queue and the commit of a new one no other lease of Lend is made.
//   - It looks at the leases first and at the tasks then. The keys of tasks that come back from a
//     lease in between are among those that it saw held, so it leaves out these tasks and all later ones of their keys.
//   - It chooses by a read that locks nothing, and passes over no task without seeing it. If it cannot
//     lock one, because another transaction has it, it passes over the later ones of that key, too.
//
// That is between leases of Lend. Pools know nothing of it: leave a queue to the one or to the others. A task that
// failed, and waits for its next attempt, holds up no other, and nor does one for later; it is lent
// after its time in its order again. A task whose transaction commits after another one with a higher id
// comes after that, if that was lent by then.
//
// A paused queue lends nothing. A task that has more than [MaxPayload] bytes of arguments is dead
// with that reason. After an error nothing is lent: if the answer to a
// commit was lost, Lend gives the tasks back; if the database is away then, too, they come back when the lease ends.
func (q *Queue) Lend(ctx context.Context, queue, to string, n int, lease time.Duration) (lent []Task, err error) {
	// What waits for tasks looks often.
	var idle bool
	err = q.db.QueryRowContext(ctx, "SELECT NOT EXISTS (SELECT id FROM tasks FORCE INDEX (claim) WHERE queue = ?)", queue).Scan(&idle)
	if err != nil || idle {
		return nil, mysql.Translate(ctx, "look for tasks of queue "+queue, err)
	}
	token := to[:min(len(to), 37)] + "/" + rand.Text() // as long as the column takes
	for {
		var c claiming
		err = mysql.Transact(ctx, q.db, "lend tasks of queue "+queue, func(tx *sql.Tx) (err error) {
			c = claiming{tx: tx, queue: queue, most: n, seen: make(map[uint64]bool)}
			lent, err = c.lend(ctx, token, min(lease, MaxLease))
			return err
		})
		if err != nil {
			return nil, q.unlend(ctx, lent, err)
		}
		q.metrics.dropped.Add(float64(c.dropped))
		if len(lent) > 0 || len(c.seen) == 0 || c.dropped+c.parked == 0 {
			return lent, nil
		}
	}
}

// giveBackTime is how long [Queue.Lend] tries to give back what it may have lent in vain.
const giveBackTime = 2 * time.Second

// unlend gives back what may have been lent though that failed with an error, which it returns.
func (q *Queue) unlend(ctx context.Context, lent []Task, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), giveBackTime)
	defer cancel()
	_ = q.GiveBack(ctx, lent)
	return err
}

// turnKey is the hash of the row of task_keys that is the turn of those who lend tasks of a queue. No
// idempotency key has a blank. It begins with no zero byte: see keyLimit.
func turnKey(queue string) []byte {
	sum := sha256.Sum256([]byte("turn " + queue))
	sum[0] = 0xFF
	return sum[:]
}

const (
	// takeTurn locks the turn row, which it makes if there is none. (A sweep may delete one that is a day
	// old, and not locked.)
	takeTurn = "INSERT INTO task_keys (key_hash, batch_hash) VALUES (?, ?) ON DUPLICATE KEY UPDATE batch_hash = ?"
	isPaused = "SELECT EXISTS (SELECT queue FROM paused_queues WHERE queue = ?)"
	// leasesOf reads no tasks, which are stored apart from the rest of a row.
	leasesOf = "SELECT token FROM task_leases FORCE INDEX (PRIMARY) WHERE queue = ?"
	// chooseTasks locks nothing, and lockChosen only what it names.
	chooseTasks = "SELECT id, subject, LENGTH(args) > ? FROM tasks FORCE INDEX (claim) WHERE queue = ?"
	inOrder     = " ORDER BY priority, id LIMIT ?"
	lockChosen  = " FROM tasks FORCE INDEX (PRIMARY) WHERE id IN "
)

// buryLong moves tasks with too many arguments to where they are dead.
var buryLong = move("INSERT INTO parked_tasks (id, queue, type, subject, args, priority, attempts, max_attempts, expires_at, created_at, state, last_error)"+
	" SELECT id, queue, type, subject, args, priority, attempts, max_attempts, expires_at, created_at, 'dead', CONCAT(LENGTH(args), ' bytes of args: at most "+strconv.Itoa(MaxPayload)+
	" are read') FROM tasks FORCE INDEX (PRIMARY) WHERE id IN ", deleteTasks)

// lend moves the next tasks into a lease.
func (c *claiming) lend(ctx context.Context, token string, lease time.Duration) ([]Task, error) {
	turn := turnKey(c.queue)
	if _, err := c.tx.ExecContext(ctx, takeTurn, turn, turn, turn); err != nil {
		return nil, err
	}
	var paused bool
	if err := c.tx.QueryRowContext(ctx, isPaused, c.queue).Scan(&paused); err != nil || paused {
		return nil, err
	}
	err := c.holdKeys(ctx)
	if err != nil {
		return nil, err
	}
	for more := true; more && len(c.run) == 0 && c.dropped+c.parked < claimAside; {
		c.enough = false
		var long []uint64
		if long, more, err = c.choose(ctx); err != nil {
			return nil, err
		}
		if err := c.take(ctx); err != nil {
			return nil, err
		}
		buried, _, err := each(long, func(ids []uint64) error {
			_, err := buryLong(ctx, c.tx, ids)
			return err
		})
		if err != nil {
			return nil, err
		}
		c.parked += len(buried)
	}
	return c.lease(ctx, token, lease)
}

// holdKeys notes the keys of the tasks in leases of the queue, also in those that ran out: their
// tasks come back first.
func (c *claiming) holdKeys(ctx context.Context) error {
	tokens, err := mysql.Keys(ctx, c.tx, leasesOf, c.queue)
	if err != nil || len(tokens) == 0 {
		return err
	}
	leases, err := readLeases(ctx, c.tx, true, "WHERE token IN ("+mysql.Marks(len(tokens))+")", tokens...)
	for _, l := range leases {
		for _, r := range l.open() {
			c.hold(r.Key)
		}
	}
	return err
}

// hold keeps tasks with a key out of this claim from now on.
func (c *claiming) hold(key uint64) {
	if key != 0 && !slices.Contains(c.held, any(key)) {
		c.held = append(c.held, key)
	}
}

// choose finds and locks the next tasks but for those with a held key, and returns also the ids of those
// that have too many arguments; more: there were some that it had not seen before.
func (c *claiming) choose(ctx context.Context) (long []uint64, more bool, err error) {
	query, args := chooseTasks, []any{MaxPayload, c.queue}
	if len(c.held) > 0 {
		query, args = query+" AND subject NOT IN ("+mysql.Marks(len(c.held))+")", append(args, c.held...)
	}
	type chosen struct {
		id, key uint64
		long    bool
	}
	list, err := mysql.Select(ctx, c.tx, func(rows *sql.Rows) (one chosen, err error) {
		err = rows.Scan(&one.id, &one.key, &one.long)
		return one, err
	}, query+inOrder, append(args, c.most+len(c.seen))...)
	list = slices.DeleteFunc(list, func(one chosen) bool { return c.seen[one.id] })
	if err != nil || len(list) == 0 {
		return nil, false, err
	}
	ids := make([]any, len(list))
	for i, one := range list {
		ids[i] = one.id
	}
	type found struct {
		row
		due uint64
	}
	rows, err := mysql.Select(ctx, c.tx, func(rows *sql.Rows) (f found, err error) {
		err = c.scan(rows, &f.row, &f.due)
		return f, err
	}, taskColumns+lockChosen+"("+mysql.Marks(len(ids))+") FOR UPDATE SKIP LOCKED", ids...)
	if err != nil {
		return nil, false, err
	}
	locked := make(map[uint64]found, len(rows))
	for _, r := range rows {
		locked[r.ID] = r
	}
	for _, one := range list {
		r, ok := locked[one.id]
		switch {
		case !ok || one.key != 0 && slices.Contains(c.held, any(one.key)):
			c.seen[one.id] = true
			c.hold(one.key) // also in the next choice
		case one.long:
			c.seen[one.id] = true
			long = append(long, one.id)
		case !c.add(r.row, r.due):
			return long, true, nil
		}
	}
	return long, true, nil
}

// GiveBack makes lent tasks wait again at once, as if they had not been lent. Those whose lease is lost
// stay as they are.
func (q *Queue) GiveBack(ctx context.Context, lent []Task) error {
	if len(lent) == 0 {
		return nil
	}
	_, err := q.Finish(ctx, handBack(lent, 0, errUnanswered))
	return err
}

var errUnanswered = errors.New("the worker left before it had the answer")

// End is how the work on a lent task ended.
type End struct {
	ID uint64
	// Err is nil when the task is done; [Permanent] and [Later] say what a plain error does not.
	Err error
	// After is when a task that failed is tried again; 0: as [Pool] does. The attempt counts.
	After time.Duration
}

// againError is an error that says when its task is tried again.
type againError struct {
	error
	after time.Duration
}

func (e *againError) Unwrap() error { return e.error }

// NotLentError says that a task is none of the lease.
type NotLentError struct {
	At int // among the ends
}

// Error names the place.
func (e *NotLentError) Error() string {
	return fmt.Sprintf("task %d of the list is none of the lease", e.At+1)
}

// Return records how tasks of a lease ended, and returns how many of it did not yet. What it is not told of
// stays leased. A task that ended before keeps the end that it had. It returns [ErrLeaseLost] if no such
// lease of the queue lasts, or all of its tasks ended, and a [NotLentError]; then nothing is
// changed.
func (q *Queue) Return(ctx context.Context, queue, token string, ends []End) (open int, err error) {
	var ended []Result
	err = mysql.Transact(ctx, q.db, fmt.Sprintf("return %d tasks", len(ends)), func(tx *sql.Tx) error {
		found, err := readLeases(ctx, tx, true, "WHERE token = ? AND queue = ? AND ends_at > "+now+" FOR UPDATE", token, queue)
		if err != nil {
			return err
		}
		if len(found) == 0 {
			return ErrLeaseLost
		}
		if ended, err = found[0].results(ends); err == nil && len(ended) > 0 {
			_, _, err = q.end(ctx, tx, ended)
		}
		open = len(found[0].open())
		return err
	})
	if errors.Is(err, ErrLeaseLost) {
		q.metrics.leasesLost.Add(float64(len(ends)))
	}
	if err != nil {
		return 0, err
	}
	for _, r := range ended {
		q.metrics.finished.WithLabelValues(queue, q.options.Kinds.label(r.Task.Kind), Judge(r).label()).Inc()
	}
	if slices.ContainsFunc(ended, func(r Result) bool { return r.Task.Key != 0 || Judge(r).State == Waiting }) { // it, or others of its key, can be lent now
		q.options.Notifier.Notify(queue)
	}
	return open, nil
}

// results returns the results of those tasks that did not end before, and notes that they did.
func (l *lease) results(ends []End) (results []Result, err error) {
	for at, e := range ends {
		i := slices.IndexFunc(l.tasks, func(r row) bool { return r.ID == e.ID })
		if i < 0 {
			return nil, &NotLentError{at}
		}
		if l.isDone(i) {
			continue
		}
		l.finish(i)
		r := Result{Task: l.tasks[i].Task, Err: e.Err}
		if e.Err != nil && e.After > 0 {
			r.Err = &againError{e.Err, e.After}
		}
		results = append(results, r)
	}
	return results, nil
}

// Renew makes a lease of a queue end after lease from now, and returns when that is. It returns
// [ErrLeaseLost] if no such lease lasts, or all of its tasks ended.
func (q *Queue) Renew(ctx context.Context, queue, token string, lease time.Duration) (until time.Time, err error) {
	var ends uint64
	err = mysql.Transact(ctx, q.db, "renew a lease", func(tx *sql.Tx) error {
		n, err := mysql.Affected(tx.ExecContext(ctx, "UPDATE task_leases SET ends_at = "+now+" + ? WHERE token = ? AND queue = ? AND ends_at > "+now,
			min(lease, MaxLease).Milliseconds(), token, queue))
		if err == nil && n == 0 {
			return ErrLeaseLost
		}
		if err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, "SELECT ends_at FROM task_leases WHERE token = ?", token).Scan(&ends)
	})
	return timeOf(ends), err
}
