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

// enqueueSize and enqueueBytes bound the tasks in one INSERT, and the bytes of their
// payloads: a server takes no packet of more than max_allowed_packet, which some set to 1 MiB.
const (
	enqueueSize  = 1000
	enqueueBytes = 512 << 10
)

// Enqueue adds a batch in a transaction of its own, whole or not at all, and returns an id for each
// task in order, after the commit; see [Queue.EnqueueTx] for those without a dedupe key. After an error that is no [ErrInvalid]
// the tasks may be there: the answer may have been lost. A task whose dedupe key is that of one
// which waits or is scheduled, has not been started, and is about the same, is not added: it gets that task's id. The task that
// stands for both runs as early, as urgently and lives as long as either would. Any other task that has the key loses it.
func (q *Queue) Enqueue(ctx context.Context, batch []New) (ids []uint64, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	batch, err = q.options.Kinds.Validate(batch)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("enqueue %d tasks", len(batch))
	var done *enqueuing
	if isOneInsert(batch) { // a transaction of its own
		done = &enqueuing{inserted: batch, ids: make([]uint64, len(batch))}
		statement, args := insertion(batch)
		var id uint64
		id, err = mysql.Exec(ctx, q.db, what, statement, args...)
		if len(batch) == 1 {
			done.ids[0] = id
		}
	} else {
		err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) (err error) {
			done, err = enqueue(ctx, tx, q.options.Kinds, batch, false)
			return err
		})
	}
	if err != nil {
		return nil, err
	}
	q.committed(batch, done)
	return done.ids, nil
}

// isOneInsert reports whether one INSERT enqueues a batch: that of tasks without dedupe keys.
func isOneInsert(batch []New) bool {
	bytes := 0
	for _, n := range batch {
		if n.DedupeKey != "" {
			return false
		}
		bytes += len(n.Payload)
	}
	return len(batch) <= enqueueSize && bytes <= enqueueBytes
}

// EnqueueTx is [Queue.Enqueue] in a transaction of the caller's, in the same database: its tasks are
// there when that commits, and never were if it is rolled back. It returns the ids of the
// tasks, in order; 0 for those without a dedupe key that came with others like it, whose ids are not read.
//
// A kind that the queue does not know is an [ErrInvalid]. (Enqueue takes any.)
//
// Workers find the tasks within a second ([PoolOptions].Poll), and at once if the caller calls
// [Queue.Notify] after the commit.
//
// The transaction may have any isolation level. A dedupe key is locked until the end of the transaction; from
// REPEATABLE READ on also the gap around it, where other transactions have to wait with keys of their own: prefer
// READ COMMITTED for tasks that have one.
//
// An error that wraps [ErrInvalid] leaves the transaction as it was. After any other, roll it back: the server may
// have done so, as after a deadlock, when all of it may be tried again.
func (q *Queue) EnqueueTx(ctx context.Context, tx *sql.Tx, batch ...New) (ids []uint64, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	for _, n := range batch {
		if _, known := q.options.Kinds.of(n.Kind); !known {
			return nil, fmt.Errorf("%w: no such kind: %q", ErrInvalid, n.Kind)
		}
	}
	batch, err = q.options.Kinds.Validate(batch)
	if err != nil {
		return nil, err
	}
	done, err := enqueue(ctx, tx, q.options.Kinds, batch, false)
	if err != nil {
		return nil, mysql.Translate(ctx, fmt.Sprintf("enqueue %d tasks", len(batch)), err)
	}
	q.count(batch, done)
	return done.ids, nil
}

// committed wakes workers and counts, after the commit.
func (q *Queue) committed(batch []New, done *enqueuing) {
	queues := make(map[string]bool)
	for _, n := range batch {
		queues[n.Queue] = true
	}
	q.count(batch, done)
	q.options.Notifier.Notify(slices.Sorted(maps.Keys(queues))...)
}

// count counts what was enqueued.
func (q *Queue) count(batch []New, done *enqueuing) {
	deduped := make(map[string]int)
	for _, n := range batch {
		kind := q.metrics.label(q.options.Kinds, n.Kind)
		q.metrics.enqueued.WithLabelValues(kind).Inc()
		deduped[kind]++
	}
	for _, n := range done.inserted {
		deduped[q.metrics.label(q.options.Kinds, n.Kind)]--
	}
	for kind, n := range deduped {
		q.metrics.deduped.WithLabelValues(kind).Add(float64(n))
	}
}

