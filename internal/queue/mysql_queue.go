package queue

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// now is the clock of the queue, in unix milliseconds: the database's own, so
// that machines whose clocks differ agree on when a lease ends.
const now = mysql.Now

// How tasks are changed and deleted by their ids. The index is named because MySQL and
// MariaDB scan the table where a third of its rows or more are asked for. The scan of a
// DELETE waits for rows that others have locked or not committed yet, so for as long as a
// site's transaction takes. A DELETE can name an index only in the form for several
// tables, and the name counts only where the condition has a column that the index lacks,
// and not the id alone. One id is found by its row in any case.
const (
	updateTasks = "UPDATE tasks FORCE INDEX (PRIMARY) SET "
	deleteTasks = "DELETE tasks FROM tasks FORCE INDEX (PRIMARY) WHERE "
	deleteIdle  = deleteTasks + "state <> 'running' AND id IN "
)

// lostOwner stands in lease_owner of a task whose last lease ran out, until its
// next one.
const lostOwner = "lost"

// MySQLQueue is a durable queue of tasks in the table tasks, so that a task commits
// together with the change that it is about. It is safe for concurrent use.
//
// A task is waiting, scheduled for later, running under a lease, dead, or, where
// finished tasks are kept for a while, done. It is claimed at least once: a lease
// that ran out gives it to another worker. Package queuetest has its specification.
type MySQLQueue struct {
	db      *sql.DB
	options Options
	cursors *cursors

	keyLimit keyLimit
}

// NewMySQLQueue returns a queue over db, which the caller closes.
func NewMySQLQueue(db *sql.DB, o Options) *MySQLQueue {
	const most = 40 // leaves room in lease_owner for the claim's own part
	if len(o.Owner) > most {
		o.Owner = o.Owner[:most]
	}
	return &MySQLQueue{
		db: db, options: o.withDefaults(), cursors: newCursors(time.Now),
		keyLimit: keyLimit{most: MaxKeys, again: time.Now().Add(keyLook)},
	}
}

// Claim leases up to n due tasks of a queue, the urgent ones first, then in
// order of arrival; those that expired are left to [MySQLQueue.Sweep]. Whatever
// happens to the claimer, they are free again after the lease, which lasts
// [MaxLease] at most, and a Sweep. A task whose last lease ran out comes with others
// once; from then on (see [SharedAttempts]) it is claimed alone: should it be what
// killed its workers, it takes no other with it.
//
// Tasks that come with an error may have been claimed: the answer to the commit was lost. The
// caller has to hand them back.
func (q *MySQLQueue) Claim(ctx context.Context, queue string, n int, lease time.Duration) (claimed []Task, err error) {
	again := false
	err = mysql.Transact(ctx, q.db, "claim tasks of queue "+queue, func(tx *sql.Tx) (err error) {
		if again { // the tasks that the try before locked still wait, before the cursor
			q.cursors.forget()
		}
		again = true
		claimed, err = q.claim(ctx, tx, queue, n, lease)
		return err
	})
	if err != nil {
		q.cursors.forget()
	}
	return claimed, err
}

func (q *MySQLQueue) claim(ctx context.Context, tx *sql.Tx, queue string, n int, lease time.Duration) ([]Task, error) {
	due, err := q.look(ctx, tx, queue, n)
	if err != nil || len(due) == 0 {
		return nil, err
	}
	random := rand.Text()[:16]
	token := q.options.Owner + "/" + random
	ids := make([]any, len(due))
	for i := range due {
		due[i].Lease = token
		ids[i] = due[i].ID
	}
	// A key of its own takes the task out of the way of those that come later.
	started := make(map[any]bool, len(due))
	if _, err = changeRows(ctx, tx, ids, func(ids []any) (int, error) {
		args := append([]any{random, token, min(lease, MaxLease).Milliseconds()}, ids...)
		n, err := mysql.Affected(tx.ExecContext(ctx, updateTasks+"state = 'running', attempts = "+oneMoreAttempt+
			", dedupe_key = "+keyOfItsOwn+", lease_owner = ?, due_at = "+now+" + ?, updated_at = "+now+
			" WHERE id IN ("+mysql.Marks(len(ids))+")", args...))
		for _, id := range ids {
			started[id] = err == nil
		}
		return n, err
	}); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(due, func(t Task) bool { return !started[t.ID] }), nil
}

