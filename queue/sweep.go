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

// Swept counts the changes of a sweep.
type Swept struct {
	Due      int  // scheduled tasks that wait now
	TookOver int  // tasks that are free, or dead, because their lease ran out
	More     bool // sweep again at once
}

// sweeps is the progress of the sweeps of a process.
type sweeps struct {
	mu      sync.Mutex
	whole   time.Time // when all leases are looked at again
	since   uint64    // until then, leases that end before it are not looked at; by the database's clock
	queue   string    // the last ordering key that was looked at
	subject uint64
}

// InnoDB may not have purged the index entries of finished tasks; see front. So a sweep looks at leases that ended since the last sweep,
// or up to lateCommit before it, and at all leases every wholeSweep.
const (
	wholeSweep = 10 * time.Second
	lateCommit = 5000 // milliseconds
)

const (
	dueTasks  = "SELECT id, queue FROM tasks FORCE INDEX (timers) WHERE state = 'scheduled' AND run_at <= " + now + " ORDER BY run_at LIMIT ? FOR UPDATE SKIP LOCKED"
	leaseOver = "(run_at <= " + now + " OR started_at > " + now + " + 1000)"
	endedIDs  = "SELECT id FROM tasks FORCE INDEX (timers) WHERE state = 'running' AND run_at >= ? AND run_at <= " + now + " ORDER BY run_at LIMIT ?"
	// A lease that began in the future is over: the clock of the database was set back. Its lease ends last.
	futureIDs = "SELECT id FROM (SELECT id, started_at FROM tasks FORCE INDEX (timers) WHERE state = 'running' ORDER BY run_at DESC LIMIT ?) AS last" +
		" WHERE started_at > " + now + " + 1000"
	endedTasks = "SELECT id, queue FROM tasks FORCE INDEX (PRIMARY) WHERE state = 'running' AND " + leaseOver + " AND id IN "
	nextKeys   = "SELECT h.queue, h.subject, h.task_id, COALESCE(t.state, '') FROM (SELECT queue, subject, task_id FROM held_keys FORCE INDEX (PRIMARY)" +
		" WHERE queue > ? OR queue = ? AND subject > ? ORDER BY queue, subject LIMIT ?) AS h LEFT JOIN tasks t ON t.id = h.task_id ORDER BY h.queue, h.subject"
)

