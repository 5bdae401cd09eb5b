package queue

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// sweepSize bounds what one statement of a sweep changes.
const sweepSize = 1000

// Swept counts what a sweep did.
type Swept struct {
	Due      int  // scheduled tasks that are waiting now
	TookOver int  // tasks freed or buried because their lease ran out
	More     bool // there may be more: sweep again at once
}

// sweeps is where the sweeps of a process stand.
type sweeps struct {
	mu      sync.Mutex
	whole   time.Time // when all leases are looked at again
	since   uint64    // else those that ended after this, by the database's clock
	queue   string    // the last ordering key that was looked at
	subject uint64
	behind  aside // the last task behind others that was looked at
}

// aside is a place in the index timers.
type aside struct{ runAt, id uint64 }

// InnoDB may not have purged what is left of finished tasks; see front. So a sweep looks at the leases that ended since the last
// one, or up to lateCommit before that, and at all of them every wholeSweep.
const (
	wholeSweep = 10 * time.Second
	lateCommit = 5000 // milliseconds
)

const (
	dueTasks  = "SELECT id, queue FROM tasks FORCE INDEX (timers) WHERE state = 'scheduled' AND run_at <= " + now + " ORDER BY run_at LIMIT ? FOR UPDATE SKIP LOCKED"
	leaseOver = "(run_at <= " + now + " OR started_at > " + now + " + 1000)"
	endedIDs  = "SELECT id FROM tasks FORCE INDEX (timers) WHERE state = 'running' AND run_at >= ? AND run_at <= " + now + " ORDER BY run_at LIMIT ?"
	// A lease that began in the future is over: the clock of the database was set back. It ends after others.
	futureIDs = "SELECT id FROM (SELECT id, started_at FROM tasks FORCE INDEX (timers) WHERE state = 'running' ORDER BY run_at DESC LIMIT ?) AS last" +
		" WHERE started_at > " + now + " + 1000"
	endedTasks = "SELECT id, queue FROM tasks FORCE INDEX (PRIMARY) WHERE state = 'running' AND " + leaseOver + " AND id IN "
	endLeases  = update + "state = IF(attempts >= max_attempts AND max_attempts > 0, 'dead', 'waiting'), lost = LEAST(lost, 254) + 1, run_at = " + now +
		", last_error = CONCAT('the lease of ', lease, ' ran out: it crashed, was stopped, or took too long'), lease = '' WHERE id IN "
	nextKeys = "SELECT h.queue, h.subject, h.task_id, COALESCE(t.state, '') FROM (SELECT queue, subject, task_id FROM held_keys FORCE INDEX (PRIMARY)" +
		" WHERE queue > ? OR queue = ? AND subject > ? ORDER BY queue, subject LIMIT ?) AS h LEFT JOIN tasks t ON t.id = h.task_id ORDER BY h.queue, h.subject"
	// A task is behind no other if somebody has deleted the row of its key.
	nextBehind = "SELECT t.run_at, t.id, t.queue, h.task_id IS NULL FROM (SELECT id, run_at, queue, subject FROM tasks FORCE INDEX (timers) WHERE state = 'behind'" +
		" AND (run_at > ? OR run_at = ? AND id > ?) ORDER BY run_at, id LIMIT ?) AS t LEFT JOIN held_keys h ON h.queue = t.queue AND h.subject = t.subject ORDER BY t.run_at, t.id"
)

// Sweep does what time brings: it makes scheduled tasks waiting when they are due, frees tasks whose lease ran out, or buries
// them when their attempts are used up, and passes ordering keys on whose task went without that, as one that was discarded. Each
// may fail without the others.
func (q *Queue) Sweep(ctx context.Context) (s Swept, err error) {
	q.sweeps.mu.Lock()
	defer q.sweeps.mu.Unlock()
	var clock uint64
	var due, forgot bool
	err = q.db.QueryRowContext(ctx, "SELECT "+now+", EXISTS (SELECT id FROM tasks FORCE INDEX (timers) WHERE state = 'scheduled' AND run_at <= "+now+")").Scan(&clock, &due)
	if err != nil {
		return s, mysql.Translate(ctx, "look for scheduled tasks", err)
	}
	var dueErr, forgetErr, behindErr error
	free := make(map[string]bool)
	whole := time.Now().After(q.sweeps.whole)
	if whole {
		forgot, forgetErr = q.forgetKeys(ctx)
		behindErr = q.freeBehind(ctx, free)
	}
	if due {
		s.Due, dueErr = q.wakeDue(ctx, free)
	}
	took, leaseErr := q.endLeases(ctx, clock, whole, free)
	passed, keyErr := q.passKeys(ctx, free)
	err = errors.Join(dueErr, leaseErr, keyErr, forgetErr, behindErr)
	s.TookOver, s.More = took, err == nil && (forgot || passed || s.Due == sweepSize || took >= sweepSize)
	if whole && !s.More {
		q.sweeps.whole = time.Now().Add(wholeSweep)
	}
	q.notifyAll(free)
	return s, err
}

