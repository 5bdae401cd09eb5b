package tasks

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/contacts"
)

// enqueueSize bounds the tasks in one INSERT.
const enqueueSize = 1000

// Enqueue implements [Queue].
func (q *MySQLQueue) Enqueue(ctx context.Context, batch []New) (ids []uint64, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	err = q.transact(ctx, fmt.Sprintf("enqueue %d tasks", len(batch)), func(tx *sql.Tx) (err error) {
		ids, err = q.EnqueueTx(ctx, tx, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.options.Bell.Ring()
	return ids, nil
}

// EnqueueTx adds a batch in the caller's transaction, so that the tasks exist
// if and only if the caller's change does. Workers see them at the latest when
// they poll; [Bell.Ring] after the commit wakes those of this process. A
// deadlock ends the transaction as any statement's would. It must be READ
// COMMITTED: a stricter one locks the gaps in which the tasks of others belong.
func (q *MySQLQueue) EnqueueTx(ctx context.Context, tx *sql.Tx, batch []New) (ids []uint64, err error) {
	byKey := make(map[string]New, len(batch))
	for _, n := range batch {
		if n.DedupeKey == "" {
			return nil, fmt.Errorf("%w: %s task for %s has no dedupe key", ErrInvalid, n.Type, n.Subject)
		}
		byKey[n.DedupeKey] = n
	}
	idOf := make(map[string]uint64, len(byKey))
	// In one order everywhere, so that two batches do not lock each other out.
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(byKey)), enqueueSize) {
		if err := enqueueKeys(ctx, tx, keys, byKey, idOf); err != nil {
			return nil, err
		}
	}
	ids = make([]uint64, len(batch))
	for i, n := range batch {
		ids[i] = idOf[n.DedupeKey]
	}
	return ids, nil
}

// enqueueTries bounds how often a batch meets tasks that others commit while it
// is written.
const enqueueTries = 10

// enqueueKeys gives each key the id of the task that waits under it, or inserts
// one. It looks before it inserts, and looks again when another transaction
// was quicker with one of the keys.
//
// INSERT ... ON DUPLICATE KEY UPDATE would do it in one statement, but locks the
// gap below every key that it meets, in which the tasks of others belong; and on
// MariaDB, when it has several rows, it can go on from the id of the row that it
// met, into ids that were promised to another connection, whose INSERT fails.
func enqueueKeys(ctx context.Context, tx *sql.Tx, keys []string, byKey map[string]New, idOf map[string]uint64) error {
	for try := 1; ; try++ {
		if err := lockWaiting(ctx, tx, keys, idOf); err != nil {
			return err
		}
		absent := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return idOf[key] != 0 })
		if len(absent) == 0 {
			return nil
		}
		err := insertTasks(ctx, tx, absent, byKey)
		switch {
		case err == nil:
			return lockWaiting(ctx, tx, absent, idOf)
		case !contacts.IsDuplicate(err) || try == enqueueTries:
			return err
		}
	}
}

// insertTasks inserts the tasks of the given keys, all or none of them.
func insertTasks(ctx context.Context, tx *sql.Tx, keys []string, byKey map[string]New) error {
	args := make([]any, 0, 5*len(keys))
	for _, key := range keys {
		n := byKey[key]
		raw, err := json.Marshal(n.Args)
		if err != nil {
			return fmt.Errorf("arguments of %s task for %s: %w", n.Type, n.Subject, err)
		}
		args = append(args, n.Queue, n.Type, uint64(n.Subject), string(raw), key)
	}
	values := strings.TrimSuffix(strings.Repeat("(?,?,?,?,?),", len(keys)), ",")
	_, err := tx.ExecContext(ctx, "INSERT INTO tasks (queue, type, subject, args, dedupe_key) VALUES "+values, args...)
	return err
}

// lockWaiting finds the tasks that wait under the given keys, and locks them
// until the commit: a task that absorbs a change must not start before that
// change can be seen. FOR UPDATE reads what is, not what this transaction's
// snapshot shows: such a task may be younger than that.
func lockWaiting(ctx context.Context, tx *sql.Tx, keys []string, idOf map[string]uint64) error {
	rows, err := tx.QueryContext(ctx, "SELECT dedupe_key, id FROM tasks WHERE dedupe_key IN ("+marks(len(keys))+") FOR UPDATE", anys(keys)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var key string
		var id uint64
		if err := rows.Scan(&key, &id); err != nil {
			return err
		}
		idOf[key] = id
	}
	return rows.Err()
}

// transactTries bounds how often a transaction that lost a deadlock is repeated.
const transactTries = 8

// transact runs do in a transaction of its own, again when the server gave it up
// for another one. READ COMMITTED locks the rows that are changed and no gaps
// between them.
func (q *MySQLQueue) transact(ctx context.Context, what string, do func(*sql.Tx) error) error {
	for try := 1; ; try++ {
		err := q.transactOnce(ctx, do)
		if err == nil {
			return nil
		}
		if try == transactTries || !contacts.IsRetryable(err) {
			return contacts.Translate(ctx, what, err)
		}
		if err := sleep(ctx, jitter(5*time.Millisecond<<try)); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
}

func (q *MySQLQueue) transactOnce(ctx context.Context, do func(*sql.Tx) error) error {
	tx, err := q.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if err := do(tx); err != nil {
		if undo := tx.Rollback(); undo != nil && !errors.Is(undo, sql.ErrTxDone) {
			return errors.Join(err, undo)
		}
		return err
	}
	return tx.Commit()
}

// sleep waits for d or until ctx ends, whose cause it returns then.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func marks(n int) string { return strings.TrimSuffix(strings.Repeat("?,", n), ",") }

func anys[T any](list []T) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

func affected(res sql.Result, err error) (int, error) {
	if err != nil {
		return 0, err
	}
	n, err := res.RowsAffected()
	return int(n), err
}
