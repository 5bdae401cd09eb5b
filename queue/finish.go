package queue

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// ErrLeaseLost says that another worker may have a task by now, or that it is finished.
var ErrLeaseLost = errors.New("the lease was lost")

// Hold keeps the leases of tasks until the end of a transaction in the queue's database, or fails
// with [ErrLeaseLost]. Several transactions may hold the tasks of one claim at a time.
func Hold(ctx context.Context, tx *sql.Tx, held []Task) error {
	leased, err := lockLeased(ctx, tx, held, "LOCK IN SHARE MODE")
	if err == nil && slices.ContainsFunc(held, func(t Task) bool { return leased[t.ID] != t.Lease }) {
		return ErrLeaseLost
	}
	return err
}

// lockLeased locks the rows of tasks, in the order of their ids, and returns the leases that they have.
func lockLeased(ctx context.Context, tx *sql.Tx, list []Task, lock string) (leases map[uint64]string, err error) {
	leases = make(map[uint64]string, len(list))
	if len(list) == 0 {
		return leases, nil
	}
	_, err = mysql.Select(ctx, tx, func(rows *sql.Rows) (id uint64, err error) {
		var lease string
		err = rows.Scan(&id, &lease)
		leases[id] = lease
		return id, err
	}, "SELECT id, lease FROM tasks FORCE INDEX (PRIMARY) WHERE state = 'running' AND id IN "+idList(list, taskID)+" ORDER BY id "+lock)
	return leases, err
}

func taskID(t Task) uint64 { return t.ID }

// Extend makes the leases of the held tasks end after lease from now. Those
// whose lease was lost stay so and are counted in lost.
//
// It is one statement for each claim, without a transaction around it: a heartbeat must be
// quick, also over a slow line.
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

// Finish records results, and enqueues their follow-up tasks in the same transaction.
// Those whose lease was lost to another worker, or that are finished, are without effect and
// counted in lost: the rows are locked first, so a worker that was paused past its lease finishes nothing.
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

// isOneDelete reports whether one DELETE finishes tasks: those of one lease that are done and leave nothing.
func (q *Queue) isOneDelete(results []Result) bool {
	return len(results) > 0 && !slices.ContainsFunc(results, func(r Result) bool {
		return r.Err != nil || len(r.Next) > 0 || r.Task.Lease != results[0].Task.Lease || q.isOrdered(r.Task)
	})
}

// isOrdered reports whether a task has an ordering key.
func (q *Queue) isOrdered(t Task) bool {
	kind, known := q.options.Kinds.of(t.Kind)
	return t.Key != 0 && (kind.Ordered || !known)
}

// finishing is one transaction of a finish.
type finishing struct {
	*Queue

	tx    *sql.Tx
	ended []Result
	next  []New
	free  map[string]bool // queues in which tasks wait again
}

// end is what becomes of some tasks alike.
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
	leases, err := lockLeased(ctx, f.tx, tasks, "FOR UPDATE")
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
		for _, r := range list { // also those that were buried: their work is done
			f.ended = append(f.ended, r)
			f.next = append(f.next, Judge(r).Next...)
			if is.state == Waiting {
				f.free[r.Task.Queue] = true
			} else if f.isOrdered(r.Task) {
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
		named, err := f.advance(ctx, f.tx, queue, ended[queue])
		if err != nil {
			return err
		}
		if named {
			f.free[queue] = true
		}
	}
	return nil
}

// write records the end of some tasks, of which a refused one is buried.
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

// advance passes the ordering keys of a queue that tasks hold on to the next task of each, which then waits, or frees
// the keys of which no task is behind. The rows of the keys are locked before it looks for the next: what claims have
// put behind them is committed then. named: some key has a next task.
func (q *Queue) advance(ctx context.Context, tx *sql.Tx, queue string, holders []Task) (named bool, err error) {
	byKey := make(map[uint64]uint64)
	for _, t := range holders {
		byKey[t.Key] = t.ID
	}
	keys := slices.Sorted(maps.Keys(byKey))
	var held []uint64
	_, err = mysql.Select(ctx, tx, func(rows *sql.Rows) (key uint64, err error) {
		var id uint64
		if err = rows.Scan(&key, &id); byKey[key] == id {
			held = append(held, key)
		}
		return key, err
	}, readHolds+mysql.Marks(len(keys))+") FOR UPDATE", append([]any{queue}, mysql.Args(keys)...)...)
	if err != nil || len(held) == 0 {
		return false, err
	}
	return q.passOn(ctx, tx, queue, held)
}

// nextOfKeys reads the first task behind each key, and the first ordered one that waits: a claim may not have come to it yet. One
// behind may be to come later, if the clock was set back: then the next claim schedules it.
func (q *Queue) nextOfKeys() (query string, args []any) {
	ordered, args := q.ordered("b")
	return "SELECT h.subject" + nextIn(behind, "") + nextIn(string(Waiting), " AND b.run_at <= "+now+ordered) + " FROM held_keys h FORCE INDEX (PRIMARY) WHERE h.queue = ? AND h.subject IN (", args
}

// ordered is a condition that leaves out the tasks of a table which have no ordering key, whatever their subjects. Names are compared as [Kinds] do.
func (q *Queue) ordered(table string) (condition string, args []any) {
	for _, k := range q.options.Kinds {
		if !k.Ordered {
			args = append(args, k.Name)
		}
	}
	if len(args) == 0 {
		return "", nil
	}
	return " AND CAST(" + table + ".type AS BINARY) NOT IN (" + mysql.Marks(len(args)) + ")", args
}

