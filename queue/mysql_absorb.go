package queue

import (
	"context"
	"database/sql"
	"maps"
	"slices"

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
func (q *Queue) Absorb(ctx context.Context, held []Task) (absorbed int, err error) {
	if len(held) == 0 {
		return 0, nil
	}
	for {
		var n int
		err := mysql.Transact(ctx, q.db, "absorb tasks", func(tx *sql.Tx) (err error) {
			n, err = q.absorb(ctx, tx, held)
			return err
		})
		absorbed += n
		if err != nil || n < absorbSize {
			return absorbed, err
		}
	}
}

func (q *Queue) absorb(ctx context.Context, tx *sql.Tx, held []Task) (n int, err error) {
	leases, err := lockLeases(ctx, tx, held, slices.ContainsFunc(held, func(t Task) bool { return t.Expires }), toChange)
	ours := slices.DeleteFunc(slices.Clone(held), func(t Task) bool { return !leases[t.Lease].holds(t) })
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	for _, from := range []struct {
		table, condition string
		remove           change
	}{
		{"tasks", "", byStatementOf(deleteTasks)},
		{"parked_tasks", "state = 'scheduled' AND ", byStatementOf(deleteParked)},
	} {
		ids, err := selectUnstarted(ctx, tx, q.options.Kinds, ours, from.table, from.condition)
		if err != nil {
			return 0, err
		}
		if len(ids) == 0 {
			continue
		}
		some, err := from.remove(ctx, tx, ids)
		if err != nil {
			return 0, err
		}
		n += some
	}
	if n > 0 {
		err = makeImmortal(ctx, tx, leases, ours)
	}
	return n, err
}

// makeImmortal lets tasks never expire that stand for others now: those may never expire. It
// writes the tasks of a lease again, if some of them would.
func makeImmortal(ctx context.Context, tx *sql.Tx, leases map[string]*lease, ours []Task) error {
	for token, l := range leases {
		mortal := slices.DeleteFunc(slices.Clone(ours), func(t Task) bool { return t.Lease != token || !t.Expires })
		for _, t := range mortal {
			l.tasks[t.Index].expiresAt = 0
		}
		if len(mortal) > 0 {
			if _, err := tx.ExecContext(ctx, "UPDATE task_leases SET tasks = ? WHERE token = ?", encodeTasks(l.tasks, l.claimed), token); err != nil {
				return err
			}
		}
	}
	return nil
}

// selectUnstarted returns the tasks in a table that are the same work as ours and have not been
// started. It locks those of the same subjects.
func selectUnstarted(ctx context.Context, tx *sql.Tx, kinds Kinds, ours []Task, table, condition string) (ids []uint64, err error) {
	keys, names := make(map[uint64]bool), make(map[string]bool)
	for _, t := range ours {
		keys[t.Key], names[t.Kind] = true, true
	}
	args := append(mysql.Args(slices.Sorted(maps.Keys(names))), mysql.Args(slices.Sorted(maps.Keys(keys)))...)
	_, err = mysql.Select(ctx, tx, func(rows *sql.Rows) (r Task, err error) {
		var payload []byte
		if err := rows.Scan(&r.ID, &r.Kind, &r.Key, &payload); err != nil {
			return r, err
		}
		if slices.ContainsFunc(ours, func(t Task) bool { return kinds.standsFor(t, r.Kind, r.Key, payloadOf(payload)) }) {
			ids = append(ids, r.ID)
		}
		return r, nil
	}, "SELECT id, type, subject, "+boundedArgs+" FROM "+table+" FORCE INDEX (subjects) WHERE "+condition+"type IN ("+mysql.Marks(len(names))+
		") AND subject IN ("+mysql.Marks(len(keys))+") LIMIT ? FOR UPDATE SKIP LOCKED", append(args, absorbSize)...)
	return ids, err
}
