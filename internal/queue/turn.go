package queue

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
)

// While some servers of Redis are away, this process makes turnRate tries a second of the tasks
// that wait for them, so that they delay the others little, however many they are: each try is
// two changes of a row, and one by the sweep. A task waits for maxOutagePause at most while they
// are fewer than about a thousand, and always for maxTurn at most.
// When the server is back, they are brought forward: see [Pool.Back].
const (
	turnRate = 500
	maxTurn  = 5 * time.Minute
	// maxCountedTurn is maxTurn of tasks that have failed before, or were lost, which are few:
	// nothing shows that it is a server they wait for, so they are not brought forward.
	maxCountedTurn = 4 * time.Second
)

// takeTurn postpones those of the results that wait for a server further, if too many do.
func (r *run) takeTurn(results []Result, away []int) {
	now := time.Now()
	for _, i := range away {
		result := &results[i]
		if _, sure := r.options.Ready(result.Task.Kind, result.Task.Key); sure {
			continue
		}
		r.turnMu.Lock()
		pause := max(0, r.turn.Sub(now))
		r.turn = now.Add(min(pause, maxTurn) + time.Second/turnRate)
		r.turnMu.Unlock()
		limit := maxTurn
		if result.Task.Attempts > 1 {
			limit = maxCountedTurn
		}
		pause = min(pause, limit).Truncate(turnStep)
		if after := Judge(*result).After; 0 < after && after < pause { // 0: the process stops
			result.Err = Later(pause, result.Err)
		}
	}
}

// turnStep is what turns are rounded to: the tasks of a claim that get the same one are
// written by one statement.
const turnStep = 500 * time.Millisecond

// Back brings forward the tasks that were postponed because a server was away, and may be
// ready now: a server is back. It does not wait.
func (p *Pool) Back() {
	select {
	case p.back <- struct{}{}:
	default:
	}
}

// Tasks are brought forward forwardSize at a time, with pauses of about forwardPause, so that a
// new task does not wait behind more of them than that.
const (
	forwardSize  = 1000
	forwardPause = 200 * time.Millisecond
)

// bringForward does what [Pool.Back] asks for, until the stop.
func (r *run) bringForward() {
	ctx := r.claiming
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.back:
		}
		if !r.options.Partly() { // otherwise others still wait, and keep their turns
			r.turnMu.Lock()
			r.turn = time.Time{}
			r.turnMu.Unlock()
		}
		r.forwardAll(ctx)
	}
}

func (r *run) forwardAll(ctx context.Context) {
	ready := func(kind string, key uint64) bool {
		ready, _ := r.options.Ready(kind, key)
		return ready
	}
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
// longer than those that wait for a server that is away, and that are ready. It looks at some
// of them, in the order in which they are due, and returns how many were ready, and the place
// from which to go on; zero: there are no more.
//
// It leaves out a task that has failed before, and one that its producer scheduled: these wait
// for another reason.
func (q *MySQLQueue) Forward(ctx context.Context, from Place, ready func(kind string, key uint64) bool) (next Place, n int, err error) {
	var seen int
	var ids []any
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
		n, err = q.forward(ctx, ids)
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

const selectPostponed = "SELECT id, type, subject, due_at FROM tasks FORCE INDEX (timers) WHERE " + isPostponed +
	" AND due_at >= GREATEST(?, " + now + ") AND due_at <= " + now + " + ? AND NOT (due_at = ? AND id <= ?) ORDER BY due_at, id LIMIT ?"

// forward skips rows that are locked: the sweep or another process does the same with them.
func (q *MySQLQueue) forward(ctx context.Context, ids []any) (n int, err error) {
	err = mysql.Transact(ctx, q.db, fmt.Sprintf("bring forward %d tasks", len(ids)), func(tx *sql.Tx) error {
		n = 0
		free, err := mysql.Keys(ctx, tx, "SELECT id FROM tasks FORCE INDEX (PRIMARY) WHERE "+isPostponed+" AND id IN ("+mysql.Marks(len(ids))+") FOR UPDATE SKIP LOCKED", ids...)
		if err != nil || len(free) == 0 {
			return err
		}
		n, err = changeRows(ctx, tx, free, func(ids []any) (int, error) {
			return mysql.Affected(tx.ExecContext(ctx, updateTasks+"state = 'waiting', due_at = expires_at, updated_at = "+now+
				" WHERE state = 'scheduled' AND id IN ("+mysql.Marks(len(ids))+")", ids...))
		})
		return err
	})
	if n > 0 {
		q.cursors.forget()
	}
	return n, err
}
