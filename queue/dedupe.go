package queue

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/mysql"
)

// Dedupe deletes tasks that have not started and are the same work as a held task, by the dedupe keys of their kinds, and returns how
// many they were. The caller does their work, and reads the facts only afterwards. A task whose lease is lost stands for no other: if
// its worker fails now, no task would do the work. A task that stands for another does not expire any more.
//
// Dedupe passes over locked tasks: a change that was deduped into them may not be visible yet.
func (q *Queue) Dedupe(ctx context.Context, held []Task) (deduped int, err error) {
	const most = 5000 // tasks that a transaction deletes
	for n := most; n == most && len(held) > 0; deduped += n {
		err := mysql.Transact(ctx, q.db, "dedupe tasks", func(tx *sql.Tx) (err error) {
			n, err = q.dedupe(ctx, tx, held, most)
			return err
		})
		if err != nil {
			return deduped, err
		}
	}
	return deduped, nil
}

// work is the work of a task: tasks of a kind with the same key and dedupe key are the same work.
type work struct {
	kind      string
	key       uint64
	dedupeKey string
}

func (q *Queue) dedupe(ctx context.Context, tx *sql.Tx, held []Task, most int) (n int, err error) {
	leases, err := lockLeased(ctx, tx, held)
	if err != nil {
		return 0, err
	}
	keys, kinds, works := make(map[uint64]bool), make(map[string]bool), make(map[work]bool)
	var mortal []Task
	for _, t := range held {
		dedupeKey, known := q.options.Kinds.workOf(t)
		if !known || leases[t.ID] != t.Lease {
			continue
		}
		keys[t.Key], kinds[t.Kind], works[work{t.Kind, t.Key, dedupeKey}] = true, true, true
		if t.Expires {
			mortal = append(mortal, t)
		}
	}
	if len(works) == 0 {
		return 0, nil
	}
	found, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (t Task, err error) {
		var payload []byte
		err = rows.Scan(&t.ID, &t.Kind, &t.Key, &payload)
		t.Payload = payloadOf(payload)
		return t, err
	}, "SELECT id, type, subject, "+boundedArgs+" FROM tasks FORCE INDEX (subjects) WHERE subject IN ("+mysql.Marks(len(keys))+") AND state IN ('waiting', 'behind', 'scheduled')"+
		" AND type IN ("+mysql.Marks(len(kinds))+") LIMIT ? FOR UPDATE SKIP LOCKED",
		slices.Concat(mysql.Args(slices.Collect(maps.Keys(keys))), mysql.Args(slices.Collect(maps.Keys(kinds))), []any{most})...)
	if err != nil {
		return 0, err
	}
	same := slices.DeleteFunc(found, func(t Task) bool {
		dedupeKey, known := q.options.Kinds.workOf(t)
		return !known || !works[work{t.Kind, t.Key, dedupeKey}]
	})
	if same, err = change(ctx, tx, same, deleteTasks); err != nil || len(same) == 0 {
		return 0, err
	}
	_, err = change(ctx, tx, mortal, update+"expires_at = NULL WHERE id IN ")
	return len(same), err
}
