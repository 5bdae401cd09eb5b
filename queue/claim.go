package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

const (
	// sharedAttempts is the number of attempts in which a task may run beside further tasks. From the next attempt on it runs alone, as
	// it may be the cause of their failures. It is two: most tasks whose first attempt was lost were in a process that was killed
	// for another reason, often with a thousand tasks.
	sharedAttempts = 2
	// asideSize is the number of tasks that a claim looks at after a look that found tasks to put aside and no task to run.
	asideSize = 500
	// maxOwner is as long as the column lease takes, before a random text.
	maxOwner = 29
)

// Claim leases up to n due tasks of a queue to [Options].Owner, of any kinds, by priority and then by id. [Task].Lease is the token of
// the lease, which cannot be guessed. Whatever happens to the claimer, the tasks are free again after the lease, which lasts
// [MaxLease] at most, and a [Queue.Sweep]. A paused queue gives no task.
//
// Of the tasks with the same ordering key (see [Kind]) a claim leases the first, in all processes, and puts the rest behind it, each
// once. The end of the task brings the next back. A task whose last two leases ran out is claimed alone: should it kill its
// workers, it takes no other with it. Tasks that expired are deleted, tasks for later are scheduled, and a task with more than
// [MaxPayload] bytes of arguments is dead with that reason.
//
// After an error no task is leased: if the answer to a commit was lost, Claim releases the tasks. If it cannot, they are free when
// the lease ends.
func (q *Queue) Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error) {
	return q.ClaimAs(ctx, q.options.Owner, queue, n, lease)
}

// ClaimAs is [Queue.Claim] for a worker with a name of its own, as a worker that asks by HTTP.
func (q *Queue) ClaimAs(ctx context.Context, owner, queue string, n int, lease time.Duration) ([]Task, error) {
	owner = strings.Map(func(r rune) rune {
		if unprintable(r) {
			return '?'
		}
		return r
	}, owner)
	token := owner[:min(len(owner), maxOwner)] + "/" + rand.Text()
	for limit := n; ; limit = max(limit, asideSize) {
		var c claiming
		err := mysql.Transact(ctx, q.db, "claim tasks of queue "+queue, func(tx *sql.Tx) error {
			c = claiming{Queue: q, tx: tx, queue: queue, token: token, n: n, limit: limit, lease: min(lease, MaxLease)}
			return c.do(ctx)
		})
		if err != nil {
			q.unclaim(ctx, c.run)
			return nil, err
		}
		q.metrics.dropped.Add(float64(c.dropped))
		if c.named {
			q.cameBack(map[string]bool{queue: true})
		}
		if len(c.run) > 0 || c.aside == 0 && c.read < limit {
			return c.run, nil
		}
		if c.aside == 0 { // the first rows are locked, or cannot be changed: look behind them
			limit *= 2
		}
	}
}

// unclaim releases tasks of a claim that failed: they may be leased, as the answer to its commit may have been lost.
func (q *Queue) unclaim(ctx context.Context, list []Task) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	results := make([]Result, len(list))
	for i, t := range list {
		results[i] = Result{Task: t, Err: Later(0, errors.New("the answer to its claim was lost"))}
	}
	if len(results) > 0 {
		_, _ = q.Finish(ctx, results)
	}
}

// claiming is a transaction of a claim.
type claiming struct {
	*Queue

	tx           *sql.Tx
	queue, token string
	n, limit     int
	lease        time.Duration

	read    int
	run     []Task
	aside   int  // tasks that were put aside
	dropped int  // tasks that expired
	named   bool // a task that was put aside had an ordering key, which has a next task
}

// candidate is a task that a claim has locked.
type candidate struct {
	Task
	ordered                   bool
	keyed                     bool // with a dedupe key
	lost, bytes               int
	runAt, created, expiresAt uint64
}

// inOrder compares tasks by priority, and then by id.
func inOrder(a, b Task) int {
	return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID))
}

