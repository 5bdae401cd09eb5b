package tasks

import (
	"context"
	"crypto/rand"
	"database/sql"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/plural"
)

// now is the clock of the queue, in unix milliseconds: the database's own, so
// that machines whose clocks differ agree on when a lease ends.
const now = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"

// How tasks are changed and deleted by their ids. The index is named because a table
// of which the ids are a third or more is scanned otherwise, by MySQL and MariaDB
// alike, and the scan of a DELETE waits for rows that others have locked or not
// committed yet: for a site's transaction, as long as that takes. A DELETE can
// name an index only in the form for several tables; and the name counts only
// where the condition asks for a column that the index lacks, as the id alone
// does not.
const (
	updateTasks = "UPDATE tasks FORCE INDEX (PRIMARY) SET "
	deleteTasks = "DELETE tasks FROM tasks FORCE INDEX (PRIMARY) WHERE "
	deleteIdle  = deleteTasks + "state <> 'running' AND id IN "
)

// lostOwner stands in lease_owner of a task whose last lease ran out, until its
// next one.
const lostOwner = "lost"

// MySQLQueue keeps tasks in the table tasks, so that a task commits together
// with the change that it is about.
type MySQLQueue struct {
	db      *sql.DB
	options QueueOptions
	buried  *graveyard
}

// NewMySQLQueue returns a queue over db, which the caller closes.
func NewMySQLQueue(db *sql.DB, o QueueOptions) *MySQLQueue {
	const most = 40 // leaves room in lease_owner for the claim's own part
	if len(o.Owner) > most {
		o.Owner = o.Owner[:most]
	}
	return &MySQLQueue{db: db, options: o.withDefaults(), buried: newGraveyard(time.Now)}
}

// Claim implements [Queue].
func (q *MySQLQueue) Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error) {
	var claimed []Task
	dropped := 0 // by the transaction that is committed: it may be tried again
	err := q.transact(ctx, "claim tasks of queue "+queue, func(tx *sql.Tx) (err error) {
		claimed, dropped, err = q.claim(ctx, tx, queue, n, lease)
		return err
	})
	if err == nil && dropped > 0 {
		q.options.Observer.Dropped(dropped)
	}
	return claimed, err
}

func (q *MySQLQueue) claim(ctx context.Context, tx *sql.Tx, queue string, n int, lease time.Duration) (waiting []Task, dropped int, err error) {
	for {
		due, expired, err := q.look(ctx, tx, queue, n)
		if err != nil {
			return nil, 0, err
		}
		if len(expired) > 0 {
			if _, err := tx.ExecContext(ctx, deleteIdle+"("+marks(len(expired))+")", anys(expired)...); err != nil {
				return nil, 0, err
			}
			dropped += len(expired)
		}
		if waiting = due; len(due) > 0 || len(expired) == 0 {
			break
		}
	}
	if len(waiting) == 0 {
		return nil, dropped, nil
	}
	token := q.options.Owner + "/" + rand.Text()[:16]
	args := []any{token, lease.Milliseconds()}
	for i := range waiting {
		waiting[i].Lease = token
		args = append(args, waiting[i].ID)
	}
	// A key of its own takes the task out of the way of those that come later.
	// ~ sorts behind all keys: NULL would sort before them, where the rows of
	// sites are.
	_, err = tx.ExecContext(ctx, updateTasks+"state = 'running', attempts = attempts + 1, dedupe_key = CONCAT('~', id),"+
		" lease_owner = ?, due_at = "+now+" + ?, updated_at = "+now+
		" WHERE id IN ("+marks(len(waiting))+")", args...)
	return waiting, dropped, err
}

// look finds the next tasks, without those that are buried, if possible.
func (q *MySQLQueue) look(ctx context.Context, tx *sql.Tx, queue string, n int) (due []Task, expired []uint64, err error) {
	from, front := q.buried.begin(queue)
	for {
		began := time.Now()
		due, expired, err = selectDue(ctx, tx, queue, n, from, front)
		if err != nil {
			return nil, nil, err
		}
		full := len(due)+len(expired) >= n
		q.buried.found(queue, due, full, front, time.Since(began))
		if front || full || !q.buried.cheap(queue) {
			return due, expired, nil
		}
		front = true
	}
}

