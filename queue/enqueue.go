package queue

import (
	"context"
	"database/sql"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

const (
	// enqueueSize and enqueueBytes bound the tasks of an INSERT and the bytes of their payloads: some servers take packets of at most
	// 1 MiB (max_allowed_packet).
	enqueueSize  = 1000
	enqueueBytes = 512 << 10
	// enqueueTries bounds how often a batch meets dedupe keys that were committed while it was written.
	enqueueTries = 10
)

// Enqueue adds a batch in a transaction of its own, whole or not at all. After the commit it returns an id for each task, in
// order; see [Queue.EnqueueTx] for tasks without a dedupe key. After an error that is no [ErrInvalid] the tasks may be there: the answer
// may have been lost.
//
// A task is not added if a task with its dedupe key has not started, and is the same work (see [Kind]): it gets the id of that
// task, which then runs as early, as urgently and lives as long as either would. Any other task loses the dedupe key to it.
func (q *Queue) Enqueue(ctx context.Context, batch []New) (ids []uint64, err error) {
	batch, err = q.options.Kinds.Validate(batch)
	if err != nil || len(batch) == 0 {
		return nil, err
	}
	work := fmt.Sprintf("enqueue %d tasks", len(batch))
	if len(batch) == 1 && batch[0].DedupeKey == "" { // its INSERT alone is a transaction
		statement, args := insertion(batch)
		ids = make([]uint64, 1)
		ids[0], err = mysql.Exec(ctx, q.db, work, statement, args...)
	} else {
		err = mysql.Transact(ctx, q.db, work, func(tx *sql.Tx) (err error) {
			ids, err = enqueue(ctx, tx, q.options.Kinds, batch, false)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	q.committed(batch)
	return ids, nil
}

// EnqueueTx is [Queue.Enqueue] in a transaction of the caller, in the same database: its tasks are there when the transaction
// commits, and never were if it is rolled back. It returns the ids of the tasks, in order; 0 for tasks without a dedupe key in a
// batch of several, whose ids are not read. A kind that the queue does not know is an [ErrInvalid]. (Enqueue takes any kind.)
//
// Workers find the tasks within a second ([PoolOptions].Poll), and at once if the caller calls [Queue.Notify] after the commit.
//
// The transaction may have any isolation level. A dedupe key is locked until the end of the transaction; from REPEATABLE READ on so
// is the gap around it, where transactions with neighbouring keys wait: prefer READ COMMITTED for tasks with a dedupe key.
//
// An error that wraps [ErrInvalid] leaves the transaction as it was. After any further error, roll it back: the server may have done
// so, as after a deadlock, when the whole transaction may be tried again.
func (q *Queue) EnqueueTx(ctx context.Context, tx *sql.Tx, batch ...New) (ids []uint64, err error) {
	for _, n := range batch {
		if _, known := q.options.Kinds.of(n.Kind); !known {
			return nil, fmt.Errorf("%w: no such kind: %q", ErrInvalid, n.Kind)
		}
	}
	batch, err = q.options.Kinds.Validate(batch)
	if err != nil {
		return nil, err
	}
	ids, err = enqueue(ctx, tx, q.options.Kinds, batch, false)
	if err != nil {
		return nil, mysql.Translate(ctx, fmt.Sprintf("enqueue %d tasks", len(batch)), err)
	}
	q.count(batch)
	return ids, nil
}

// committed wakes workers and counts, after the commit.
func (q *Queue) committed(batch []New) {
	q.count(batch)
	q.Notify(slices.Sorted(maps.Keys(groupBy(batch, func(n New) string { return n.Queue })))...)
}

func (q *Queue) count(batch []New) {
	for _, n := range batch {
		q.metrics.enqueued.WithLabelValues(q.metrics.label(n.Kind)).Inc()
	}
}

// enqueuing is a batch on its way into the table.
type enqueuing struct {
	tx    *sql.Tx
	kinds Kinds
	blind bool // no ids are wanted
	byKey map[string]New
	idOf  map[string]uint64 // by dedupe key; "": of the only task without a key
}

// enqueue writes a batch, and returns the ids of its tasks. If it is blind, as for follow-up tasks, no ids are read.
func enqueue(ctx context.Context, tx *sql.Tx, kinds Kinds, batch []New, blind bool) (ids []uint64, err error) {
	e := &enqueuing{tx: tx, kinds: kinds, byKey: make(map[string]New), idOf: make(map[string]uint64), blind: blind}
	var keyed, plain []New
	for _, n := range batch {
		if n.DedupeKey == "" {
			plain = append(plain, n)
			continue
		}
		if before, ok := e.byKey[n.DedupeKey]; ok {
			n = before.with(n)
		}
		e.byKey[n.DedupeKey] = n
	}
	// In the same order everywhere, so that no two batches wait for each other.
	for _, key := range slices.Sorted(maps.Keys(e.byKey)) {
		keyed = append(keyed, e.byKey[key])
	}
	for some := range byStatement(keyed) {
		if err := e.write(ctx, some); err != nil {
			return nil, err
		}
	}
	e.blind = blind || len(plain) > 1 // nothing tells the ids of several apart
	for some := range byStatement(plain) {
		if err := e.insert(ctx, some); err != nil {
			return nil, err
		}
	}
	for _, n := range batch {
		ids = append(ids, e.idOf[n.DedupeKey])
	}
	return ids, nil
}

// byStatement divides a list by the bounds of a statement.
func byStatement(list []New) iter.Seq[[]New] {
	return func(yield func([]New) bool) {
		first, bytes := 0, 0
		for i, n := range list {
			if bytes += len(n.Payload); i > first && (i-first == enqueueSize || bytes > enqueueBytes) {
				if !yield(list[first:i]) {
					return
				}
				first, bytes = i, len(n.Payload)
			}
		}
		if first < len(list) {
			yield(list[first:])
		}
	}
}

// write dedupes tasks, or inserts them. It looks before it inserts, and looks again when another transaction was quicker with a key.
//
// INSERT ... ON DUPLICATE KEY UPDATE has two faults. It locks the gap below every key that it meets, where producers insert their
// tasks. And on MariaDB a statement of several rows can go on numbering from the id of the row that it met: then the INSERT of
// another connection, which has the id by now, fails.
func (e *enqueuing) write(ctx context.Context, list []New) error {
	for try := 1; ; try++ {
		absent, err := e.dedupe(ctx, list)
		if err == nil {
			err = e.insert(ctx, absent)
		}
		if !mysql.IsDuplicate(err) || try == enqueueTries {
			return err
		}
	}
}

// holder is a row that has the dedupe key of a task to be enqueued.
type holder struct {
	Task
	dedupeKey, state string
	later            bool // or with an expiry
}

// isOpen reports whether the row can stand for a further task: it has not started. A site may have forced an id of 0.
func (r holder) isOpen() bool {
	return r.ID != 0 && r.Attempts == 0 && r.state != string(Running) && r.state != string(Dead)
}

// dedupe gives tasks the ids of the rows that have their keys, and locks the rows until the commit: a task that stands for a change
// must not start before the change can be seen. A row that is other work, or has started, loses the key: producers may write it into
// any row. FOR UPDATE reads rows that are younger than the snapshot of the transaction. The index is named because the server scans
// small tables, and would wait for rows that are about to be committed. It returns the tasks that are still to be inserted.
func (e *enqueuing) dedupe(ctx context.Context, list []New) (absent []New, err error) {
	keys := e.forget(list)
	holders, err := mysql.Select(ctx, e.tx, func(rows *sql.Rows) (r holder, err error) {
		var args []byte
		err = rows.Scan(&r.dedupeKey, &r.ID, &r.Queue, &r.Kind, &r.Key, &args, &r.state, &r.Attempts, &r.Priority, &r.later)
		r.Payload = payloadOf(args)
		return r, err
	}, "SELECT dedupe_key, id, queue, type, subject, "+boundedArgs+", state, attempts, priority,"+
		" run_at > "+now+" OR expires_at IS NOT NULL FROM tasks FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+") FOR UPDATE", keys...)
	if err != nil {
		return nil, err
	}
	var strange []holder
	same := make(map[terms][]holder)
	for _, r := range holders {
		// To the server a key with blanks at its end is the same.
		n, asked := e.byKey[r.dedupeKey]
		if !asked || !r.isOpen() || r.Queue != n.Queue || !e.kinds.sameWork(n, r.Task) {
			strange = append(strange, r)
			continue
		}
		e.idOf[r.dedupeKey] = r.ID
		if is := (terms{n.Priority, n.Delay, n.Life}); r.later || r.Priority > n.Priority {
			same[is] = append(same[is], r)
		}
	}
	for is, some := range same {
		if err := e.hurry(ctx, is, some); err != nil {
			return nil, err
		}
	}
	if len(strange) > 0 {
		if _, err := e.tx.ExecContext(ctx, update+"dedupe_key = NULL WHERE id IN "+idList(strange)); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(n New) bool { return e.idOf[n.DedupeKey] != 0 }), nil
}

// forget forgets the ids of tasks, and returns their dedupe keys.
func (e *enqueuing) forget(list []New) []any {
	keys := make([]any, len(list))
	for i, n := range list {
		keys[i] = n.DedupeKey
		delete(e.idOf, n.DedupeKey)
	}
	return keys
}

// terms are when a task is to run.
type terms struct {
	priority    int
	delay, life time.Duration
}

// hurry lets rows stand for tasks of the same terms: their time may come sooner, never later.
func (e *enqueuing) hurry(ctx context.Context, to terms, rows []holder) error {
	delay, life := to.delay.Milliseconds(), never(to.life)
	_, err := e.tx.ExecContext(ctx, update+"state = IF(? = 0 AND state = 'scheduled', 'waiting', state), priority = LEAST(priority, ?),"+
		" run_at = LEAST(run_at, "+now+" + ?), expires_at = GREATEST(expires_at, "+now+" + ?) WHERE id IN "+idList(rows)+
		" AND (priority > ? OR run_at > "+now+" + ? OR COALESCE(expires_at < "+now+" + ?, expires_at IS NOT NULL))",
		delay, to.priority, delay, life, to.priority, delay, life)
	return err
}

// never is a life in milliseconds, or NULL for none; a sum with NULL is NULL.
func never(life time.Duration) sql.NullInt64 {
	return sql.NullInt64{Int64: life.Milliseconds(), Valid: life != 0}
}

// insert inserts tasks, all or none of them, and reads their ids if they are wanted. Ids of an INSERT do not follow each other
// everywhere (auto_increment_increment). The kind is read because it is not in the index: MariaDB from 11 on would scan the
// whole index of a small table otherwise, and wait for other producers in a serializable transaction.
func (e *enqueuing) insert(ctx context.Context, list []New) error {
	if len(list) == 0 {
		return nil
	}
	statement, args := insertion(list)
	res, err := e.tx.ExecContext(ctx, statement, args...)
	if err != nil || e.blind {
		return err
	}
	if id, err := res.LastInsertId(); len(list) == 1 && (err != nil || id != 0) {
		e.idOf[list[0].DedupeKey] = uint64(id)
		return err
	}
	keys := e.forget(list)
	_, err = mysql.Select(ctx, e.tx, func(rows *sql.Rows) (key string, err error) {
		var id uint64
		var kind string
		err = rows.Scan(&key, &id, &kind)
		e.idOf[key] = id
		return key, err
	}, "SELECT dedupe_key, id, type FROM tasks FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+")", keys...)
	return err
}

// insertion returns the INSERT of tasks.
func insertion(list []New) (statement string, args []any) {
	args = make([]any, 0, 12*len(list))
	for _, n := range list {
		state := Waiting
		if n.Delay > 0 {
			state = Scheduled
		}
		args = append(args, n.Queue, n.Kind, n.Key, string(n.Payload), state, n.Priority, n.MaxAttempts, n.Backoff.Milliseconds(), n.Delay > 0, n.Delay.Milliseconds(),
			never(n.Life), sql.NullString{String: n.DedupeKey, Valid: n.DedupeKey != ""})
	}
	return "INSERT INTO tasks (queue, type, subject, args, state, priority, max_attempts, backoff, run_at, expires_at, dedupe_key) VALUES " +
		marks("(?,?,?,?,?,?,?,?,IF(?,"+now+"+?,0),"+now+"+?,?)", len(list)), args
}

// marks returns n times a list of placeholders: "(?,?),(?,?)".
func marks(row string, n int) string { return strings.TrimSuffix(strings.Repeat(row+",", n), ",") }
