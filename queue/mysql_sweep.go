package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// sweepSize bounds what one statement of a sweep changes, and sweepLeases the leases that it ends.
const (
	sweepSize   = 1000
	sweepLeases = 100
)

// chore is something that time brings.
type chore struct {
	find  string // selects what is due, by an index of times: it looks at no row whose time has not come
	do    func(context.Context) (n int, more bool, err error)
	count *int
}

// chores are all of them, counted in s. Idempotency keys that were made at keysBefore or earlier
// are forgotten, however young they are.
func (q *Queue) chores(s *Swept, keysBefore uint64) []chore {
	others := new(int)
	oldKey := fmt.Sprintf("created_at <= GREATEST(%s, %d)", keyEnd, keysBefore)
	keys := "SELECT key_hash FROM task_keys FORCE INDEX (created) WHERE " + oldKey + " ORDER BY created_at"
	wake := func(ctx context.Context) (n int, more bool, err error) {
		n, err = q.changeFree(ctx, "wake scheduled tasks", asTheyWere.unpark, dueTasks+" LIMIT ?", sweepSize)
		return n, n == sweepSize, err
	}
	return []chore{
		{"SELECT token FROM task_leases FORCE INDEX (ends) WHERE " + leaseOver, q.endLeases, &s.TookOver},
		{dueTasks, wake, &s.Due},
		{keys, func(ctx context.Context) (n int, more bool, err error) { return q.forgetKeys(ctx, keys, oldKey) }, others},
		{"SELECT queue FROM paused_queues", q.dropExpired, others},
	}
}

// forgetKeys deletes idempotency keys that a query finds, but for those that are locked, and on which a condition holds still.
func (q *Queue) forgetKeys(ctx context.Context, find, condition string) (n int, more bool, err error) {
	err = mysql.Transact(ctx, q.db, "forget idempotency keys", func(tx *sql.Tx) error {
		n = 0
		keys, err := mysql.Keys(ctx, tx, find+" LIMIT ? FOR UPDATE SKIP LOCKED", sweepSize)
		if err == nil && len(keys) > 0 {
			n, err = mysql.Affected(tx.ExecContext(ctx, "DELETE task_keys FROM task_keys FORCE INDEX (PRIMARY) WHERE "+condition+" AND key_hash IN ("+mysql.Marks(len(keys))+")", keys...))
		}
		return err
	})
	return n, n == sweepSize, err
}

// dueTasks finds parked tasks whose time has come, or that make no sense without one.
const dueTasks = "SELECT id FROM parked_tasks FORCE INDEX (timers) WHERE state = 'scheduled' AND (due_at <= " + now + " OR due_at IS NULL) ORDER BY due_at"

// Sweep does what time brings: it makes scheduled tasks waiting when they are
// due, and frees tasks whose lease ran out or buries them when their attempts
// are used up. A lease that is to last longer than any can is over
// at once. A task that expired is dropped by the claim that meets it; of a paused queue, by a
// sweep, each of which looks at the next 1000 tasks.
//
// When there is nothing to do, it costs one query. A chore that fails keeps no other from
// being done.
func (q *Queue) Sweep(ctx context.Context) (s Swept, err error) {
	var failed []error
	keysBefore, err := q.keyLimit.look(ctx, q.db)
	if err != nil {
		failed = append(failed, mysql.Translate(ctx, "look how many idempotency keys there are", err))
	}
	all := q.chores(&s, keysBefore)
	due, looks, into := make([]bool, len(all)), make([]string, len(all)), make([]any, len(all))
	for i, c := range all {
		looks[i], into[i] = "EXISTS ("+c.find+")", &due[i]
	}
	if err := q.db.QueryRowContext(ctx, "SELECT "+strings.Join(looks, ", ")).Scan(into...); err != nil {
		return s, errors.Join(append(failed, mysql.Translate(ctx, "look what time brings to tasks", err))...)
	}
	for i, c := range all {
		if !due[i] {
			continue
		}
		n, more, err := c.do(ctx)
		failed = append(failed, err)
		*c.count += n
		s.More = s.More || more
	}
	if s.Due+s.TookOver > 0 {
		q.cursors.forget()
	}
	return s, errors.Join(failed...)
}

// dropExpired drops expired tasks of paused queues, among those that come next by their ids.
func (q *Queue) dropExpired(ctx context.Context) (dropped int, more bool, err error) {
	var over []uint64
	seen, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (id uint64, err error) {
		var expired bool
		if err = rows.Scan(&id, &expired); expired {
			over = append(over, id)
		}
		return id, err
	}, "SELECT id, COALESCE(expires_at <= "+now+" AND queue IN (SELECT queue FROM paused_queues), FALSE) FROM tasks FORCE INDEX (PRIMARY) WHERE id > ? ORDER BY id LIMIT ?",
		q.walked.Load(), sweepSize)
	if err != nil {
		return 0, false, mysql.Translate(ctx, "look for expired tasks of paused queues", err)
	}
	if len(over) > 0 { // one that is locked may absorb another just now, and live longer
		dropped, err = q.changeFree(ctx, "drop expired tasks of paused queues", byStatementOf(deleteTasks),
			"SELECT id FROM tasks FORCE INDEX (PRIMARY) WHERE expires_at <= "+now+" AND id IN ("+mysql.Marks(len(over))+")", mysql.Args(over)...)
	}
	var last uint64
	if len(seen) == sweepSize {
		last = seen[sweepSize-1]
	}
	q.walked.Store(last)
	q.metrics.dropped.Add(float64(dropped))
	return dropped, false, err
}
