package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// formerQueue is the form of the queue before decision 56, for the comparison with it: one table
// with all its indexes, in which a claim changes each row and its end deletes it. It has the statements
// and transactions of then, and the cursor of claims; the pool, the handlers and the sizes of batches are those of
// now. Left out is what none of these runs does: tasks that absorb others, are scheduled, expire or are kept, and rows
// that the server refuses. A task that failed waits again without a pause.
type formerQueue struct {
	*queue.Queue // what is not below
	db           *sql.DB
	notifier     *notify.Notifier

	mu          sync.Mutex
	from        uint64 // the last task that was claimed
	again       time.Time
	cheap, full bool
}

const formerTable = `
CREATE TABLE IF NOT EXISTS former_tasks (
  id BIGINT UNSIGNED NOT NULL AUTO_INCREMENT, queue VARCHAR(32) NOT NULL DEFAULT 'default', type VARCHAR(32) NOT NULL,
  subject BIGINT UNSIGNED NOT NULL, args JSON NOT NULL DEFAULT (JSON_OBJECT()), priority SMALLINT NOT NULL DEFAULT 0,
  state ENUM('waiting','scheduled','running','dead','done') NOT NULL DEFAULT 'waiting',
  attempts SMALLINT UNSIGNED NOT NULL DEFAULT 0, max_attempts SMALLINT UNSIGNED NOT NULL DEFAULT 25,
  expires_at BIGINT UNSIGNED NULL, due_at BIGINT UNSIGNED NULL DEFAULT (expires_at),
  dedupe_key VARCHAR(128) CHARACTER SET ascii COLLATE ascii_bin NULL, lease_owner VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NULL,
  last_error VARCHAR(2000) NULL, created_at BIGINT UNSIGNED NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  updated_at BIGINT UNSIGNED NOT NULL DEFAULT (CAST(UNIX_TIMESTAMP(NOW(3)) * 1000 AS UNSIGNED)),
  PRIMARY KEY (id), UNIQUE KEY dedupe (dedupe_key), KEY claim (queue, state, priority, id, type),
  KEY timers (state, due_at), KEY chains (type, subject)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`

// newFormer returns activityd over the former table, which it makes.
func newFormer(ctx context.Context, b *backend) (*activityd, error) {
	a := newActivityd(b)
	a.former = &formerQueue{Queue: a.queue, db: b.db, notifier: a.notifier}
	a.insertTask = strings.Replace(insertTask, "tasks", "former_tasks", 1)
	a.leftTasks = "SELECT COUNT(*) FROM former_tasks"
	_, err := b.db.ExecContext(ctx, formerTable)
	return a, err
}

// Enqueue inserts a batch whose dedupe keys are new, and returns no ids, though it reads them.
func (q *formerQueue) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	batch, err := tasks.Kinds().Validate(batch)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(batch, func(a, b queue.New) int { return strings.Compare(a.DedupeKey, b.DedupeKey) })
	keys := make([]any, len(batch))
	var args []any
	for i, n := range batch {
		keys[i] = n.DedupeKey
		args = append(args, n.Queue, n.Kind, n.Key, string(n.Payload), n.Priority, "waiting", nil, nil, n.DedupeKey)
	}
	err = mysql.Transact(ctx, q.db, "enqueue", func(tx *sql.Tx) error {
		held, err := mysql.Select(ctx, tx, mysql.ByName, "SELECT dedupe_key, id, queue, type, subject, IF(LENGTH(args) <= 32768, args, ''), state, attempts, priority,"+
			" COALESCE(GREATEST(due_at, 1), 0), COALESCE(GREATEST(expires_at, 1), 0), "+mysql.Now+
			" FROM former_tasks FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+") FOR UPDATE", keys...)
		if err == nil && len(held) > 0 {
			err = errors.New("the copy of the former queue absorbs no tasks")
		}
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO former_tasks (queue, type, subject, args, priority, state, expires_at, due_at, dedupe_key) VALUES "+
			strings.TrimSuffix(strings.Repeat("(?,?,?,?,?,?,"+mysql.Now+"+?,"+mysql.Now+"+?,?),", len(batch)), ","), args...); err != nil || len(batch) == 1 {
			return err
		}
		_, err = mysql.Select(ctx, tx, mysql.ByName, "SELECT dedupe_key, id, type FROM former_tasks FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+")", keys...)
		return err
	})
	q.notifier.Notify(tasks.QueueDefault)
	return nil, err
}

// Claim implements [queue.Store].
func (q *formerQueue) Claim(ctx context.Context, name string, n int, lease time.Duration) (claimed []queue.Task, err error) {
	tries := 0
	err = mysql.Transact(ctx, q.db, "claim", func(tx *sql.Tx) (err error) {
		from, front := q.begin(tries == 0)
		for tries++; ; front = true {
			began := time.Now()
			if claimed, err = selectFormer(ctx, tx, name, n, from, front); err != nil {
				return err
			}
			if !q.found(claimed, n, front, time.Since(began)) {
				break
			}
		}
		if len(claimed) == 0 {
			return nil
		}
		random := rand.Text()[:16]
		args := []any{random, "bench/" + random, lease.Milliseconds()}
		for i := range claimed {
			claimed[i].Lease = "bench/" + random
			args = append(args, claimed[i].ID)
		}
		_, err = tx.ExecContext(ctx, updateFormer+"state = 'running', attempts = LEAST(attempts, 65534) + 1,"+
			" dedupe_key = IF(dedupe_key IS NOT NULL, CONCAT('~', id, '/', ?), NULL), lease_owner = ?, due_at = "+mysql.Now+" + ?, updated_at = "+mysql.Now+
			" WHERE id IN ("+mysql.Marks(len(claimed))+")", args...)
		return err
	})
	return claimed, err
}

