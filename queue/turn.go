package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// Dependency is what handlers need beside MySQL, such as the nodes of a cluster. Kinds of task name
// those that they need: [Kind].Needs. While it cannot be used, or a part of it, the tasks that need
// it are postponed, and no attempt is counted. Its methods must not block, and must be safe for
// concurrent use.
type Dependency interface {
	// Waits reports whether the error of a handler says that the task has to wait for it. It is
	// called once for each error.
	Waits(err error) bool
	// Usable reports whether the part that a task needs can be used, if that is known.
	Usable(kind string, key uint64) (usable, known bool)
	// Partly reports whether some parts can be used and others cannot: workers then go on with the
	// tasks of the former.
	Partly() bool
	// Back gets a value when a part can be used that could not, or was not known. The tasks that
	// wait for it are then brought forward, by one pool.
	Back() <-chan struct{}
}

// While parts of a dependency cannot be used, this process makes turnRate tries a second of the
// tasks that wait for it, so that they delay the others little, however many they are: each try is
// two changes of a row, and one by the sweep. A task waits for maxPause at most while they
// are fewer than about a thousand, and always for maxTurn at most.
// When a part is back, they are brought forward.
const (
	turnRate = 500
	maxTurn  = 5 * time.Minute
	// maxCountedTurn is maxTurn of tasks that have failed before, or were lost, which are few:
	// nothing shows what they wait for, so they are not brought forward.
	maxCountedTurn = 4 * time.Second
)

// dependency is a Dependency in a run.
type dependency struct {
	*run
	Dependency

	name string

	mu   sync.Mutex
	turn time.Time // of the next task that waits for it
}

// waits reports whether a task whose handler was called at a time has to wait, by the handler's
// error, and for what; nil: for MySQL.
func (r *run) waits(t Task, began time.Time, err error) (on *dependency, waits bool) {
	k, _ := r.kinds.of(t.Kind)
	for _, name := range k.Needs {
		if d := r.needs[name]; d != nil && d.Waits(err) {
			return d, true
		}
	}
	if !errors.Is(err, mysql.ErrUnavailable) {
		return nil, false
	}
	r.options.MySQL.Report(r.works, began, err)
	return nil, true
}

// takeTurn postpones a task that waits further, if too many do. If what it needs can be used, its
// error will soon pass.
func (d *dependency) takeTurn(result *Result) {
	if usable, known := d.Usable(result.Task.Kind, result.Task.Key); usable && known {
		return
	}
	d.mu.Lock()
	now := time.Now()
	pause := max(0, d.turn.Sub(now))
	d.turn = now.Add(min(pause, maxTurn) + time.Second/turnRate)
	d.mu.Unlock()
	limit := maxTurn
	if result.Task.Attempts > 1 {
		limit = maxCountedTurn
	}
	pause = min(pause, limit)
	if after := Judge(*result).After; 0 < after && after < pause { // 0: the process stops
		result.Err = Later(pause, result.Err)
	}
}

// Tasks are brought forward forwardSize at a time, with pauses of about forwardPause, so that a
// new task does not wait behind more of them than that.
const (
	forwardSize  = 1000
	forwardPause = 200 * time.Millisecond
)

// bringForward brings the tasks forward that wait for a dependency, each time that it is back, until
// the stop.
func (d *dependency) bringForward() {
	ctx := d.claiming
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.Back():
		}
		if !d.Partly() { // otherwise others still wait, and keep their turns
			d.mu.Lock()
			d.turn = time.Time{}
			d.mu.Unlock()
		}
		d.forwardAll(ctx, func(kind string, key uint64) bool {
			k, _ := d.kinds.of(kind)
			usable, known := d.Usable(kind, key)
			return slices.Contains(k.Needs, d.name) && (usable || !known)
		})
	}
}

// forwardAll brings all tasks forward that are ready.
func (r *run) forwardAll(ctx context.Context, ready func(kind string, key uint64) bool) {
	var from Place
	for failures := 0; ctx.Err() == nil; {
		began := time.Now()
		next, n, err := r.queue.Forward(ctx, from, ready)
		r.report(ctx, began, err, "tasks not brought forward")
		if n > 0 {
			r.notifier.NotifyAllLocal()
		}
		switch {
		case err != nil:
			failures++
			_ = retry.Sleep(ctx, retry.Backoff(failures, firstClaimPause, maxClaimPause))
			continue
		case next == Place{}:
			return
		case n > 0:
			_ = retry.Sleep(ctx, retry.Jitter(forwardPause))
		}
		from, failures = next, 0
	}
}

// Place is a place in the order in which scheduled tasks are due; the zero one is before all.
type Place struct {
	Due int64 // unix milliseconds
	ID  uint64
}

// Forward makes tasks waiting that were postponed without an attempt being counted, for no
// longer than those that wait for a [Dependency], and that are ready. It looks at some
// of them, in the order in which they are due, and returns how many were ready, and the place
// from which to go on; zero: there are no more.
//
// It leaves out a task that has failed before, and one that its producer scheduled: these wait
// for another reason.
func (q *Queue) Forward(ctx context.Context, from Place, ready func(kind string, key uint64) bool) (next Place, n int, err error) {
	var seen int
	var ids []uint64
	_, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (id uint64, err error) {
		var kind string
		var key uint64
		if err := rows.Scan(&next.ID, &kind, &key, &next.Due); err != nil {
			return 0, err
		}
		seen++
		if ready(kind, key) {
			ids = append(ids, next.ID)
		}
		return next.ID, nil
	}, selectPostponed, from.Due, maxTurn.Milliseconds(), from.Due, from.ID, forwardSize)
	if err != nil {
		return from, 0, mysql.Translate(ctx, "look for postponed tasks", err)
	}
	if len(ids) > 0 {
		n, err = q.changeFree(ctx, fmt.Sprintf("bring forward %d tasks", len(ids)), asTheyWere.unpark,
			"SELECT id FROM parked_tasks FORCE INDEX (PRIMARY) WHERE "+isPostponed+" AND id IN ("+mysql.Marks(len(ids))+")", mysql.Args(ids)...)
	}
	if n > 0 {
		q.cursors.forget()
	}
	switch {
	case err != nil:
		return from, 0, err
	case seen < forwardSize:
		next = Place{}
	}
	return next, n, nil
}

// isPostponed is the condition of a task that was tried, and whose attempt did not count.
const isPostponed = "state = 'scheduled' AND attempts = 0 AND last_error IS NOT NULL"

const selectPostponed = "SELECT id, type, subject, due_at FROM parked_tasks FORCE INDEX (timers) WHERE " + isPostponed +
	" AND due_at >= GREATEST(?, " + now + ") AND due_at <= " + now + " + ? AND NOT (due_at = ? AND id <= ?) ORDER BY due_at, id LIMIT ?"