// oneMoreAttempt is attempts + 1 for any row: it is a SMALLINT UNSIGNED.
const oneMoreAttempt = "LEAST(attempts, 65534) + 1"

// keyOfItsOwn replaces the dedupe key of a task that absorbs no more. ~ sorts behind all
// keys; NULL would sort before them, where the rows of sites are. The argument is random, so
// that no row can have the key already. A row without a key gets none, which leaves its entry
// in the index as it is.
const keyOfItsOwn = "IF(dedupe_key IS NOT NULL, CONCAT('~', id, '/', ?), NULL)"

// boundedArgs selects the arguments of a task, or, where they have more than
// [MaxPayload] bytes, a JSON string that says so: no arguments at all.
var boundedArgs = fmt.Sprintf("IF(LENGTH(args) <= %d, args, JSON_QUOTE(CONCAT(LENGTH(args), ' bytes: at most %[1]d are read')))", MaxPayload)

// changeRows changes rows of tasks, by their ids, and returns how many it changed.
// If the server refuses that for what is in one of the rows (a trigger or a
// constraint of the site's may), each is changed alone, and one that is refused is
// buried with the reason, so that it stops no others. One of which the server
// refuses that, too, stays as it is; if it does of all, that is an error.
func changeRows(ctx context.Context, tx *sql.Tx, ids []any, change func(ids []any) (int, error)) (changed int, err error) {
	changed, refused := change(ids)
	if !mysql.IsRowRefused(refused) {
		return changed, refused
	}
	for _, id := range ids {
		n, err := change([]any{id})
		if mysql.IsRowRefused(err) {
			n, err = mysql.Affected(tx.ExecContext(ctx, "UPDATE tasks SET state = 'dead', due_at = NULL, lease_owner = NULL, last_error = ?, updated_at = "+now+
				" WHERE id = ?", clip("the database refuses to change it: "+err.Error()), id))
		}
		if err != nil && !mysql.IsRowRefused(err) {
			return changed, err
		}
		changed += n
	}
	if changed == 0 {
		return 0, refused
	}
	return changed, nil
}

// look finds the next tasks, from the cursor of the queue or from its front.
func (q *MySQLQueue) look(ctx context.Context, tx *sql.Tx, queue string, n int) (due []Task, err error) {
	from, front := q.cursors.begin(queue)
	for {
		began := time.Now()
		due, err = selectDue(ctx, tx, queue, n, from, front)
		if err != nil {
			return nil, err
		}
		full := len(due) >= n
		q.cursors.found(queue, due, full, front, time.Since(began))
		if front || full || !q.cursors.cheap(queue) {
			return due, nil
		}
		front = true
	}
}

// The next tasks are read from the index, in the order in which they are to run:
// from the front of the queue, or from its cursor on. Those that expired are left to
// the sweep, which deletes them by another index and some at a time: a claim that
// deleted them would have to be through with all of them, however many they are,
// before it comes to the others.
var selectDueTasks = `
		SELECT id, type, subject, ` + boundedArgs + `, priority, ` + oneMoreAttempt + `, max_attempts, expires_at IS NOT NULL,
			lease_owner IS NOT NULL, created_at, updated_at, ` + now + `
		FROM tasks FORCE INDEX (claim)
		WHERE queue = ? AND state = 'waiting' AND (due_at IS NULL OR due_at > ` + now + `)`

const (
	fromCursor  = ` AND priority = ? AND id >= ?`
	inTheirTurn = ` ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED`
)

