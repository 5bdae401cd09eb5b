package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// Workers that are no [Pool], as a program in another language that asks by HTTP, claim by [Queue.ClaimAs] as pools do, and know a lease by
// its token alone.

// leased returns the tasks of a lease of a queue, and when the lease ends; [ErrLeaseLost] if there is none.
func (q *Queue) leased(ctx context.Context, queue, token string) (list []Task, ends time.Time, err error) {
	list, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (Task, error) {
		t := Task{Queue: queue, Lease: token}
		var backoff, end uint64
		err := rows.Scan(&t.ID, &t.Kind, &t.Key, &t.Attempts, &t.MaxAttempts, &backoff, &end)
		t.Backoff, ends = time.Duration(backoff)*time.Millisecond, timeOf(end)
		return t, err
	}, "SELECT id, type, subject, attempts, max_attempts, backoff, run_at FROM tasks FORCE INDEX (claim)"+
		" WHERE state = 'running' AND queue = ? AND lease = ? AND run_at > "+now, queue, token)
	if err == nil && len(list) == 0 {
		err = ErrLeaseLost
	}
	return list, ends, mysql.Translate(ctx, "look for the tasks of a lease", err)
}

// FinishLease records results of tasks of a lease of a queue, of which only the ids count, and returns how many tasks of the lease are
// open. An id that the lease does not have is ignored: its task ended before. A task without a result stays leased. [ErrLeaseLost] says
// that the lease ran out, or that all of its tasks ended before; then nothing is changed.
func (q *Queue) FinishLease(ctx context.Context, queue, token string, ends []Result) (open int, err error) {
	list, _, err := q.leased(ctx, queue, token)
	if errors.Is(err, ErrLeaseLost) {
		q.metrics.leasesLost.Add(float64(len(ends)))
	}
	if err != nil {
		return 0, err
	}
	var results []Result
	for _, r := range ends {
		if i := slices.IndexFunc(list, func(t Task) bool { return t.ID == r.Task.ID }); i >= 0 {
			r.Task = list[i]
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
		q.metrics.finished.WithLabelValues(queue, q.metrics.label(r.Task.Kind), Judge(r).label()).Inc()
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