// The next tasks are read from the index, in the order in which they are to run:
// from the front of the queue, or without what is known to be buried there.
const (
	selectDueTasks = `
		SELECT id, type, subject, args, priority, attempts + 1, max_attempts, expires_at IS NOT NULL, COALESCE(expires_at <= ` + now + `, FALSE),
			lease_owner IS NOT NULL, created_at, updated_at, ` + now + `
		FROM tasks FORCE INDEX (claim)
		WHERE queue = ? AND state = 'waiting'`
	fromMark    = ` AND priority = ? AND id >= ?`
	inTheirTurn = ` ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED`
)

// selectDue locks up to n waiting tasks, passing over those that other workers
// are about to claim, and over those that a transaction absorbs a task into just
// now: that one commits before its task starts. Tasks past their expiry are not
// to be run any more.
func selectDue(ctx context.Context, tx *sql.Tx, queue string, n int, from position, front bool) (due []Task, expired []uint64, err error) {
	query, args := selectDueTasks+inTheirTurn, []any{queue, n}
	if !front {
		query, args = selectDueTasks+fromMark+inTheirTurn, []any{queue, from.priority, from.id, n}
	}
	rows, err := tx.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		t := Task{Queue: queue}
		var args []byte
		var past, lost bool
		var created, updated, at int64
		err := rows.Scan(&t.ID, &t.Type, (*uint64)(&t.Subject), &args, &t.Priority, &t.Attempts, &t.MaxAttempts, &t.Expires, &past, &lost, &created, &updated, &at)
		if err != nil {
			return nil, nil, err
		}
		t.RawArgs = args
		t.Created, t.Claimed = time.UnixMilli(created), time.UnixMilli(at)
		t.Waited = max(0, t.Claimed.Sub(time.UnixMilli(updated)))
		switch {
		case past:
			expired = append(expired, t.ID)
		case lost && len(due) > 0:
			return due, expired, rows.Err() // for another claim
		case lost:
			return []Task{t}, expired, rows.Err()
		default:
			due = append(due, t)
		}
	}
	return due, expired, rows.Err()
}

// Extend implements [Queue]. It is one statement for each claim, without a
// transaction around it: a heartbeat must be quick, also over a slow line.
func (q *MySQLQueue) Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error) {
	byLease := make(map[string][]uint64)
	for _, t := range held {
		byLease[t.Lease] = append(byLease[t.Lease], t.ID)
	}
	lost = len(held)
	for token, ids := range byLease {
		n, err := affected(q.db.ExecContext(ctx, updateTasks+"due_at = "+now+" + ? WHERE lease_owner = ? AND id IN ("+marks(len(ids))+")",
			append([]any{lease.Milliseconds(), token}, anys(ids)...)...))
		if err != nil {
			return 0, contacts.Translate(ctx, "extend the leases of "+plural.Of(len(held), "task", "tasks"), err)
		}
		lost -= n
	}
	return lost, nil
}

// Finish implements [Queue].
func (q *MySQLQueue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	err = q.transact(ctx, "finish "+plural.Of(len(results), "task", "tasks"), func(tx *sql.Tx) error {
		finished, err := q.finish(ctx, tx, results)
		lost = len(results) - finished
		return err
	})
	if back := queuesOfReturned(results); err == nil && len(back) > 0 {
		q.buried.forget()
		q.options.Bell.Ring(back...)
	}
	return lost, err
}

// claimEnd is what becomes of tasks of one claim: those that share it are
// written by one statement.
type claimEnd struct {
	lease string
	verdict
}