// enqueuing is one batch on its way into the table.
type enqueuing struct {
	tx       *sql.Tx
	kinds    Kinds
	byKey    map[string]New
	idOf     map[string]uint64
	blind    bool     // ids are not wanted
	ids      []uint64 // of the batch, in order
	inserted []New    // a task stands for each of the others
}

// enqueue writes a batch. If it is blind, as for follow-up tasks, no ids are read; nor are those of several
// tasks without dedupe keys, which nothing tells apart.
func enqueue(ctx context.Context, tx *sql.Tx, kinds Kinds, batch []New, blind bool) (*enqueuing, error) {
	e := &enqueuing{tx: tx, kinds: kinds, byKey: make(map[string]New, len(batch)), idOf: make(map[string]uint64, len(batch)), blind: blind}
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
	// In one order everywhere, so that two batches do not lock each other out.
	for _, key := range slices.Sorted(maps.Keys(e.byKey)) {
		keyed = append(keyed, e.byKey[key])
	}
	for some := range byStatement(keyed) {
		if err := e.write(ctx, some); err != nil {
			return nil, err
		}
	}
	e.blind = blind || len(plain) > 1
	for some := range byStatement(plain) {
		if err := e.insert(ctx, some); err != nil {
			return nil, err
		}
	}
	for _, n := range batch {
		e.ids = append(e.ids, e.idOf[n.DedupeKey])
	}
	return e, nil
}

// byStatement divides a list by what one statement may have.
func byStatement(list []New) iter.Seq[[]New] {
	return func(yield func([]New) bool) {
		for len(list) > 0 {
			n, bytes := 0, 0
			for n < min(len(list), enqueueSize) && (n == 0 || bytes+len(list[n].Payload) <= enqueueBytes) {
				bytes += len(list[n].Payload)
				n++
			}
			if !yield(list[:n]) {
				return
			}
			list = list[n:]
		}
	}
}

// enqueueTries bounds how often a batch meets tasks that others commit while it
// is written.
const enqueueTries = 10

// write gives the key of each task the id of the task that waits under it, or inserts one. It looks before it
// inserts, and looks again when another transaction was quicker with one of the keys.
//
// INSERT ... ON DUPLICATE KEY UPDATE would do it in one statement, but has two faults. It
// locks the gap below every key that it meets, where others insert their tasks. And on
// MariaDB a statement of several rows can go on numbering from the id of the row that it
// met. Such ids may be another connection's, whose INSERT then fails.
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

// holder is a row that has the dedupe key of a task to be enqueued: the task as it would be enqueued now.
type holder struct {
	New
	id       uint64
	state    string
	attempts int
	now      int64 // by the database's clock
}

// dedupe gives tasks to those that wait under their keys, and locks these until the commit: a task that stands for a
// change must not start before that change can be seen. Whatever else has such a key loses it: a producer may have
// written it into any row. FOR UPDATE reads what is, not what this transaction's snapshot shows: such a task may be
// younger than that. The index is named because a small table is scanned otherwise, and with
// it rows are locked that others are about to commit. It returns the tasks that have still none.
func (e *enqueuing) dedupe(ctx context.Context, list []New) (absent []New, err error) {
	keys := make([]any, len(list))
	for i, n := range list {
		keys[i] = n.DedupeKey
		delete(e.idOf, n.DedupeKey)
	}
	holders, err := mysql.Select(ctx, e.tx, scanHolder, "SELECT dedupe_key, id, queue, type, subject, "+boundedArgs+", state, attempts, priority, run_at,"+
		" COALESCE(GREATEST(expires_at, 1), 0), "+now+" FROM tasks FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+") FOR UPDATE", keys...)
	if err != nil {
		return nil, err
	}
	var strange []uint64
	for _, r := range holders {
		// To the server a key with blanks at its end is the same; it was asked for without.
		n, asked := e.byKey[r.DedupeKey]
		if !asked || r.id == 0 || r.attempts > 0 || r.state == string(Running) || r.state == string(Dead) || r.Queue != n.Queue || !e.kinds.sameWork(n, r.Kind, r.Key, r.Payload) {
			strange = append(strange, r.id)
			continue
		}
		e.idOf[r.DedupeKey] = r.id
		if err := e.advance(ctx, r, n); err != nil {
			return nil, err
		}
	}
	if len(strange) > 0 {
		if _, err := e.tx.ExecContext(ctx, update+"dedupe_key = NULL WHERE id IN "+idList(strange, itself)); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(list), func(n New) bool { return e.idOf[n.DedupeKey] != 0 }), nil
}