func (c *claiming) do(ctx context.Context) error {
	list, err := c.look(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	clock := uint64(list[0].Claimed.UnixMilli())
	var run, ordered []candidate
	aside := make(map[string][]candidate) // by statement
	for _, t := range list {
		switch {
		case t.expiresAt > 0 && t.expiresAt <= clock:
			aside[deleteTasks] = append(aside[deleteTasks], t)
		case t.runAt > clock:
			aside[schedule] = append(aside[schedule], t)
		case t.bytes > MaxPayload:
			aside[buryLong] = append(aside[buryLong], t)
		case t.ordered:
			ordered = append(ordered, t)
		default:
			run = append(run, t)
		}
	}
	if err := c.putAside(ctx, aside); err != nil {
		return err
	}
	first, err := c.hold(ctx, ordered)
	if err != nil {
		return err
	}
	run = append(run, first...)
	slices.SortFunc(run, func(a, b candidate) int { return inOrder(a.Task, b.Task) })
	for len(run) > 0 && len(c.run) == 0 { // again if the server refuses to have any of them changed
		some := c.together(run)
		if err := c.start(ctx, some); err != nil {
			return err
		}
		run = run[len(some):]
	}
	return nil
}

// look reads the next tasks.
func (c *claiming) look(ctx context.Context) ([]candidate, error) {
	query, args := selectNext, []any{c.queue, c.queue}
	f, use := c.front(c.queue)
	if use {
		query, args = query+fromFront, append(args, f.priority, f.id)
	}
	began := time.Now()
	list, err := mysql.Select(ctx, c.tx, c.scan, query+inTheirTurn, append(args, c.limit)...)
	c.read = len(list)
	if err != nil {
		return nil, err
	}
	if !use {
		c.looked(c.queue, list, time.Since(began))
	}
	return c.unlocked(ctx, list)
}

// unlocked leaves out tasks whose dedupe key a transaction has locked, as by an INSERT that found it taken: the start, which takes
// the key away, would wait for the end of the transaction.
func (c *claiming) unlocked(ctx context.Context, list []candidate) ([]candidate, error) {
	keyed := slices.DeleteFunc(slices.Clone(list), func(t candidate) bool { return !t.keyed })
	if len(keyed) == 0 {
		return list, nil
	}
	free, err := mysql.Select(ctx, c.tx, mysql.Column[uint64], "SELECT k.id FROM tasks t FORCE INDEX (PRIMARY) STRAIGHT_JOIN tasks k FORCE INDEX (dedupe)"+
		" ON k.dedupe_key = t.dedupe_key WHERE t.id IN "+idList(keyed)+" FOR UPDATE SKIP LOCKED")
	return slices.DeleteFunc(list, func(t candidate) bool { return t.keyed && !slices.Contains(free, t.ID) }), err
}

func (c *claiming) scan(rows *sql.Rows) (t candidate, err error) {
	var args []byte
	var clock, backoff uint64
	err = rows.Scan(&t.ID, &t.Kind, &t.Key, &args, &t.Priority, &t.Attempts, &t.MaxAttempts, &backoff, &t.lost, &t.expiresAt, &t.runAt, &t.created, &t.keyed, &clock)
	kind, _ := c.options.Kinds.of(t.Kind)
	t.ordered = c.options.Kinds.isOrdered(t.Task)
	t.bytes, t.Payload, t.Queue, t.Lease = len(args), payloadOf(args), c.queue, c.token
	t.MaxAttempts = cmp.Or(t.MaxAttempts, kind.MaxAttempts, defaultAttempts)
	t.Backoff = cmp.Or(time.Duration(backoff)*time.Millisecond, kind.Backoff, firstBackoff)
	t.Created, t.Claimed = timeOf(t.created), timeOf(clock)
	t.Waited = max(0, t.Claimed.Sub(timeOf(max(t.runAt, t.created))))
	return t, err
}

// putAside deletes tasks that expired, schedules tasks for later, and buries tasks that are too long. It passes their ordering keys on.
func (c *claiming) putAside(ctx context.Context, aside map[string][]candidate) (err error) {
	var left []Task
	for statement, list := range aside {
		moved, err := change(ctx, c.tx, list, statement)
		if err != nil {
			return err
		}
		for _, t := range moved {
			left = append(left, t.Task)
		}
		if statement == deleteTasks {
			c.dropped = len(moved)
		}
	}
	c.aside = len(left)
	c.named, err = c.advance(ctx, c.tx, c.queue, left)
	return err
}

// together returns the first tasks of a list that may be in a lease together.
func (c *claiming) together(list []candidate) []candidate {
	list = list[:min(len(list), c.n)]
	if suspect := slices.IndexFunc(list, func(t candidate) bool { return t.lost >= sharedAttempts }); suspect >= 0 {
		return list[:max(1, suspect)]
	}
	return list
}

// start leases tasks. It writes the limits of their kinds into the rows, for a sweep that ends the lease.
func (c *claiming) start(ctx context.Context, list []candidate) error {
	type limits struct {
		attempts int
		backoff  time.Duration
	}
	for is, some := range groupBy(list, func(t candidate) limits { return limits{t.MaxAttempts, t.Backoff} }) {
		started, err := change(ctx, c.tx, some, startTasks, c.token, c.lease.Milliseconds(), is.attempts, is.backoff.Milliseconds())
		if err != nil {
			return err
		}
		for _, t := range started {
			c.run = append(c.run, t.Task)
		}
	}
	slices.SortFunc(c.run, inOrder)
	return nil
}
