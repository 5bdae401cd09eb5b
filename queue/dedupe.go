package queue

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/mysql"
)

// work is the work of a task: tasks of a kind with the same key and dedupe key are the same work.
type work struct {
	kind      string
	key       uint64
	dedupeKey string
}

// dedupeSize bounds the tasks that a transaction of [Queue.Dedupe] deletes.
const dedupeSize = 5000

// Dedupe deletes tasks that have not started and are the same work as a held task, by the dedupe keys of their kinds, and returns how
// many they were, 5000 at most. The caller does their work, and reads the facts only afterwards. A task whose lease is lost stands for
// no other: if its worker fails now, no task would do the work. A task that stands for another does not expire any more.
//
// Dedupe passes over locked tasks: a change that was deduped into them may not be visible yet.
func (q *Queue) Dedupe(ctx context.Context, held []Task) (deduped int, err error) {
	if len(held) == 0 {
		return 0, nil
	}
	err = mysql.Transact(ctx, q.db, "dedupe tasks", func(tx *sql.Tx) error {
		leases, err := lockLeased(ctx, tx, held)
		if err != nil {
			return err
		}
		ours := slices.DeleteFunc(slices.Clone(held), func(t Task) bool { return leases[t.ID] != t.Lease })
		works, err := q.same(ctx, tx, ours)
		if err == nil {
			works, err = change(ctx, tx, works, deleteTasks)
		}
		if deduped = len(works); deduped > 0 && err == nil {
			_, err = change(ctx, tx, ours, update+"expires_at = NULL WHERE expires_at IS NOT NULL AND id IN ")
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return deduped, nil
}

// same locks the tasks that have not started and are the same work as one of ours.
func (q *Queue) same(ctx context.Context, tx *sql.Tx, ours []Task) ([]Task, error) {
	keys, kinds, works := make(map[uint64]bool), make(map[string]bool), make(map[work]bool)
	for _, t := range ours {
		if dedupeKey, known := q.options.Kinds.workOf(t); known {
			keys[t.Key], kinds[t.Kind], works[work{t.Kind, t.Key, dedupeKey}] = true, true, true
		}
	}
	if len(works) == 0 {
		return nil, nil
	}
	found, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (t Task, err error) {
		var payload []byte
		err = rows.Scan(&t.ID, &t.Kind, &t.Key, &payload)
		t.Payload = payloadOf(payload)
		return t, err
	}, "SELECT id, type, subject, "+boundedArgs+" FROM tasks FORCE INDEX (subjects) WHERE subject IN ("+mysql.Marks(len(keys))+") AND state IN ('waiting', 'behind', 'scheduled')"+
		" AND type IN ("+mysql.Marks(len(kinds))+") LIMIT ? FOR UPDATE SKIP LOCKED",
		slices.Concat(mysql.Args(slices.Collect(maps.Keys(keys))), mysql.Args(slices.Collect(maps.Keys(kinds))), []any{dedupeSize})...)
	return slices.DeleteFunc(found, func(t Task) bool {
		dedupeKey, known := q.options.Kinds.workOf(t)
		return !known || !works[work{t.Kind, t.Key, dedupeKey}]
	}), err
}