// finish writes results and returns how many were still leased to this claim.
// The lease is part of every condition: a worker that was paused past its lease
// must not finish a task that is another's by now.
func (q *MySQLQueue) finish(ctx context.Context, tx *sql.Tx, results []Result) (finished int, err error) {
	ends := make(map[claimEnd][]uint64)
	for _, r := range results {
		end := claimEnd{r.Task.Lease, judge(r)}
		ends[end] = append(ends[end], r.Task.ID)
	}
	for end, ids := range ends {
		n, err := affected(q.settle(ctx, tx, end, ids))
		if err != nil {
			return 0, err
		}
		finished += n
	}
	return finished, nil
}

func (q *MySQLQueue) settle(ctx context.Context, tx *sql.Tx, end claimEnd, ids []uint64) (sql.Result, error) {
	where := "lease_owner = ? AND id IN (" + marks(len(ids)) + ")"
	whereArgs := append([]any{end.lease}, anys(ids)...)
	if end.kind == done && q.options.Keep == 0 {
		return tx.ExecContext(ctx, deleteTasks+where, whereArgs...)
	}
	due, wait := "NULL", end.after
	switch end.state() {
	case Waiting:
		due = "expires_at"
	case Scheduled:
		due = now
	case Done:
		due, wait = now, q.options.Keep
	}
	uncount := 0
	if end.kind == postpone {
		uncount = 1
	}
	set := []any{end.state(), wait.Milliseconds(), uncount, end.message}
	return tx.ExecContext(ctx, updateTasks+"state = ?, due_at = "+due+" + ?, attempts = attempts - ?, last_error = NULLIF(?, ''),"+
		" lease_owner = NULL, updated_at = "+now+" WHERE "+where, append(set, whereArgs...)...)
}

// FanningOut implements [Queue].
func (q *MySQLQueue) FanningOut(ctx context.Context, users []member.ID) (map[member.ID]bool, error) {
	return q.subjectsOf(ctx, "look for fan-outs", []Type{FanOut}, users, "'waiting', 'running'")
}

// Pending implements [Queue].
func (q *MySQLQueue) Pending(ctx context.Context, types []Type, subjects []member.ID) (map[member.ID]bool, error) {
	return q.subjectsOf(ctx, "look for pending tasks", types, subjects, "'waiting', 'scheduled', 'running'")
}

// subjectsOf returns those of the subjects that have tasks of the types in the
// states.
func (q *MySQLQueue) subjectsOf(ctx context.Context, what string, types []Type, subjects []member.ID, states string) (map[member.ID]bool, error) {
	found := make(map[member.ID]bool)
	if len(types) == 0 || len(subjects) == 0 {
		return found, nil
	}
	args := make([]any, 0, len(types)+len(subjects))
	for _, t := range types {
		args = append(args, t)
	}
	for _, s := range subjects {
		args = append(args, uint64(s))
	}
	rows, err := q.db.QueryContext(ctx, "SELECT DISTINCT subject FROM tasks FORCE INDEX (chains) WHERE type IN ("+marks(len(types))+
		") AND subject IN ("+marks(len(subjects))+") AND state IN ("+states+")", args...)
	if err != nil {
		return nil, contacts.Translate(ctx, what, err)
	}
	defer rows.Close()
	for rows.Next() {
		var u uint64
		if err := rows.Scan(&u); err != nil {
			return nil, contacts.Translate(ctx, what, err)
		}
		found[member.ID(u)] = true
	}
	return found, contacts.Translate(ctx, what, rows.Err())
}

// Count implements [Queue].
func (q *MySQLQueue) Count(ctx context.Context) (c Counts, err error) {
	err = q.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(state = 'waiting'), 0), COALESCE(SUM(state = 'scheduled'), 0),"+
		" COALESCE(SUM(state = 'running'), 0), COALESCE(SUM(state = 'dead'), 0), COALESCE(SUM(state = 'done'), 0) FROM tasks").
		Scan(&c.Waiting, &c.Scheduled, &c.Running, &c.Dead, &c.Done)
	return c, contacts.Translate(ctx, "count tasks", err)
}
