package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// This file is for workers that are no [Pool], such as one in another language that asks by HTTP. They
// [Queue.Claim] as pools do, and know a lease by its token alone.

// End is how the work on a task ended.
type End struct {
	ID uint64
	// Err is nil when the task is done; [Permanent] and [Later] say what a plain error does not.
	Err error
	// After is when a task that failed is tried again; 0: as [Pool] does. The attempt counts.
	After time.Duration
}

// againError is an error that says when its task is tried again.
type againError struct {
	error
	after time.Duration
}

func (e *againError) Unwrap() error { return e.error }

// leasedTasks reads the tasks of a lease of a queue.
const leasedTasks = "SELECT id, type, subject, attempts, max_attempts, backoff FROM tasks FORCE INDEX (claim)" +
	" WHERE state = 'running' AND queue = ? AND lease = ? AND run_at > " + now

// leased returns the tasks of a lease of a queue that lasts.
func leased(ctx context.Context, db mysql.Querier, queue, token string) ([]Task, error) {
	if token == "" {
		return nil, ErrLeaseLost
	}
	list, err := mysql.Select(ctx, db, func(rows *sql.Rows) (Task, error) {
		t := Task{Queue: queue, Lease: token}
		var backoff int64
		err := rows.Scan(&t.ID, &t.Kind, &t.Key, &t.Attempts, &t.MaxAttempts, &backoff)
		t.Backoff = time.Duration(backoff) * time.Millisecond
		return t, err
	}, leasedTasks, queue, token)
	if err == nil && len(list) == 0 {
		err = ErrLeaseLost
	}
	return list, err
}

// FinishLease records how tasks of a lease ended, and returns how many of it did not yet. What it is not told of
// stays leased, and a task that ended before keeps the end that it had, so a call may be repeated. It returns [ErrLeaseLost] if
// no such lease of the queue lasts, or all of its tasks ended.
func (q *Queue) FinishLease(ctx context.Context, queue, token string, ends []End) (open int, err error) {
	list, err := leased(ctx, q.db, queue, token)
	if errors.Is(err, ErrLeaseLost) {
		q.metrics.leasesLost.Add(float64(len(ends)))
	}
	if err != nil {
		return 0, mysql.Translate(ctx, "look for the tasks of a lease", err)
	}
	var results []Result
	for _, e := range ends {
		i := slices.IndexFunc(list, func(t Task) bool { return t.ID == e.ID })
		if i < 0 {
			continue
		}
		if e.Err != nil && e.After > 0 {
			e.Err = &againError{e.Err, e.After}
		}
		results = append(results, Result{Task: list[i], Err: e.Err})
	}
	if _, err := q.Finish(ctx, results); err != nil {
		return 0, err
	}
	for _, r := range results {
		q.metrics.finished.WithLabelValues(queue, q.metrics.label(q.options.Kinds, r.Task.Kind), Judge(r).label()).Inc()
	}
	return len(list) - len(results), nil
}

// ExtendLease makes a lease of a queue end after lease from now, and returns when that is. It returns
// [ErrLeaseLost] if no such lease lasts, or all of its tasks ended.
func (q *Queue) ExtendLease(ctx context.Context, queue, token string, lease time.Duration) (until time.Time, err error) {
	list, err := leased(ctx, q.db, queue, token)
	if err != nil {
		return until, mysql.Translate(ctx, "look for the tasks of a lease", err)
	}
	lost, err := q.Extend(ctx, list, lease)
	if err == nil && lost == len(list) {
		err = ErrLeaseLost
	}
	if err != nil {
		return until, err
	}
	var ends uint64
	err = q.db.QueryRowContext(ctx, "SELECT COALESCE(MAX(run_at), 0) FROM tasks FORCE INDEX (PRIMARY) WHERE lease = ? AND id IN "+idList(list, taskID), token).Scan(&ends)
	return timeOf(ends), mysql.Translate(ctx, "look when a lease ends", err)
}

// Release makes claimed tasks wait again at once, as if they had not been claimed. Those whose lease is lost
// stay as they are.
func (q *Queue) Release(ctx context.Context, claimed []Task) error {
	if len(claimed) == 0 {
		return nil
	}
	_, err := q.Finish(ctx, handBack(claimed, 0, errReleased))
	return err
}

var errReleased = errors.New("its worker gave it back before it began")
