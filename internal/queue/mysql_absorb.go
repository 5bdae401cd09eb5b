package queue

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// absorbSize bounds what one transaction absorbs. What is left when the next one
// fails starts by itself, later.
const absorbSize = 5000

// Absorb deletes the tasks that are the same work as a held one, by the dedupe keys of their
// kinds, and have not been started, and returns how many they were. The
// caller does their work, and reads what is true only afterwards. A task
// whose lease is lost absorbs nothing: if its worker fails now, no task would
// do that work. One that absorbed does not expire any more.
//
// A task is passed over while it is locked: by the transaction of a change that it
// absorbed, which cannot be seen yet.
func (q *MySQLQueue) Absorb(ctx context.Context, held []Task) (absorbed int, err error) {
	if len(held) == 0 {
		return 0, nil
	}
	for {
		var n int
		err := mysql.Transact(ctx, q.db, "absorb tasks", func(tx *sql.Tx) (err error) {
			n, err = absorb(ctx, tx, held)
			return err
		})
		absorbed += n
		if err != nil || n < absorbSize {
			return absorbed, err
		}
	}
}

func absorb(ctx context.Context, tx *sql.Tx, held []Task) (absorbed int, err error) {
	ours, err := lockHeld(ctx, tx, held)
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	ids, err := selectUnstarted(ctx, tx, ours)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	// They stand for others now, and those may never expire.
	own := make([]any, len(ours))
	for i, t := range ours {
		own[i] = t.ID
	}
	if _, err := tx.ExecContext(ctx, updateTasks+"expires_at = NULL WHERE id IN ("+mysql.Marks(len(own))+")", own...); err != nil {
		return 0, err
	}
	return mysql.Affected(tx.ExecContext(ctx, deleteIdle+"("+mysql.Marks(len(ids))+")", mysql.Args(ids)...))
}

// lockHeld returns the tasks whose lease still holds, and keeps it so until the
// end of the transaction.
func lockHeld(ctx context.Context, tx *sql.Tx, held []Task) ([]Task, error) {
	byID := make(map[uint64]Task, len(held))
	args := make([]any, 0, 2*len(held))
	for _, t := range held {
		byID[t.ID] = t
		args = append(args, t.ID, t.Lease)
	}
	ids, err := mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT id FROM tasks FORCE INDEX (PRIMARY) WHERE "+
		alternatives("id = ? AND lease_owner = ?", len(held))+" FOR UPDATE", args...)
	ours := make([]Task, len(ids))
	for i, id := range ids {
		ours[i] = byID[id]
	}
	return ours, err
}

// selectUnstarted returns the tasks that are the same work as ours and have not been
// started. It locks those of the same types and subjects.
func selectUnstarted(ctx context.Context, tx *sql.Tx, ours []Task) ([]uint64, error) {
	args := make([]any, 0, 2*len(ours))
	for _, t := range ours {
		args = append(args, t.Kind, t.Key)
	}
	var ids []uint64
	_, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (r Task, err error) {
		var payload []byte
		if err := rows.Scan(&r.ID, &r.Kind, &r.Key, &payload); err != nil {
			return r, err
		}
		if slices.ContainsFunc(ours, func(t Task) bool { return t.StandsFor(r.Kind, r.Key, payload) }) {
			ids = append(ids, r.ID)
		}
		return r, nil
	}, "SELECT id, type, subject, "+boundedArgs+" FROM tasks FORCE INDEX (chains) WHERE ("+alternatives("type = ? AND subject = ?", len(ours))+
		") AND state IN ('waiting', 'scheduled') LIMIT ? FOR UPDATE SKIP LOCKED", append(args, absorbSize)...)
	return ids, err
}

// alternatives joins n times the same condition by OR.
func alternatives(condition string, n int) string {
	return strings.TrimSuffix(strings.Repeat(condition+" OR ", n), " OR ")
}
