package queue

import (
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// enqueueSize and enqueueBytes bound the tasks in one INSERT, and the bytes of their
// payloads: a server takes no packet of more than max_allowed_packet, 16 MiB by default.
const (
	enqueueSize  = 1000
	enqueueBytes = 1 << 20
)

// Enqueue adds a batch, whole or not at all, and returns an id for each
// task in order, after the commit. A task whose dedupe key is that of one
// which waits or is scheduled, has not been started, and is about the same,
// is absorbed: it gets that one's id. The absorbing task runs as early, as
// urgently and lives as long as any of those that it stands for. Any other
// task that has the key loses it.
func (q *MySQLQueue) Enqueue(ctx context.Context, batch []New) (ids []uint64, err error) {
	if len(batch) == 0 {
		return nil, nil
	}
	batch, err = Validate(batch)
	if err != nil {
		return nil, err
	}
	var done enqueued
	err = mysql.Transact(ctx, q.db, fmt.Sprintf("enqueue %d tasks", len(batch)), func(tx *sql.Tx) (err error) {
		done, err = enqueue(ctx, tx, q.options.Kinds, batch)
		return err
	})
	if err != nil {
		return nil, err
	}
	q.committed(batch, done)
	return done.ids, nil
}

// committed wakes workers and counts, after the commit.
func (q *MySQLQueue) committed(batch []New, done enqueued) {
	q.cursors.enqueued(batch)
	if done.absorbed {
		q.cursors.forget() // the absorbing task was locked: claims passed it over
	}
	countEnqueued(q.options.Kinds, batch, done.inserted)
	q.options.Notifier.Notify(queuesOf(batch)...)
}

// enqueued is what became of a batch.
type enqueued struct {
	ids      []uint64
	inserted []New // the others were absorbed
	absorbed bool  // some were
}

// enqueuing is one batch on its way into the table.
type enqueuing struct {
	tx       *sql.Tx
	kinds    Kinds
	byKey    map[string]New
	idOf     map[string]uint64
	inserted []New
	blind    bool // idOf need not have the ids of those that are inserted
}

// enqueue writes a batch whose tasks have dedupe keys.
func enqueue(ctx context.Context, tx *sql.Tx, kinds Kinds, batch []New) (done enqueued, err error) {
	e := enqueuing{tx: tx, kinds: kinds, idOf: make(map[string]uint64, len(batch))}
	if done, err = e.run(ctx, batch); err != nil {
		return done, err
	}
	done.ids = make([]uint64, len(batch))
	for i, n := range batch {
		done.ids[i] = e.idOf[n.DedupeKey]
	}
	return done, nil
}

// enqueueNext writes follow-up tasks, and does not read their ids.
func enqueueNext(ctx context.Context, tx *sql.Tx, kinds Kinds, batch []New) (enqueued, error) {
	e := enqueuing{tx: tx, kinds: kinds, idOf: make(map[string]uint64), blind: true}
	return e.run(ctx, batch)
}

func (e *enqueuing) run(ctx context.Context, batch []New) (done enqueued, err error) {
	byKey, others := distinct(batch)
	e.byKey = byKey
	// In one order everywhere, so that two batches do not lock each other out.
	keyed := make([]New, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		keyed = append(keyed, byKey[key])
	}
	for some := range byStatement(keyed, payloadOf) {
		if err := e.write(ctx, some); err != nil {
			return done, err
		}
	}
	done.absorbed = len(e.inserted) < len(keyed)
	for some := range byStatement(others, payloadOf) {
		if err := e.insert(ctx, some); err != nil {
			return done, err
		}
	}
	done.inserted = e.inserted
	return done, nil
}

func payloadOf(n New) int { return len(n.Payload) }

// byStatement divides a list by what one statement may have.
func byStatement[T any](list []T, size func(T) int) iter.Seq[[]T] {
	return func(yield func([]T) bool) {
		for len(list) > 0 {
			n, bytes := 0, 0
			for n < min(len(list), enqueueSize) && (n == 0 || bytes+size(list[n]) <= enqueueBytes) {
				bytes += size(list[n])
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

// write gives the key of each task the id of the task that waits under it, or inserts one.
// It looks before it inserts, and looks again when another transaction was
// quicker with one of the keys.
//
// INSERT ... ON DUPLICATE KEY UPDATE would do it in one statement, but has two faults. It
// locks the gap below every key that it meets, where others insert their tasks. And on
// MariaDB a statement of several rows can go on numbering from the id of the row that it
// met. Such ids may be another connection's, whose INSERT then fails.
func (e *enqueuing) write(ctx context.Context, list []New) error {
	keys := make([]string, len(list))
	for i, n := range list {
		keys[i] = n.DedupeKey
	}
	for try := 1; ; try++ {
		if err := e.absorb(ctx, keys); err != nil {
			if mysql.IsDuplicate(err) && try < enqueueTries { // one came back at once, and another was quicker
				for _, key := range keys {
					delete(e.idOf, key)
				}
				continue
			}
			return err
		}
		absent := slices.DeleteFunc(slices.Clone(list), func(n New) bool { return e.idOf[n.DedupeKey] != 0 })
		if len(absent) == 0 {
			return nil
		}
		err := e.insert(ctx, absent)
		if err == nil {
			return e.find(ctx, absent)
		}
		if !mysql.IsDuplicate(err) || try == enqueueTries {
			return err
		}
	}
}

// absorb gives tasks to those that wait under their keys, and locks these until
// the commit: a task that absorbs a change must not start before that change can
// be seen. Whatever else has such a key loses it. FOR UPDATE reads
// what is, not what this transaction's snapshot shows: such a task may be younger
// than that. The index is named because a small table is scanned otherwise, and with
// it rows are locked that others are about to commit.
//
// It looks into tasks first. A task that moves to parked_tasks is waited for there, and then seen here;
// one that moves back makes the INSERT that comes next fail, after which both are looked at again.
func (e *enqueuing) absorb(ctx context.Context, keys []string) error {
	for _, table := range []string{"tasks", "parked_tasks"} {
		keys = slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return e.idOf[key] != 0 })
		if len(keys) == 0 {
			return nil
		}
		state := "'waiting'"
		if table == "parked_tasks" {
			state = "state"
		}
		holders, err := mysql.Select(ctx, e.tx, scanKeyHolder, "SELECT dedupe_key, id, queue, type, subject, "+boundedArgs+", "+state+", attempts, priority,"+
			" COALESCE(GREATEST(due_at, 1), 0), "+expiry+", "+now+
			" FROM "+table+" FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+") FOR UPDATE", mysql.Args(keys)...)
		if err != nil {
			return err
		}
		if err := e.give(ctx, table, holders); err != nil {
			return err
		}
	}
	return nil
}

// give gives tasks to the holders of their keys, in one of the tables.
func (e *enqueuing) give(ctx context.Context, table string, holders []keyHolder) error {
	var others []any
	for _, r := range holders {
		// To the server a key with blanks at its end is the same; it was asked for without.
		n, asked := e.byKey[r.dedupeKey]
		if !asked || !r.absorbs(n, e.kinds) {
			others = append(others, r.ID)
			continue
		}
		e.idOf[r.dedupeKey] = r.ID
		is := r.timing()
		if both := is.absorbing(timingOf(n, r.now)); both != is {
			if err := e.advance(ctx, r, both); err != nil {
				return err
			}
		}
	}
	if len(others) == 0 {
		return nil
	}
	_, err := e.tx.ExecContext(ctx, "UPDATE "+table+" FORCE INDEX (PRIMARY) SET dedupe_key = "+keyOfItsOwn+" WHERE id IN ("+mysql.Marks(len(others))+")",
		append([]any{rand.Text()[:16]}, others...)...)
	return err
}

// keyOfItsOwn replaces the dedupe key of a row that absorbs nothing. ~ sorts behind all
// keys; NULL would sort before them, where the rows of sites are. The argument is random, so
// that no row can have the key already.
const keyOfItsOwn = "CONCAT('~', id, '/', ?)"

// scanKeyHolder reads a row that has the dedupe key of a task to be enqueued.
func scanKeyHolder(rows *sql.Rows) (r keyHolder, err error) {
	var args []byte
	var due, expires uint64
	err = rows.Scan(&r.dedupeKey, &r.ID, &r.Queue, &r.Kind, &r.Key, &args, &r.state, &r.Attempts, &r.Priority, &due, &expires, &r.now)
	r.Payload, r.dueAt, r.expiresAt = args, int64(min(due, latest)), int64(min(expires, latest))
	return r, err
}

// advance changes when a task runs and expires that has not been started.
func (e *enqueuing) advance(ctx context.Context, r keyHolder, t timing) error {
	if r.state == Scheduled && t.runAt == 0 {
		expires := "NULL"
		if t.expiresAt > 0 {
			expires = strconv.FormatInt(t.expiresAt, 10)
		}
		return moveBack(ctx, e.tx, []any{r.ID}, unparking{"attempts", expires, strconv.Itoa(t.priority), "dedupe_key"})
	}
	table := "tasks"
	if r.state == Scheduled {
		table = "parked_tasks"
	}
	_, err := e.tx.ExecContext(ctx, "UPDATE "+table+" SET priority = ?, due_at = NULLIF(?, 0), expires_at = NULLIF(?, 0) WHERE id = ?",
		t.priority, t.runAt, t.expiresAt, r.ID)
	return err
}

// insert inserts tasks, all or none of them.
func (e *enqueuing) insert(ctx context.Context, list []New) error {
	args := make([]any, 0, 8*len(list))
	for _, n := range list {
		args = append(args, n.Queue, n.Kind, n.Key, string(n.Payload), n.Priority, orNull(n.Life), orNull(n.Delay),
			sql.NullString{String: n.DedupeKey, Valid: n.DedupeKey != ""})
	}
	const row = "(?,?,?,?,?," + now + "+?," + now + "+?,?),"
	values := strings.TrimSuffix(strings.Repeat(row, len(list)), ",")
	res, err := e.tx.ExecContext(ctx, "INSERT INTO tasks (queue, type, subject, args, priority, expires_at, due_at, dedupe_key) VALUES "+values, args...)
	if err != nil {
		return err
	}
	e.inserted = append(e.inserted, list...)
	if len(list) > 1 || e.blind {
		return nil
	}
	id, err := res.LastInsertId()
	e.idOf[list[0].DedupeKey] = uint64(id)
	return err
}

// orNull returns milliseconds to add to the present, or the NULL that makes of
// the sum "never".
func orNull(d time.Duration) any {
	if d == 0 {
		return nil
	}
	return d.Milliseconds()
}

// find reads the ids of tasks that were just inserted, unless it was one and its id
// is known. That they follow each other is not so everywhere
// (auto_increment_increment). The kind is read because it is not in the index: MariaDB
// from 11 on would scan the whole index of a small table otherwise, and in a
// serializable transaction wait for others who enqueued.
func (e *enqueuing) find(ctx context.Context, list []New) error {
	if e.blind || len(list) == 1 && e.idOf[list[0].DedupeKey] != 0 {
		return nil
	}
	keys := make([]string, len(list))
	for i, n := range list {
		keys[i] = n.DedupeKey
	}
	inserted, err := mysql.Select(ctx, e.tx, func(rows *sql.Rows) (r keyHolder, err error) {
		err = rows.Scan(&r.dedupeKey, &r.ID, &r.Kind)
		return r, err
	}, "SELECT dedupe_key, id, type FROM tasks FORCE INDEX (dedupe) WHERE dedupe_key IN ("+mysql.Marks(len(keys))+")", mysql.Args(keys)...)
	for _, r := range inserted {
		e.idOf[r.dedupeKey] = r.ID
	}
	return err
}