// selectDue locks up to n waiting tasks, passing over those that other workers
// are about to claim, and over those that a transaction absorbs a task into just
// now: that one commits before its task starts.
func selectDue(ctx context.Context, tx *sql.Tx, queue string, n int, from position, front bool) (due []Task, err error) {
	query, args := selectDueTasks+inTheirTurn, []any{queue, n}
	if !front {
		query, args = selectDueTasks+fromCursor+inTheirTurn, []any{queue, from.priority, from.id, n}
	}
	var lost []bool
	due, err = mysql.Select(ctx, tx, func(rows *sql.Rows) (Task, error) {
		t := Task{Queue: queue}
		var args []byte
		var isLost bool
		var created, updated, at uint64
		err := rows.Scan(&t.ID, &t.Kind, &t.Key, &args, &t.Priority, &t.Attempts, &t.MaxAttempts, &t.Expires, &isLost, &created, &updated, &at)
		t.Payload, lost = args, append(lost, isLost && t.Attempts > SharedAttempts)
		t.Created, t.Claimed = timeOf(created), timeOf(at)
		t.Waited = max(0, t.Claimed.Sub(timeOf(updated)))
		return t, err
	}, query, args...)
	if err != nil {
		return nil, err // rows may have come before it
	}
	if first := slices.Index(lost, true); first >= 0 { // a task that is lost again and again is claimed alone
		due = due[:max(first, 1)]
	}
	return due, nil
}

// latest is the end of the year 9999, in unix milliseconds. A later time, which
// only a row that makes no sense can have, is taken for it.
const latest = 253402300799999

// timeOf returns a time of the table.
func timeOf(milliseconds uint64) time.Time { return time.UnixMilli(int64(min(milliseconds, latest))) }

// Extend makes the leases of the held tasks end after lease from now. Those
// whose lease was lost to another worker stay so and are counted in lost.
//
// It is one statement for each claim, without a
// transaction around it: a heartbeat must be quick, also over a slow line.
func (q *MySQLQueue) Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error) {
	byLease := make(map[string][]uint64)
	for _, t := range held {
		byLease[t.Lease] = append(byLease[t.Lease], t.ID)
	}
	lost = len(held)
	for token, ids := range byLease {
		n, err := mysql.Affected(q.db.ExecContext(ctx, updateTasks+"due_at = "+now+" + ? WHERE lease_owner = ? AND id IN ("+mysql.Marks(len(ids))+")",
			append([]any{min(lease, MaxLease).Milliseconds(), token}, mysql.Args(ids)...)...))
		if err != nil {
			return 0, mysql.Translate(ctx, fmt.Sprintf("extend the leases of %d tasks", len(held)), err)
		}
		lost -= n
	}
	return lost, nil
}

