package queue

import (
	"context"
	"database/sql"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/mysql"
)

// The statements about ordering keys lock the rows of held_keys in the order of the primary key, and after rows of tasks.
const (
	holdKeys  = "INSERT IGNORE INTO held_keys (queue, subject, task_id) VALUES "
	readHolds = "SELECT subject, task_id FROM held_keys FORCE INDEX (PRIMARY) WHERE queue = ? AND subject IN ("
	nameNext  = "INSERT INTO held_keys (queue, subject, task_id) VALUES "
	// backIDs passes over locked tasks, as while a change is deduped into them. A sweep brings them back.
	backIDs  = "SELECT id FROM tasks FORCE INDEX (PRIMARY) WHERE state = 'behind' AND id IN "
	freeKeys = "DELETE held_keys FROM held_keys FORCE INDEX (PRIMARY) WHERE task_id IS NOT NULL AND queue = ? AND subject IN (" // see deleteTasks
)

// idsOfKeys reads ids by key.
func idsOfKeys(ctx context.Context, tx *sql.Tx, query string, args ...any) (map[uint64]uint64, error) {
	found := make(map[uint64]uint64)
	_, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (key uint64, err error) {
		var id uint64
		err = rows.Scan(&key, &id)
		found[key] = id
		return key, err
	}, query, args...)
	return found, err
}

// hold returns the ordered tasks that may run, and puts the rest behind them.
//
// A key that no task holds is given to the first task that waits, whichever claim has that. Then the rows of the keys stay locked, so
// that no key passes to its next task before all tasks that are put behind it here can be seen.
func (c *claiming) hold(ctx context.Context, ordered []candidate) (first []candidate, err error) {
	if len(ordered) == 0 {
		return nil, nil
	}
	byKey := make(map[uint64]candidate) // any task of the key
	for _, t := range ordered {
		byKey[t.Key] = t
	}
	query, args := c.firstOfKeys()
	firstOf, err := idsOfKeys(ctx, c.tx, query+idList(slices.Collect(maps.Values(byKey))), args...)
	if err != nil {
		return nil, err
	}
	keys := slices.Sorted(maps.Keys(firstOf))
	var values []any
	for _, key := range keys {
		values = append(values, c.queue, key, firstOf[key])
	}
	if _, err = c.tx.ExecContext(ctx, holdKeys+marks("(?,?,?)", len(keys)), values...); err != nil {
		return nil, err
	}
	holders, err := idsOfKeys(ctx, c.tx, readHolds+mysql.Marks(len(keys))+") LOCK IN SHARE MODE", append([]any{c.queue}, mysql.Args(keys)...)...)
	if err != nil {
		return nil, err
	}
	var behind []candidate
	for _, t := range ordered {
		switch holder, held := holders[t.Key]; {
		case holder == t.ID:
			first = append(first, t)
		case held:
			behind = append(behind, t)
		}
	}
	moved, err := change(ctx, c.tx, behind, putBehind)
	c.aside += len(moved)
	return first, err
}

// advance passes the ordering keys that tasks of a queue hold to the next task of each, which then waits, or frees the keys that have
// no further task. It locks the rows of the keys before it looks for the next: the tasks that claims have put behind are committed
// then. named: some key has a next task.
func (q *Queue) advance(ctx context.Context, tx *sql.Tx, queue string, ended []Task) (named bool, err error) {
	keys, ids := make(map[uint64]bool), make(map[uint64]bool)
	for _, t := range ended {
		if q.options.Kinds.isOrdered(t) {
			keys[t.Key], ids[t.ID] = true, true
		}
	}
	if len(keys) == 0 {
		return false, nil
	}
	sorted := slices.Sorted(maps.Keys(keys))
	held, err := idsOfKeys(ctx, tx, readHolds+mysql.Marks(len(sorted))+") FOR UPDATE", append([]any{queue}, mysql.Args(sorted)...)...)
	sorted = slices.DeleteFunc(sorted, func(key uint64) bool { return !ids[held[key]] })
	if err != nil || len(sorted) == 0 {
		return false, err
	}
	return q.passOn(ctx, tx, queue, sorted)
}

// passOn is advance for keys whose rows are locked.
func (q *Queue) passOn(ctx context.Context, tx *sql.Tx, queue string, keys []uint64) (named bool, err error) {
	query, args := q.nextOfKeys()
	next, err := idsOfKeys(ctx, tx, query+mysql.Marks(len(keys))+")", slices.Concat(args, []any{queue}, mysql.Args(keys))...)
	if err != nil {
		return false, err
	}
	var ids []rowID
	var values, free []any
	for _, key := range keys {
		if id := next[key]; id != 0 {
			ids, values = append(ids, rowID(id)), append(values, queue, key, id)
		} else {
			free = append(free, key)
		}
	}
	if len(free) > 0 {
		_, err = tx.ExecContext(ctx, freeKeys+mysql.Marks(len(free))+")", append([]any{queue}, free...)...)
	}
	if err != nil || len(ids) == 0 {
		return false, err
	}
	_, err = tx.ExecContext(ctx, nameNext+marks("(?,?,?)", len(ids))+" ON DUPLICATE KEY UPDATE task_id = VALUES(task_id)", values...)
	if err == nil {
		ids, err = mysql.Select(ctx, tx, mysql.Column[rowID], backIDs+idList(ids)+" FOR UPDATE SKIP LOCKED")
	}
	if err == nil {
		_, err = change(ctx, tx, ids, letWait)
	}
	return true, err
}

// firstOfKeys reads the first ordered task of each key that waits. It may be locked by another claim, which has it then.
func (q *Queue) firstOfKeys() (query string, args []any) {
	ordered, args := q.ordered("f")
	return "SELECT c.subject, COALESCE((SELECT f.id FROM tasks f FORCE INDEX (subjects) WHERE f.subject = c.subject AND f.state = 'waiting' AND f.queue = c.queue" +
		" AND f.run_at <= " + now + ordered + " ORDER BY f.priority, f.id LIMIT 1), c.id) FROM tasks c FORCE INDEX (PRIMARY) WHERE c.id IN ", args
}

// nextOfKeys reads the first task of each key that is behind it, or waits: a claim may not have come to it yet; 0: there is none. A task
// behind a key may be for later, if the clock was set back: then the next claim schedules it.
func (q *Queue) nextOfKeys() (query string, args []any) {
	const place = "18446744073709551616" // above all ids: the order of numbers is that of priorities, and then of ids
	first := func(state, condition string) string {
		return "COALESCE((SELECT (b.priority + 32768) * " + place + " + b.id FROM tasks b FORCE INDEX (subjects) WHERE b.subject = h.subject AND b.state = '" + state +
			"' AND b.queue = h.queue" + condition + " ORDER BY b.priority, b.id LIMIT 1), 65536 * " + place + ")"
	}
	ordered, args := q.ordered("b")
	return "SELECT h.subject, CAST(MOD(LEAST(" + first("behind", "") + ", " + first("waiting", " AND b.run_at <= "+now+ordered) + "), " + place + ") AS UNSIGNED)" +
		" FROM held_keys h FORCE INDEX (PRIMARY) WHERE h.queue = ? AND h.subject IN (", args
}

// ordered is a condition that excludes the tasks of a table without an ordering key. It compares names as [Kinds] do.
func (q *Queue) ordered(table string) (condition string, args []any) {
	for _, k := range q.options.Kinds {
		if !k.Ordered {
			args = append(args, k.Name)
		}
	}
	if len(args) == 0 {
		return "", nil
	}
	return " AND CAST(" + table + ".type AS BINARY) NOT IN (" + mysql.Marks(len(args)) + ")", args
}