func selectFormer(ctx context.Context, tx *sql.Tx, name string, n int, from uint64, front bool) ([]queue.Task, error) {
	query, args := "SELECT id, type, subject, IF(LENGTH(args) <= 32768, args, ''), priority, LEAST(attempts, 65534) + 1, max_attempts, expires_at IS NOT NULL,"+
		" lease_owner IS NOT NULL, created_at, updated_at, "+mysql.Now+
		" FROM former_tasks FORCE INDEX (claim) WHERE queue = ? AND state = 'waiting' AND (due_at IS NULL OR due_at > "+mysql.Now+")", []any{name}
	if !front {
		query, args = query+" AND priority = ? AND id >= ?", append(args, 0, from)
	}
	return mysql.Select(ctx, tx, func(rows *sql.Rows) (queue.Task, error) {
		t := queue.Task{Queue: name}
		var text []byte
		var lost bool
		var created, updated, at int64
		err := rows.Scan(&t.ID, &t.Kind, &t.Key, &text, &t.Priority, &t.Attempts, &t.MaxAttempts, &t.Expires, &lost, &created, &updated, &at)
		t.Payload, t.Created, t.Claimed = text, time.UnixMilli(created), time.UnixMilli(at)
		t.Waited = max(0, t.Claimed.Sub(time.UnixMilli(updated)))
		return t, err
	}, query+" ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED", append(args, n)...)
}

// begin returns where a claim begins, and whether at the front.
func (q *formerQueue) begin(first bool) (from uint64, front bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.from, !first || q.from == 0 || !time.Now().Before(q.again) || q.cheap && !q.full
}

// found notes what a claim found, and reports whether to look at the front, too.
func (q *formerQueue) found(list []queue.Task, n int, front bool, took time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.full = len(list) == n; len(list) > 0 {
		q.from = list[len(list)-1].ID
	}
	if front {
		q.again, q.cheap = time.Now().Add(min(9*took, 5*time.Second)), took <= 20*time.Millisecond
	}
	return !front && !q.full && q.cheap
}

// Extend implements [queue.Store]: no claim of these runs lasts so long.
func (*formerQueue) Extend(context.Context, []queue.Task, time.Duration) (lost int, err error) {
	return 0, nil
}

// Finish implements [queue.Store]. A task that failed, as a handler may in a conflict, waits again at once.
func (q *formerQueue) Finish(ctx context.Context, results []queue.Result) (lost int, err error) {
	var done, failed []queue.Task
	for _, r := range results {
		if r.Err == nil {
			done = append(done, r.Task)
		} else {
			failed = append(failed, r.Task)
		}
	}
	err = mysql.Transact(ctx, q.db, "finish", func(tx *sql.Tx) error {
		lost = len(results)
		for statement, list := range map[string][]queue.Task{"DELETE former_tasks FROM former_tasks FORCE INDEX (PRIMARY)": done, updateFormer + backFormer: failed} {
			for token, ids := range idsByLease(list) {
				n, err := mysql.Affected(tx.ExecContext(ctx, statement+" WHERE lease_owner = ? AND id IN ("+mysql.Marks(len(ids))+")", append([]any{token}, ids...)...))
				if err != nil {
					return err
				}
				lost -= n
			}
		}
		return nil
	})
	if err != nil || len(failed) > 0 {
		q.forget()
	}
	return lost, err
}

const (
	updateFormer = "UPDATE former_tasks FORCE INDEX (PRIMARY) SET "
	backFormer   = "state = 'waiting', due_at = NULL, lease_owner = NULL, updated_at = " + mysql.Now
)

// Sweep implements [queue.Store].
func (q *formerQueue) Sweep(ctx context.Context) (queue.Swept, error) {
	n, err := mysql.Affected(q.db.ExecContext(ctx, "UPDATE former_tasks FORCE INDEX (timers) SET "+backFormer+" WHERE state = 'running' AND due_at <= "+mysql.Now))
	if n > 0 {
		q.forget()
	}
	return queue.Swept{TookOver: n}, err
}

// forget makes the next claim look at the front.
func (q *formerQueue) forget() {
	q.mu.Lock()
	q.from = 0
	q.mu.Unlock()
	q.notifier.Notify(tasks.QueueDefault)
}

func idsByLease(held []queue.Task) map[string][]any {
	ids := make(map[string][]any)
	for _, t := range held {
		ids[t.Lease] = append(ids[t.Lease], t.ID)
	}
	return ids
}

// taskQueue is a queue in one of its two forms.
type taskQueue interface {
	queue.Store
	tasks.Enqueuer
}

// form returns the queue that is measured.
func (a *activityd) form() taskQueue {
	if a.former != nil {
		return a.former
	}
	return a.queue
}
