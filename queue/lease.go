package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// End is the end of an attempt by a worker that is no [Pool], as a program in another language that asks by HTTP. Workers claim as pools
// do, and know a lease by its token alone.
type End struct {
	ID uint64
	// Err is nil when the task is done. A plain error uses up an attempt; see [Permanent] and [Later].
	Err error
	// After is the pause after a plain error; 0: as [Kind].Backoff says.
	After time.Duration
}

// againError is an error that says when its task is tried again.
type againError struct {
	error
	after time.Duration
}

func (e *againError) Unwrap() error { return e.error }

const leasedTasks = "SELECT id, type, subject, attempts, max_attempts, backoff, run_at FROM tasks FORCE INDEX (claim)" +
	" WHERE state = 'running' AND queue = ? AND lease = ? AND run_at > " + now

// leased returns the tasks of a lease of a queue, and when the lease ends; [ErrLeaseLost] if there is none.
func (q *Queue) leased(ctx context.Context, queue, token string) (list []Task, ends time.Time, err error) {
	list, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (Task, error) {
		t := Task{Queue: queue, Lease: token}
		var backoff, end uint64
		err := rows.Scan(&t.ID, &t.Kind, &t.Key, &t.Attempts, &t.MaxAttempts, &backoff, &end)
		t.Backoff, ends = time.Duration(backoff)*time.Millisecond, timeOf(end)
		return t, err
	}, leasedTasks, queue, token)
	if err == nil && len(list) == 0 {
		return nil, ends, ErrLeaseLost
	}
	return list, ends, mysql.Translate(ctx, "look for the tasks of a lease", err)
}

// FinishLease records how tasks of a lease of a queue ended, and returns how many tasks of the lease are open. An id that the lease does
// not have is ignored: its task ended before. A task without an end stays leased. [ErrLeaseLost] says that the lease ran out, or that
// all of its tasks ended before; then nothing is changed.
func (q *Queue) FinishLease(ctx context.Context, queue, token string, ends []End) (open int, err error) {
	list, _, err := q.leased(ctx, queue, token)
	if errors.Is(err, ErrLeaseLost) {
		q.metrics.leasesLost.Add(float64(len(ends)))
	}
	if err != nil {
		return 0, err
	}
	var results []Result
	for _, e := range ends {
		if i := slices.IndexFunc(list, func(t Task) bool { return t.ID == e.ID }); i >= 0 {
			r := Result{Task: list[i], Err: e.Err}
			if e.Err != nil && e.After > 0 {
				r.Err = &againError{e.Err, e.After}
			}
			results = append(results, r)
		}
	}
	if len(results) == 0 {
		return len(list), nil
	}
	lost, err := q.Finish(ctx, results)
	if err == nil && lost == len(results) { // since the look
		err = ErrLeaseLost
	}
	if err != nil {
		return 0, err
	}
	for _, r := range results {
		q.metrics.finished.WithLabelValues(queue, q.metrics.label(q.options.Kinds, r.Task.Kind), Judge(r).label()).Inc()
	}
	return len(list) - len(results), nil
}

// ExtendLease makes a lease of a queue end after lease from now, at most [MaxLease], and returns when it ends, by the database's clock.
// [ErrLeaseLost] says that the lease ran out, or that all of its tasks ended.
func (q *Queue) ExtendLease(ctx context.Context, queue, token string, lease time.Duration) (until time.Time, err error) {
	list, _, err := q.leased(ctx, queue, token)
	if err == nil {
		_, err = q.Extend(ctx, list, lease)
	}
	if err == nil {
		_, until, err = q.leased(ctx, queue, token)
	}
	return until, err
}