// Finish records results, and enqueues their follow-up tasks in the same transaction.
// Those whose lease was lost to another worker are without effect and counted in lost.
func (q *MySQLQueue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	var next []New
	var done enqueued
	err = mysql.Transact(ctx, q.db, fmt.Sprintf("finish %d tasks", len(results)), func(tx *sql.Tx) error {
		var err error
		if next, err = followUps(ctx, tx, results); err != nil {
			return err
		}
		finished, err := q.finish(ctx, tx, results)
		if err != nil {
			return err
		}
		lost = len(results) - finished
		done, err = enqueueNext(ctx, tx, next)
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

// followUps returns the follow-up tasks of the results whose lease holds, and keeps it
// so until the end of the transaction.
func followUps(ctx context.Context, tx *sql.Tx, results []Result) (next []New, err error) {
	var held []Task
	for _, r := range results {
		if len(FollowUps(r)) > 0 {
			held = append(held, r.Task)
		}
	}
	if len(held) == 0 {
		return nil, nil
	}
	locked, err := lockHeld(ctx, tx, held)
	if err != nil {
		return nil, err
	}
	ours := make(map[uint64]bool, len(locked))
	for _, t := range locked {
		ours[t.ID] = true
	}
	for _, r := range results {
		if ours[r.Task.ID] {
			next = append(next, FollowUps(r)...)
		}
	}
	return ValidateNext(next)
}

// claimEnd is what becomes of tasks of one claim: those that share it are
// written by one statement.
type claimEnd struct {
	lease string
	Verdict
}

// finish writes results and returns how many were still leased to this claim.
// The lease is part of every condition: a worker that was paused past its lease
// must not finish a task that is another's by now.
func (q *MySQLQueue) finish(ctx context.Context, tx *sql.Tx, results []Result) (finished int, err error) {
	ends := make(map[claimEnd][]uint64)
	pauses := make(map[int]time.Duration) // by attempt: with jitter, they are the same for a claim
	for _, r := range results {
		end := claimEnd{r.Task.Lease, Judge(r)}
		if end.State == Scheduled && !end.Uncounted {
			if _, drawn := pauses[r.Task.Attempts]; !drawn {
				pauses[r.Task.Attempts] = end.After
			}
			end.After = pauses[r.Task.Attempts]
		}
		ends[end] = append(ends[end], r.Task.ID)
	}
	for end, ids := range ends {
		n, err := changeRows(ctx, tx, mysql.Args(ids), func(ids []any) (int, error) { return mysql.Affected(q.settle(ctx, tx, end, ids)) })
		if err != nil {
			return 0, err
		}
		finished += n
	}
	return finished, nil
}

func (q *MySQLQueue) settle(ctx context.Context, tx *sql.Tx, end claimEnd, ids []any) (sql.Result, error) {
	where := "lease_owner = ? AND id IN (" + mysql.Marks(len(ids)) + ")"
	whereArgs := append([]any{end.lease}, ids...)
	if end.State == Done && q.options.Keep == 0 {
		return tx.ExecContext(ctx, deleteTasks+where, whereArgs...)
	}
	due, wait := "NULL", end.After
	switch end.State {
	case Waiting:
		due = "expires_at"
	case Scheduled:
		due = now
	case Done:
		due, wait = now, q.options.Keep
	}
	uncount := 0
	if end.Uncounted {
		uncount = 1
	}
	set := []any{end.State, wait.Milliseconds(), uncount, end.Message}
	return tx.ExecContext(ctx, updateTasks+"state = ?, due_at = "+due+" + ?, attempts = attempts - ?, last_error = NULLIF(?, ''),"+
		" lease_owner = NULL, updated_at = "+now+" WHERE "+where, append(set, whereArgs...)...)
}

// Active returns those of the keys that have tasks of the kind that wait, or run
// under a lease. One that a producer put elsewhere does not count, so that it holds
// up nothing: one in another queue than the kind's, where perhaps no worker looks,
// or less urgent than [Normal]; nor does one that failed and is scheduled for later.
func (q *MySQLQueue) Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	return q.keysOf(ctx, "look for tasks under way", []string{kind}, keys,
		"(state = 'waiting' OR state = 'running' AND lease_owner IS NOT NULL) AND priority <= 0 AND queue = ?", HomeOf(kind))
}

// Pending returns those of the keys that have tasks of the kinds which are not
// finished and not dead.
func (q *MySQLQueue) Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error) {
	return q.keysOf(ctx, "look for pending tasks", kinds, keys, "state IN ('waiting', 'scheduled', 'running')")
}

// keysOf returns those of the keys that have tasks of the kinds for which the
// condition holds.
func (q *MySQLQueue) keysOf(ctx context.Context, what string, kinds []string, keys []uint64, condition string, conditionArgs ...any) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	if len(kinds) == 0 || len(keys) == 0 {
		return found, nil
	}
	args := append(mysql.Args(kinds), mysql.Args(keys)...)
	keys, err := mysql.Select(ctx, q.db, mysql.Column[uint64], "SELECT DISTINCT subject FROM tasks FORCE INDEX (chains) WHERE type IN ("+mysql.Marks(len(kinds))+
		") AND subject IN ("+mysql.Marks(len(keys))+") AND "+condition, append(args, conditionArgs...)...)
	for _, key := range keys {
		found[key] = true
	}
	return found, mysql.Translate(ctx, what, err)
}

// Count returns how many tasks there are by state. It looks at all of them:
// it is for tests and small queues; see [MySQLQueue.Stats].
func (q *MySQLQueue) Count(ctx context.Context) (c Counts, err error) {
	err = q.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(state = 'waiting'), 0), COALESCE(SUM(state = 'scheduled'), 0),"+
		" COALESCE(SUM(state = 'running'), 0), COALESCE(SUM(state = 'dead'), 0), COALESCE(SUM(state = 'done'), 0) FROM tasks").
		Scan(&c.Waiting, &c.Scheduled, &c.Running, &c.Dead, &c.Done)
	return c, mysql.Translate(ctx, "count tasks", err)
}
