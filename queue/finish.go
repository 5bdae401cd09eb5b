package queue

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// ErrLeaseLost says that a task is finished, or that another worker may have it by now.
var ErrLeaseLost = errors.New("the lease was lost")

// lockLeased locks the rows of tasks, in the order of their ids, and returns the leases that they have.
func lockLeased[T hasID](ctx context.Context, tx *sql.Tx, list []T) (leases map[uint64]string, err error) {
	leases = make(map[uint64]string, len(list))
	if len(list) == 0 {
		return leases, nil
	}
	_, err = mysql.Select(ctx, tx, func(rows *sql.Rows) (id uint64, err error) {
		var lease string
		err = rows.Scan(&id, &lease)
		leases[id] = lease
		return id, err
	}, "SELECT id, lease FROM tasks FORCE INDEX (PRIMARY) WHERE state = 'running' AND id IN "+idList(list)+" ORDER BY id FOR UPDATE")
	return leases, err
}

// Extend makes the leases of the held tasks end after lease from now, at most [MaxLease]. It returns how many of the leases are lost, or
// of tasks that are finished; they stay so. It is a single statement for each claim: a heartbeat must be quick, also over a slow line.
func (q *Queue) Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error) {
	for token, list := range groupBy(held, func(t Task) string { return t.Lease }) {
		n, err := mysql.Affected(q.db.ExecContext(ctx, extendTasks+idList(list), min(lease, MaxLease).Milliseconds(), token))
		if err != nil {
			return 0, mysql.Translate(ctx, fmt.Sprintf("extend the leases of %d tasks", len(held)), err)
		}
		lost += len(list) - n
	}
	return lost, nil
}

// Finish records results, and enqueues their follow-up tasks in the same transaction. Results of tasks that are finished, or whose lease
// was lost, have no effect and are counted in lost. It locks the rows first: a worker that was paused past its lease finishes nothing.
func (q *Queue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	what := fmt.Sprintf("finish %d tasks", len(results))
	if q.isOneDelete(results) {
		n, err := mysql.Affected(q.db.ExecContext(ctx, deleteTasks+idList(results)+" AND state = 'running' AND lease = ?", results[0].Task.Lease))
		if err == nil || !mysql.IsRetryable(err) && !mysql.IsRowRefused(err) {
			return len(results) - n, mysql.Translate(ctx, what, err)
		}
	}
	var f finishing
	err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) error {
		f = finishing{Queue: q, tx: tx, free: make(map[string]bool)}
		return f.do(ctx, results)
	})
	if err != nil {
		return 0, err
	}
	q.cameBack(f.free)
	q.committed(f.next)
	return len(results) - len(f.ended), nil
}

// isOneDelete reports whether a DELETE finishes tasks: they are of the same lease, and done, without follow-ups and ordering keys.
func (q *Queue) isOneDelete(results []Result) bool {
	return len(results) > 0 && !slices.ContainsFunc(results, func(r Result) bool {
		return r.Err != nil || len(r.Next) > 0 || r.Task.Lease != results[0].Task.Lease || q.options.Kinds.isOrdered(r.Task)
	})
}

// finishing is a transaction of a finish.
type finishing struct {
	*Queue

	tx    *sql.Tx
	ended []Task
	next  []New
	free  map[string]bool // queues in which tasks wait again
}

func (f *finishing) do(ctx context.Context, results []Result) error {
	leases, err := lockLeased(ctx, f.tx, results)
	if err != nil {
		return err
	}
	verdicts, leave := make(map[Verdict][]Result), make(map[string][]Task)
	for _, r := range results {
		if leases[r.Task.ID] != r.Task.Lease || r.Task.Lease == "" {
			continue
		}
		delete(leases, r.Task.ID) // it may come twice
		v := Judge(r)
		verdicts[v] = append(verdicts[v], r)
		f.ended = append(f.ended, r.Task) // buried or not: its work is done
		f.next = append(f.next, r.FollowUps()...)
		if v.State == Waiting {
			f.free[r.Task.Queue] = true
		} else {
			leave[r.Task.Queue] = append(leave[r.Task.Queue], r.Task)
		}
	}
	for v, list := range verdicts {
		if err := f.end(ctx, v, list); err != nil {
			return err
		}
	}
	if f.next, err = f.options.Kinds.Validate(f.next); err != nil {
		return err
	}
	if _, err = enqueue(ctx, f.tx, f.options.Kinds, f.next, true); err != nil {
		return err
	}
	for _, queue := range slices.Sorted(maps.Keys(leave)) {
		named, err := f.advance(ctx, f.tx, queue, leave[queue])
		if err != nil {
			return err
		}
		if named {
			f.free[queue] = true
		}
	}
	return nil
}

// end records the verdict on some tasks.
func (f *finishing) end(ctx context.Context, v Verdict, list []Result) (err error) {
	if v.State == Done {
		_, err = change(ctx, f.tx, list, deleteTasks)
	} else {
		_, err = change(ctx, f.tx, list, endTasks, v.State, v.After.Milliseconds(), v.Uncounted, v.Message)
	}
	return err
}

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

// FinishLease is [Queue.Finish] for a worker that knows the token of its lease and ids of tasks alone, as a program that asks by HTTP.
// It returns how many tasks of the lease are open. An id that the lease does not have is ignored: its task ended before. A task without
// a result stays leased. [ErrLeaseLost] says that the lease ran out, or that all of its tasks ended before; then nothing is changed.
func (q *Queue) FinishLease(ctx context.Context, queue, token string, ends []Result) (open int, err error) {
	list, _, err := q.leased(ctx, queue, token)
	var results []Result
	for _, t := range list {
		if i := slices.IndexFunc(ends, func(r Result) bool { return r.Task.ID == t.ID }); i >= 0 {
			results = append(results, Result{t, ends[i].Err, ends[i].Next})
		}
	}
	if err == nil && len(results) > 0 {
		var lost int
		if lost, err = q.Finish(ctx, results); err == nil && lost == len(results) { // since the look
			err = ErrLeaseLost
		}
	}
	if errors.Is(err, ErrLeaseLost) {
		q.metrics.leasesLost.Add(float64(len(ends)))
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
