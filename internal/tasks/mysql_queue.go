package tasks

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
)

// now is the clock of the queue, in unix milliseconds: the database's own, so
// that machines whose clocks differ agree on when a lease ends.
const now = "CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)"

// MySQLQueue keeps tasks in the table tasks, so that a task commits together
// with the change that it is about.
type MySQLQueue struct {
	db      *sql.DB
	options QueueOptions
}

// NewMySQLQueue returns a queue over db, which the caller closes.
func NewMySQLQueue(db *sql.DB, o QueueOptions) *MySQLQueue {
	const most = 40 // leaves room in lease_owner for the claim's own part
	if len(o.Owner) > most {
		o.Owner = o.Owner[:most]
	}
	return &MySQLQueue{db: db, options: o.withDefaults()}
}

// Claim implements [Queue].
func (q *MySQLQueue) Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error) {
	var claimed []Task
	err := q.transact(ctx, "claim tasks of queue "+queue, func(tx *sql.Tx) (err error) {
		claimed, err = q.claim(ctx, tx, queue, n, lease)
		return err
	})
	return claimed, err
}

func (q *MySQLQueue) claim(ctx context.Context, tx *sql.Tx, queue string, n int, lease time.Duration) ([]Task, error) {
	waiting, expired, err := selectDue(ctx, tx, queue, n)
	if err != nil {
		return nil, err
	}
	if len(expired) > 0 {
		if _, err := tx.ExecContext(ctx, "DELETE FROM tasks WHERE id IN ("+marks(len(expired))+")", anys(expired)...); err != nil {
			return nil, err
		}
	}
	if len(waiting) == 0 {
		return nil, nil
	}
	token := q.options.Owner + "/" + rand.Text()[:16]
	args := []any{token, lease.Milliseconds()}
	for i := range waiting {
		waiting[i].Lease = token
		args = append(args, waiting[i].ID)
	}
	// A key of its own takes the task out of the way of those that come later.
	// ~ sorts behind all keys: NULL would sort before them, into a gap that a
	// transaction may hold which absorbed a task under the first key.
	_, err = tx.ExecContext(ctx, "UPDATE tasks SET state = 'running', attempts = attempts + 1, dedupe_key = CONCAT('~', id),"+
		" lease_owner = ?, lease_until = "+now+" + ?, updated_at = "+now+
		" WHERE id IN ("+marks(len(waiting))+")", args...)
	return waiting, err
}

// selectDue locks up to n waiting tasks, passing over those that other workers
// are about to claim, and over those that a transaction absorbs a task into just
// now: that one commits before its task starts. Tasks past their expiry are not
// to be run any more.
func selectDue(ctx context.Context, tx *sql.Tx, queue string, n int) (due []Task, expired []uint64, err error) {
	rows, err := tx.QueryContext(ctx, `
		SELECT id, type, subject, args, attempts + 1, max_attempts, COALESCE(expires_at <= `+now+`, FALSE)
		FROM tasks FORCE INDEX (claim)
		WHERE queue = ? AND state = 'waiting' AND run_at <= `+now+`
		ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED`, queue, n)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		t := Task{Queue: queue}
		var args []byte
		var past bool
		if err := rows.Scan(&t.ID, &t.Type, (*uint64)(&t.Subject), &args, &t.Attempts, &t.MaxAttempts, &past); err != nil {
			return nil, nil, err
		}
		t.RawArgs = args
		if past {
			expired = append(expired, t.ID)
		} else {
			due = append(due, t)
		}
	}
	return due, expired, rows.Err()
}