// wakeDue makes scheduled tasks wait whose time has come.
func (q *Queue) wakeDue(ctx context.Context, free map[string]bool) (n int, err error) {
	err = mysql.Transact(ctx, q.db, "wake scheduled tasks", func(tx *sql.Tx) error {
		list, err := mysql.Select(ctx, tx, scanPlace, dueTasks, sweepSize)
		if err == nil {
			list, err = change(ctx, tx, list, taskID, update+"state = 'waiting' WHERE id IN ")
		}
		n = note(list, free)
		return err
	})
	return n, err
}

func scanPlace(rows *sql.Rows) (t Task, err error) {
	err = rows.Scan(&t.ID, &t.Queue)
	return t, err
}

// note notes the queues of tasks, and returns how many they are.
func note(list []Task, queues map[string]bool) int {
	for _, t := range list {
		queues[t.Queue] = true
	}
	return len(list)
}

// endLeases brings the tasks back whose lease ran out, or buries those that have no attempts left. The
// locking read sees what is finished, and which leases were extended.
func (q *Queue) endLeases(ctx context.Context, clock uint64, whole bool, free map[string]bool) (n int, err error) {
	since := q.sweeps.since
	if whole {
		since = 0
	}
	over, err := mysql.Select(ctx, q.db, mysql.Column[uint64], endedIDs, since, sweepSize)
	if err == nil && whole {
		var future []uint64
		future, err = mysql.Select(ctx, q.db, mysql.Column[uint64], futureIDs, sweepSize)
		over = append(over, future...)
	}
	if err != nil {
		return 0, mysql.Translate(ctx, "look for leases that ran out", err)
	}
	if len(over) > 0 {
		err = mysql.Transact(ctx, q.db, "free tasks whose lease ran out", func(tx *sql.Tx) (err error) {
			n, err = q.takeOver(ctx, tx, over, free)
			return err
		})
	}
	if err == nil && len(over) < sweepSize {
		q.sweeps.since = clock - min(clock, lateCommit)
	}
	return n, err
}

func (q *Queue) takeOver(ctx context.Context, tx *sql.Tx, over []uint64, free map[string]bool) (n int, err error) {
	list, err := mysql.Select(ctx, tx, scanPlace, endedTasks+idList(over, itself)+" ORDER BY id FOR UPDATE SKIP LOCKED")
	if err != nil {
		return 0, err
	}
	if list, err = change(ctx, tx, list, taskID, endLeases); err != nil {
		return 0, err
	}
	return note(list, free), nil
}

// heldKey is a row of held_keys, and the state of its task; "": it is gone.
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

// passKeys looks at the ordering keys that come next, and mends those whose task can neither run nor is next: its lease ran out, it was
// discarded, or was locked when its turn came. more: it mended some.
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

// freeBehind looks at the tasks behind others that come next, and lets those wait whose key no task holds: a claim puts them in order.
func (q *Queue) freeBehind(ctx context.Context, free map[string]bool) error {
	at := &q.sweeps.behind
	var alone []uint64
	list, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (t aside, err error) {
		var queue string
		var isAlone bool
		if err = rows.Scan(&t.runAt, &t.id, &queue, &isAlone); isAlone {
			alone, free[queue] = append(alone, t.id), true
		}
		return t, err
	}, nextBehind, at.runAt, at.runAt, at.id, sweepSize)
	if err != nil {
		return mysql.Translate(ctx, "look at tasks behind others", err)
	}
	if *at = (aside{}); len(list) == sweepSize {
		*at = list[sweepSize-1]
	}
	if len(alone) == 0 {
		return nil
	}
	return mysql.Transact(ctx, q.db, "free tasks behind no other", func(tx *sql.Tx) error {
		_, err := bringBack(ctx, tx, alone)
		return err
	})
}

// mend passes a key on, or brings its task back. Once its row is locked, no claim can start the task that it names.
func (q *Queue) mend(ctx context.Context, tx *sql.Tx, k heldKey) (mended bool, err error) {
	locked, err := ids(ctx, tx, "SELECT task_id FROM held_keys WHERE queue = ? AND subject = ? FOR UPDATE SKIP LOCKED", k.Queue, k.Key)
	if err != nil || len(locked) == 0 || locked[0] != k.ID {
		return false, err
	}
	now, err := mysql.Select(ctx, tx, scanHeldKey, "SELECT queue, subject, id, state FROM tasks FORCE INDEX (PRIMARY) WHERE id = ?", k.ID)
	switch {
	case err != nil || len(now) > 0 && !now[0].isStale():
		return false, err
	case len(now) > 0 && now[0].state == behind && now[0].Queue == k.Queue && now[0].Key == k.Key:
		n, err := bringBack(ctx, tx, []uint64{k.ID})
		return n > 0, err
	}
	_, err = q.passOn(ctx, tx, k.Queue, []uint64{k.Key})
	return true, err
}