// scanHolder reads a row that has the dedupe key of a task to be enqueued.
func scanHolder(rows *sql.Rows) (r holder, err error) {
	var args []byte
	var runAt, expires uint64
	err = rows.Scan(&r.DedupeKey, &r.id, &r.Queue, &r.Kind, &r.Key, &args, &r.state, &r.attempts, &r.Priority, &runAt, &expires, &r.now)
	r.Payload = payloadOf(args)
	r.Delay = max(0, r.until(runAt))
	if r.Life = r.until(expires); r.Life == 0 && expires > 0 {
		r.Life = -time.Millisecond // 0 is never
	}
	return r, err
}

// until returns how long it is to a time of the table, a century at most; of none, 0.
func (r holder) until(at uint64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	if at == 0 {
		return 0
	}
	return time.Duration(min(int64(min(at, latest))-r.now, century.Milliseconds())) * time.Millisecond
}

// advance lets a task stand for n, too: its time may come sooner, never later.
func (e *enqueuing) advance(ctx context.Context, is holder, n New) error {
	to := is.with(n)
	if to.Priority == is.Priority && to.Delay == is.Delay && to.Life == is.Life {
		return nil
	}
	expires := sql.NullInt64{Int64: is.now + to.Life.Milliseconds(), Valid: to.Life != 0}
	state := is.state
	if n.Delay == 0 && state == string(Scheduled) {
		state = string(Waiting)
	}
	_, err := e.tx.ExecContext(ctx, update+"state = ?, priority = ?, run_at = LEAST(run_at, ?), expires_at = ? WHERE id = ?",
		state, to.Priority, is.now+n.Delay.Milliseconds(), expires, is.id)
	return err
}

// insert inserts tasks, all or none of them, and reads their ids if those are wanted. That they follow each
// other is not so everywhere (auto_increment_increment). The kind is read because it is not in the index: MariaDB
// from 11 on would scan the whole index of a small table otherwise, and in a
// serializable transaction wait for others who enqueued.
func (e *enqueuing) insert(ctx context.Context, list []New) error {
	if len(list) == 0 {
		return nil
	}
	statement, args := insertion(list)
	res, err := e.tx.ExecContext(ctx, statement, args...)
	if err != nil {
		return err
	}
	e.inserted = append(e.inserted, list...)
	if e.blind {
		return nil
	}
	if id, err := res.LastInsertId(); len(list) == 1 && (err != nil || id != 0) {
		e.idOf[list[0].DedupeKey] = uint64(id)
		return err
	}
	keys := make([]any, len(list))
	for i, n := range list {
		keys[i] = n.DedupeKey
	}
	_, err = mysql.Select(ctx, e.tx, func(rows *sql.Rows) (key string, err error) {
		var id uint64
		var kind string
		err = rows.Scan(&key, &id, &kind)
		e.idOf[key] = id
		return key, err
	}, "SELECT dedupe_key, id, type FROM tasks FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+")", keys...)
	return err
}

// marks returns n times a list of placeholders: "(?,?),(?,?)".
func marks(one string, n int) string { return strings.TrimSuffix(strings.Repeat(one+",", n), ",") }

// insertion returns the INSERT of tasks.
func insertion(list []New) (statement string, args []any) {
	args = make([]any, 0, 11*len(list))
	for _, n := range list {
		state := Waiting
		if n.Delay > 0 {
			state = Scheduled
		}
		args = append(args, n.Queue, n.Kind, n.Key, string(n.Payload), state, n.Priority, n.MaxAttempts, n.Backoff.Milliseconds(), n.Delay > 0, n.Delay.Milliseconds(),
			sql.NullInt64{Int64: n.Life.Milliseconds(), Valid: n.Life != 0}, // a sum with NULL is NULL
			sql.NullString{String: n.DedupeKey, Valid: n.DedupeKey != ""})
	}
	return "INSERT INTO tasks (queue, type, subject, args, state, priority, max_attempts, backoff, run_at, expires_at, dedupe_key) VALUES " +
		marks("(?,?,?,?,?,?,?,?,IF(?,"+now+"+?,0),"+now+"+?,?)", len(list)), args
}