// Finish implements [Queue].
func (q *MySQLQueue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	err = q.transact(ctx, fmt.Sprintf("finish %d tasks", len(results)), func(tx *sql.Tx) error {
		finished, err := finish(ctx, tx, results)
		lost = len(results) - finished
		return err
	})
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
func finish(ctx context.Context, tx *sql.Tx, results []Result) (finished int, err error) {
	ends := make(map[claimEnd][]uint64)
	for _, r := range results {
		end := claimEnd{r.Task.Lease, judge(r)}
		ends[end] = append(ends[end], r.Task.ID)
	}
	for end, ids := range ends {
		n, err := affected(settle(ctx, tx, end, ids))
		if err != nil {
			return 0, err
		}
		finished += n
	}
	return finished, nil
}

func settle(ctx context.Context, tx *sql.Tx, end claimEnd, ids []uint64) (sql.Result, error) {
	where := " WHERE lease_owner = ? AND id IN (" + marks(len(ids)) + ")"
	whereArgs := append([]any{end.lease}, anys(ids)...)
	if end.kind == done {
		return tx.ExecContext(ctx, "DELETE FROM tasks"+where, whereArgs...)
	}
	uncount := 0
	if end.kind == postpone {
		uncount = 1
	}
	set := []any{end.state(), end.after.Milliseconds(), uncount, end.message}
	return tx.ExecContext(ctx, "UPDATE tasks SET state = ?, run_at = "+now+" + ?, attempts = attempts - ?, last_error = ?,"+
		" lease_owner = NULL, lease_until = NULL, updated_at = "+now+where, append(set, whereArgs...)...)
}

// sweepSize bounds what one statement of a sweep changes.
const sweepSize = 1000

// Sweep implements [Queue].
func (q *MySQLQueue) Sweep(ctx context.Context) (s Swept, err error) {
	err = q.transact(ctx, "sweep tasks", func(tx *sql.Tx) (err error) {
		s.Due, err = affected(tx.ExecContext(ctx, "UPDATE tasks SET state = 'waiting', updated_at = "+now+
			" WHERE state = 'scheduled' AND run_at <= "+now+" ORDER BY run_at LIMIT ?", sweepSize))
		return err
	})
	if err != nil {
		return s, err
	}
	err = q.transact(ctx, "sweep leases", func(tx *sql.Tx) (err error) {
		s.TookOver, err = affected(tx.ExecContext(ctx, "UPDATE tasks SET state = IF(attempts >= max_attempts, 'dead', 'waiting'),"+
			" last_error = CONCAT('the lease of ', lease_owner, ' ran out: it crashed, was stopped, or took too long'),"+
			" lease_owner = NULL, lease_until = NULL, updated_at = "+now+
			" WHERE state = 'running' AND lease_until <= "+now+" ORDER BY lease_until LIMIT ?", sweepSize))
		return err
	})
	s.More = s.Due == sweepSize || s.TookOver == sweepSize
	return s, err
}

// FanningOut implements [Queue].
func (q *MySQLQueue) FanningOut(ctx context.Context, users []member.ID) (map[member.ID]bool, error) {
	found := make(map[member.ID]bool)
	if len(users) == 0 {
		return found, nil
	}
	args := []any{FanOut}
	for _, u := range users {
		args = append(args, uint64(u))
	}
	rows, err := q.db.QueryContext(ctx, "SELECT DISTINCT subject FROM tasks FORCE INDEX (chains) WHERE type = ? AND subject IN ("+
		marks(len(users))+") AND state IN ('waiting', 'running')", args...)
	if err != nil {
		return nil, contacts.Translate(ctx, "look for fan-outs", err)
	}
	defer rows.Close()
	for rows.Next() {
		var u uint64
		if err := rows.Scan(&u); err != nil {
			return nil, contacts.Translate(ctx, "look for fan-outs", err)
		}
		found[member.ID(u)] = true
	}
	return found, contacts.Translate(ctx, "look for fan-outs", rows.Err())
}

// Count implements [Queue].
func (q *MySQLQueue) Count(ctx context.Context) (c Counts, err error) {
	err = q.db.QueryRowContext(ctx, "SELECT COALESCE(SUM(state = 'waiting'), 0), COALESCE(SUM(state = 'scheduled'), 0),"+
		" COALESCE(SUM(state = 'running'), 0), COALESCE(SUM(state = 'dead'), 0) FROM tasks").
		Scan(&c.Waiting, &c.Scheduled, &c.Running, &c.Dead)
	return c, contacts.Translate(ctx, "count tasks", err)
}