// Sweep makes scheduled tasks wait when they are due, frees tasks whose lease ran out, or buries them when their attempts are used up,
// and passes on ordering keys whose task went without it, as a task that was deleted. After an error of a step it goes on with the next. Pools
// sweep; programs without a pool call it about twice a second.
func (q *Queue) Sweep(ctx context.Context) (s Swept, err error) {
	q.sweeps.mu.Lock()
	defer q.sweeps.mu.Unlock()
	var clock uint64
	var isDue, forgot bool
	err = q.db.QueryRowContext(ctx, "SELECT "+now+", EXISTS (SELECT id FROM tasks FORCE INDEX (timers) WHERE state = 'scheduled' AND run_at <= "+now+")").Scan(&clock, &isDue)
	if err != nil {
		return s, mysql.Translate(ctx, "look for scheduled tasks", err)
	}
	var dueErr, leaseErr, forgetErr error
	free := make(map[string]bool)
	whole := time.Now().After(q.sweeps.whole)
	if whole {
		forgot, forgetErr = q.forgetKeys(ctx)
	}
	if isDue {
		s.Due, dueErr = q.changeQueried(ctx, "wake scheduled tasks", free, letWait, dueTasks, sweepSize)
	}
	over, leaseErr := q.endedLeases(ctx, whole)
	if leaseErr == nil && len(over) > 0 {
		s.TookOver, leaseErr = q.changeQueried(ctx, "free tasks whose lease ran out", free, endLeases, endedTasks+idList(over)+" ORDER BY id FOR UPDATE SKIP LOCKED")
	}
	if leaseErr == nil && len(over) < sweepSize {
		q.sweeps.since = clock - min(clock, lateCommit)
	}
	passed, keyErr := q.passKeys(ctx, free)
	err = errors.Join(dueErr, leaseErr, keyErr, forgetErr)
	s.More = err == nil && (forgot || passed || s.Due == sweepSize || s.TookOver >= sweepSize)
	if whole && !s.More {
		q.sweeps.whole = time.Now().Add(wholeSweep)
	}
	q.cameBack(free)
	return s, err
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

// endedLeases returns tasks whose lease may have run out. A locking read sees then which are finished, and which leases were extended.
func (q *Queue) endedLeases(ctx context.Context, whole bool) (over []rowID, err error) {
	since := q.sweeps.since
	if whole {
		since = 0
	}
	over, err = mysql.Select(ctx, q.db, mysql.Column[rowID], endedIDs, since, sweepSize)
	if err == nil && whole {
		var future []rowID
		future, err = mysql.Select(ctx, q.db, mysql.Column[rowID], futureIDs, sweepSize)
		over = append(over, future...)
	}
	return over, mysql.Translate(ctx, "look for leases that ran out", err)
}

// heldKey is a row of held_keys, and the state of its task; "": the task is gone.
type heldKey struct {
	Task

	state string
}

// isStale reports whether the task of a key can neither run nor is next.
func (k heldKey) isStale() bool { return k.state != string(Waiting) && k.state != string(Running) }

func scanHeldKey(rows *sql.Rows) (k heldKey, err error) {
	err = rows.Scan(&k.Queue, &k.Key, &k.ID, &k.state)
	return k, err
}

// passKeys looks at the ordering keys that come next, and mends a key whose task can neither run nor is next: its lease ran out, it was
// deleted, or was locked when its turn came. more: it mended some.
func (q *Queue) passKeys(ctx context.Context, free map[string]bool) (more bool, err error) {
	at := &q.sweeps
	list, err := mysql.Select(ctx, q.db, scanHeldKey, nextKeys, at.queue, at.queue, at.subject, sweepSize)
	if err != nil {
		return false, mysql.Translate(ctx, "look at ordering keys", err)
	}
	at.queue, at.subject = "", 0
	if len(list) == sweepSize {
		at.queue, at.subject = list[sweepSize-1].Queue, list[sweepSize-1].Key
	}
	for _, k := range list {
		if !k.isStale() {
			continue
		}
		var mended bool
		err := mysql.Transact(ctx, q.db, "pass an ordering key on", func(tx *sql.Tx) (err error) {
			mended, err = q.mend(ctx, tx, k)
			return err
		})
		if err != nil {
			return false, err
		}
		if mended {
			more, free[k.Queue] = true, true
		}
	}
	return more, nil
}

// mend passes a key on, or brings its task back. Once its row is locked, no claim can start the task that it names.
func (q *Queue) mend(ctx context.Context, tx *sql.Tx, k heldKey) (mended bool, err error) {
	locked, err := mysql.Select(ctx, tx, mysql.Column[uint64], "SELECT task_id FROM held_keys WHERE queue = ? AND subject = ? FOR UPDATE SKIP LOCKED", k.Queue, k.Key)
	if err != nil || len(locked) == 0 || locked[0] != k.ID {
		return false, err
	}
	now, err := mysql.Select(ctx, tx, scanHeldKey, "SELECT queue, subject, id, state FROM tasks FORCE INDEX (PRIMARY) WHERE id = ?", k.ID)
	switch {
	case err != nil || len(now) > 0 && !now[0].isStale():
		return false, err
	case len(now) > 0 && now[0].state == behind && now[0].Queue == k.Queue && now[0].Key == k.Key:
		n, err := bringBack(ctx, tx, []rowID{rowID(k.ID)})
		return n > 0, err
	}
	_, err = q.passOn(ctx, tx, k.Queue, []uint64{k.Key})
	return true, err
}
