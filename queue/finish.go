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
func lockLeased(ctx context.Context, tx *sql.Tx, list []Task) (leases map[uint64]string, err error) {
	leases = make(map[uint64]string, len(list))
	if len(list) == 0 {
		return leases, nil
	}
	_, err = mysql.Select(ctx, tx, func(rows *sql.Rows) (id uint64, err error) {
		var lease string
		err = rows.Scan(&id, &lease)
		leases[id] = lease
		return id, err
	}, "SELECT id, lease FROM tasks FORCE INDEX (PRIMARY) WHERE state = 'running' AND id IN "+idList(list, taskID)+" ORDER BY id FOR UPDATE")
	return leases, err
}

func taskID(t Task) uint64 { return t.ID }

// Extend makes the leases of the held tasks end after lease from now, at most [MaxLease]. It returns how many of the leases are lost;
// they stay so. It is a single statement for each claim: a heartbeat must be quick, also over a slow line.
func (q *Queue) Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error) {
	byLease := make(map[string][]Task)
	for _, t := range held {
		byLease[t.Lease] = append(byLease[t.Lease], t)
	}
	for token, list := range byLease {
		n, err := mysql.Affected(q.db.ExecContext(ctx, update+"run_at = "+now+" + ? WHERE lease = ? AND state = 'running' AND id IN "+idList(list, taskID),
			min(lease, MaxLease).Milliseconds(), token))
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
		lease := results[0].Task.Lease
		n, err := mysql.Affected(q.db.ExecContext(ctx, deleteTasks+idList(results, resultID)+" AND state = 'running' AND lease = ?", lease))
		if err == nil || !mysql.IsRetryable(err) && !mysql.IsRowRefused(err) {
			return len(results) - n, mysql.Translate(ctx, what, err)
		}
	}
	var f finishing
	var done *enqueuing
	err = mysql.Transact(ctx, q.db, what, func(tx *sql.Tx) error {
		f = finishing{Queue: q, tx: tx, free: make(map[string]bool)}
		done, err = f.do(ctx, results)
		return err
	})
	if err != nil {
		return 0, err
	}
	q.notifyAll(f.free)
	if len(f.next) > 0 {
		q.committed(f.next, done)
	}
	return len(results) - len(f.ended), nil
}

func resultID(r Result) uint64 { return r.Task.ID }

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
	ended []Result
	next  []New
	free  map[string]bool // queues in which tasks wait again
}

// end is the end of some tasks.
type end struct {
	state     State
	after     time.Duration
	uncounted bool
	message   string
}

func (f *finishing) do(ctx context.Context, results []Result) (done *enqueuing, err error) {
	tasks := make([]Task, len(results))
	for i, r := range results {
		tasks[i] = r.Task
	}
	leases, err := lockLeased(ctx, f.tx, tasks)
	if err != nil {
		return nil, err
	}
	groups, leave := make(map[end][]Result), make(map[string][]Task)
	for _, r := range results {
		if leases[r.Task.ID] != r.Task.Lease || r.Task.Lease == "" {
			continue
		}
		delete(leases, r.Task.ID) // it may come twice
		v := Judge(r)
		is := end{v.State, v.After, v.Uncounted, v.Message}
		groups[is] = append(groups[is], r)
	}
	for is, list := range groups {
		if err := f.write(ctx, is, list); err != nil {
			return nil, err
		}
		for _, r := range list { // buried or not: their work is done
			f.ended = append(f.ended, r)
			f.next = append(f.next, Judge(r).Next...)
			if is.state == Waiting {
				f.free[r.Task.Queue] = true
			} else if f.options.Kinds.isOrdered(r.Task) {
				leave[r.Task.Queue] = append(leave[r.Task.Queue], r.Task)
			}
		}
	}
	if f.next, err = f.options.Kinds.Validate(f.next); err != nil {
		return nil, err
	}
	if done, err = enqueue(ctx, f.tx, f.options.Kinds, f.next, true); err != nil {
		return nil, err
	}
	return done, f.leave(ctx, leave)
}

// leave passes on the ordering keys of tasks that ended, by queue.
func (f *finishing) leave(ctx context.Context, ended map[string][]Task) error {
	for _, queue := range slices.Sorted(maps.Keys(ended)) {
		named, err := f.advance(ctx, f.tx, queue, ended[queue], false)
		if err != nil {
			return err
		}
		if named {
			f.free[queue] = true
		}
	}
	return nil
}

// write records the end of some tasks, and buries tasks whose change is refused.
func (f *finishing) write(ctx context.Context, is end, list []Result) (err error) {
	switch is.state {
	case Done:
		_, err = change(ctx, f.tx, list, resultID, deleteTasks)
	case Dead:
		_, err = change(ctx, f.tx, list, resultID, update+buried+", lost = 0 WHERE id IN ", is.message)
	case Waiting, Scheduled, Running:
		_, err = change(ctx, f.tx, list, resultID, update+"state = ?, run_at = "+now+" + ?, lease = '', lost = 0, attempts = attempts - IF(?, 1, 0), last_error = ? WHERE id IN ",
			is.state, is.after.Milliseconds(), is.uncounted, is.message)
	}
	return err
}