// nextIn selects the priority and the id of the first task of a key in a state.
func nextIn(state, condition string) string {
	return ", COALESCE((SELECT CONCAT(b.priority, ' ', b.id) FROM tasks b FORCE INDEX (subjects) WHERE b.subject = h.subject AND b.state = '" + state +
		"' AND b.queue = h.queue" + condition + " ORDER BY b.priority, b.id LIMIT 1), '')"
}

// passOn is advance for keys whose rows are locked.
func (q *Queue) passOn(ctx context.Context, tx *sql.Tx, queue string, held []uint64) (named bool, err error) {
	var next []uint64
	var values, free []any
	query, args := q.nextOfKeys()
	_, err = mysql.Select(ctx, tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var key uint64
		var texts [2]string
		var priorities [2]int
		var found [2]uint64
		err = rows.Scan(&key, &texts[0], &texts[1])
		for i, text := range texts {
			_, _ = fmt.Sscan(text, &priorities[i], &found[i]) // "": there is none
		}
		id := found[0]
		if id == 0 || found[1] != 0 && cmp.Or(cmp.Compare(priorities[1], priorities[0]), cmp.Compare(found[1], found[0])) < 0 {
			id = found[1]
		}
		if id == 0 {
			free = append(free, key)
		} else {
			next, values = append(next, id), append(values, queue, key, id)
		}
		return struct{}{}, err
	}, query+mysql.Marks(len(held))+")", slices.Concat(args, []any{queue}, mysql.Args(held))...)
	if err == nil && len(free) > 0 {
		_, err = tx.ExecContext(ctx, deleteKeys+mysql.Marks(len(free))+")", append([]any{queue}, free...)...)
	}
	if err == nil && len(next) > 0 {
		_, err = tx.ExecContext(ctx, "INSERT INTO held_keys (queue, subject, task_id) VALUES "+marks("(?,?,?)", len(next))+" ON DUPLICATE KEY UPDATE task_id = VALUES(task_id)", values...)
		if err == nil {
			_, err = bringBack(ctx, tx, next)
		}
	}
	return len(next) > 0, err
}

// bringBack lets tasks wait that were behind others. One that is locked, as a change is deduped into it just now, is brought
// back by a sweep.
func bringBack(ctx context.Context, tx *sql.Tx, next []uint64) (n int, err error) {
	free, err := ids(ctx, tx, "SELECT id FROM tasks FORCE INDEX (PRIMARY) WHERE state = 'behind' AND id IN "+idList(next, itself)+" FOR UPDATE SKIP LOCKED")
	if err == nil {
		free, err = change(ctx, tx, free, itself, update+"state = 'waiting' WHERE id IN ")
	}
	return len(free), err
}

// Dedupe deletes the tasks that are the same work as a held one, by the dedupe keys of their
// kinds, and have not been started, and returns how many they were. The
// caller does their work, and reads what is true only afterwards. A task
// whose lease is lost stands for no other: if its worker fails now, no task would
// do that work. One that stands for another does not expire any more.
//
// A task is passed over while it is locked: by the transaction of a change that was deduped into it, which cannot be
// seen yet.
func (q *Queue) Dedupe(ctx context.Context, held []Task) (deduped int, err error) {
	const most = 5000 // what one transaction deletes
	for n := most; n == most && len(held) > 0; deduped += n {
		err := mysql.Transact(ctx, q.db, "dedupe tasks", func(tx *sql.Tx) (err error) {
			n, err = q.dedupe(ctx, tx, held, most)
			return err
		})
		if err != nil {
			return deduped, err
		}
	}
	return deduped, nil
}

func (q *Queue) dedupe(ctx context.Context, tx *sql.Tx, held []Task, most int) (n int, err error) {
	leases, err := lockLeased(ctx, tx, held, "FOR UPDATE")
	ours := slices.DeleteFunc(slices.Clone(held), func(t Task) bool { return leases[t.ID] != t.Lease })
	if err != nil || len(ours) == 0 {
		return 0, err
	}
	keys, kinds := make(map[uint64]bool), make(map[string]bool)
	for _, t := range ours {
		keys[t.Key], kinds[t.Kind] = true, true
	}
	found, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (t Task, err error) {
		var payload []byte
		err = rows.Scan(&t.ID, &t.Kind, &t.Key, &payload)
		t.Payload = payloadOf(payload)
		return t, err
	}, "SELECT id, type, subject, "+boundedArgs+" FROM tasks FORCE INDEX (subjects) WHERE subject IN ("+mysql.Marks(len(keys))+") AND state IN ('waiting', 'behind', 'scheduled')"+
		" AND type IN ("+mysql.Marks(len(kinds))+") LIMIT ? FOR UPDATE SKIP LOCKED",
		slices.Concat(mysql.Args(slices.Collect(maps.Keys(keys))), mysql.Args(slices.Collect(maps.Keys(kinds))), []any{most})...)
	if err != nil {
		return 0, err
	}
	var same, mortal []Task
	for _, t := range found {
		if slices.ContainsFunc(ours, func(o Task) bool { return q.options.Kinds.standsFor(o, t.Kind, t.Key, t.Payload) }) {
			same = append(same, t)
		}
	}
	if same, err = change(ctx, tx, same, taskID, deleteTasks); err != nil || len(same) == 0 {
		return 0, err
	}
	for _, t := range ours {
		if t.Expires {
			mortal = append(mortal, t)
		}
	}
	_, err = change(ctx, tx, mortal, taskID, update+"expires_at = NULL WHERE id IN ")
	return len(same), err
}
