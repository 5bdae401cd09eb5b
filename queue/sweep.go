package queue

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// sweepSize bounds the rows that a statement of a sweep changes.
const sweepSize = 1000

// Swept is the result of a sweep.
type Swept struct {
	TookOver int  // tasks that are free, or dead, because their lease ran out
	More     bool // sweep again at once
}

// sweeps is the progress of the sweeps of a process.
type sweeps struct {
	mu    sync.Mutex
	whole time.Time // when all leases are looked at again
	after heldKey   // the last ordering key that was looked at
}

// wholeSweep is the time between looks at all leases. A sweep looks at the leases that ended in the last seconds alone, because InnoDB
// may not have purged the index entries of finished tasks; see front.
const wholeSweep = 10 * time.Second

const (
	isDue  = "state = 'scheduled' AND run_at <= " + now
	isOver = "state = 'running' AND (run_at <= " + now + " OR started_at > " + now + " + 1000)"

	byTime    = "SELECT id FROM tasks FORCE INDEX (timers) WHERE "
	dueIDs    = byTime + isDue + " ORDER BY run_at LIMIT ?"
	lockDue   = "SELECT id, queue FROM tasks FORCE INDEX (timers) WHERE " + isDue + " ORDER BY run_at LIMIT ? FOR UPDATE SKIP LOCKED"
	endedIDs  = byTime + "state = 'running' AND run_at <= " + now + " ORDER BY run_at LIMIT ?"
	recentIDs = byTime + "state = 'running' AND run_at BETWEEN " + now + " - 6000 AND " + now + " ORDER BY run_at LIMIT ?"
	// A lease that began in the future is over: the clock of the database was set back. Its lease ends last.
	futureIDs = "SELECT id FROM (SELECT id, started_at FROM tasks FORCE INDEX (timers) WHERE state = 'running' ORDER BY run_at DESC LIMIT ?) AS last" +
		" WHERE started_at > " + now + " + 1000"
)

// look is a step of a sweep. A query finds ids without locks; then tasks that still are so are locked, and changed by a statement.
type look struct {
	what, ids, is, statement string
	whole                    bool // only in a look at all leases
}

var looks = []look{
	{what: "wake scheduled tasks", ids: dueIDs, is: isDue, statement: letWait},
	{what: "free tasks whose lease ran out", ids: recentIDs, is: isOver, statement: endLeases},
	{what: "free all tasks whose lease ran out", ids: endedIDs, is: isOver, statement: endLeases, whole: true},
	{what: "free tasks whose lease began in the future", ids: futureIDs, is: isOver, statement: endLeases, whole: true},
}

// Sweep makes scheduled tasks wait when they are due, frees tasks whose lease ran out, or buries them when their attempts are used up,
// and passes on ordering keys whose task went without it, as a task that was deleted. After an error of a step it goes on with the next. Pools
// sweep; programs without a pool call it about twice a second.
func (q *Queue) Sweep(ctx context.Context) (s Swept, err error) {
	q.sweeps.mu.Lock()
	defer q.sweeps.mu.Unlock()
	free, whole := make(map[string]bool), time.Now().After(q.sweeps.whole)
	for _, l := range looks {
		if l.whole && !whole || errors.Is(err, ErrUnavailable) {
			continue
		}
		n, stepErr := q.sweep(ctx, l, free)
		err, s.More = errors.Join(err, stepErr), s.More || n == sweepSize
		if l.statement == endLeases {
			s.TookOver += n
		}
	}
	err = errors.Join(err, q.passKeys(ctx, free))
	if whole {
		more, forgetErr := q.forgetKeys(ctx)
		err, s.More = errors.Join(err, forgetErr), s.More || more
	}
	if s.More = s.More && err == nil; whole && !s.More && !errors.Is(err, ErrUnavailable) {
		q.sweeps.whole = time.Now().Add(wholeSweep)
	}
	q.cameBack(free)
	return s, err
}

// sweep changes what a look finds, and notes the queues in which tasks are free.
func (q *Queue) sweep(ctx context.Context, l look, free map[string]bool) (n int, err error) {
	ids, err := mysql.Select(ctx, q.db, mysql.Column[rowID], l.ids, sweepSize)
	if err != nil || len(ids) == 0 {
		return 0, mysql.Translate(ctx, l.what, err)
	}
	if l.statement == letWait { // it passes over locked tasks, however many are the first
		return q.changeQueried(ctx, l.what, free, letWait, lockDue, sweepSize)
	}
	return q.changeQueried(ctx, l.what, free, l.statement, "SELECT id, queue FROM tasks FORCE INDEX (PRIMARY) WHERE "+l.is+" AND id IN "+idList(ids)+
		" ORDER BY id FOR UPDATE SKIP LOCKED")
}

// changeQueried changes the tasks that a query locks, and notes their queues.
func (q *Queue) changeQueried(ctx context.Context, what string, queues map[string]bool, statement, query string, args ...any) (n int, err error) {
	err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) error {
		list, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (t Task, err error) {
			err = rows.Scan(&t.ID, &t.Queue)
			return t, err
		}, query, args...)
		if err == nil {
			list, err = change(ctx, tx, list, statement)
		}
		for _, t := range list {
			queues[t.Queue] = true
		}
		n = len(list)
		return err
	})
	if err != nil { // of the commit, too
		n = 0
	}
	return n, err
}

// heldKey is a row of held_keys.
type heldKey struct {
	queue    string
	key      uint64
	task     uint64
	canStart bool // the task runs, or is next
}

const nextKeys = "SELECT h.queue, h.subject, h.task_id, COALESCE(t.state IN ('waiting', 'running'), 0) FROM (SELECT queue, subject, task_id FROM held_keys" +
	" FORCE INDEX (PRIMARY) WHERE queue > ? OR queue = ? AND subject > ? ORDER BY queue, subject LIMIT ?) AS h LEFT JOIN tasks t ON t.id = h.task_id ORDER BY h.queue, h.subject"

// passKeys looks at the ordering keys that come next, and passes a key on whose task can neither run nor is next: its lease ran out, it
// was deleted, or was locked when its turn came.
func (q *Queue) passKeys(ctx context.Context, free map[string]bool) error {
	at := &q.sweeps.after
	list, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (k heldKey, err error) {
		err = rows.Scan(&k.queue, &k.key, &k.task, &k.canStart)
		return k, err
	}, nextKeys, at.queue, at.queue, at.key, sweepSize)
	if err != nil {
		return mysql.Translate(ctx, "look at ordering keys", err)
	}
	if *at = (heldKey{}); len(list) == sweepSize {
		*at = list[sweepSize-1]
	}
	for _, k := range list {
		if k.canStart {
			continue
		}
		err := mysql.Transact(ctx, q.db, "pass an ordering key on", func(tx *sql.Tx) error { return q.mend(ctx, tx, k) })
		if err != nil {
			return err
		}
		free[k.queue] = true
	}
	return nil
}

// mend passes a key on unless it changed. Once its row is locked, no claim can start the task that it names.
func (q *Queue) mend(ctx context.Context, tx *sql.Tx, k heldKey) error {
	held, err := mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT task_id FROM held_keys WHERE queue = ? AND subject = ? FOR UPDATE SKIP LOCKED", k.queue, k.key)
	if err != nil || len(held) == 0 || held[0] != k.task {
		return err
	}
	well, err := mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT id FROM tasks WHERE id = ? AND state IN ('waiting', 'running')", k.task)
	if err != nil || len(well) > 0 {
		return err
	}
	_, err = q.passOn(ctx, tx, k.queue, []uint64{k.key})
	return err
}
