package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// asideSize is the number of tasks that a claim looks at after a look that found tasks to put aside and no task to run.
const asideSize = 500

// Claim leases up to n due tasks of a queue to [Options].Owner, of any kinds, by priority and then by id. [Task].Lease is the token of
// the lease, which cannot be guessed. Whatever happens to the claimer, the tasks are free again after the lease, which lasts
// [MaxLease] at most, and a [Queue.Sweep]. A paused queue gives no task.
//
// Of the tasks with the same ordering key (see [Kind]) a claim leases the first, in all processes, and puts the rest behind it, each
// once. The end of the task brings the next back. A task whose last two leases ran out is claimed alone: should it kill its
// workers, it takes no other task with it. Tasks that expired are deleted, tasks for later are scheduled, and a task with more than
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
	token := owner[:min(len(owner), 29)] + "/" + rand.Text() // as long as the column takes
	for limit := n; ; limit = max(limit, asideSize) {
		var c claiming
		err := mysql.Transact(ctx, q.db, "claim tasks of queue "+queue, func(tx *sql.Tx) error {
			c = claiming{Queue: q, tx: tx, queue: queue, token: token, n: n, limit: limit, lease: min(lease, MaxLease)}
			return c.do(ctx)
		})
		if err != nil {
			return nil, q.unclaim(ctx, c.tasks(), err)
		}
		q.metrics.dropped.Add(float64(c.dropped))
		q.leaveKeys(ctx, c)
		if len(c.run) > 0 || c.aside == 0 && (c.read < limit || c.behindFront) {
			return c.tasks(), nil
		}
		if c.aside == 0 { // the first rows are locked, or cannot be changed: look behind them
			limit += n
		}
	}
}

// leaveKeys passes on the ordering keys of tasks that a claim put aside. If it fails, a sweep does it.
func (q *Queue) leaveKeys(ctx context.Context, c claiming) {
	if len(c.left) == 0 {
		return
	}
	var named bool
	err := mysql.Transact(ctx, q.db, "pass ordering keys on", func(tx *sql.Tx) (err error) {
		named, err = q.advance(ctx, tx, c.queue, c.left, true)
		return err
	})
	if err == nil && named && len(c.run) > 0 { // else the claim looks again
		q.notifyAll(map[string]bool{c.queue: true})
	}
}

var errUnclaimed = errors.New("the answer to its claim was lost")

// unclaim releases tasks that may be claimed after all, and returns the error of the claim.
func (q *Queue) unclaim(ctx context.Context, claimed []Task, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if len(claimed) > 0 {
		_, _ = q.Finish(ctx, released(claimed, errUnclaimed))
	}
	return err
}

// claiming is a transaction of a claim.
type claiming struct {
	*Queue

	tx       *sql.Tx
	queue    string
	token    string
	n, limit int
	lease    time.Duration

	now         uint64
	read        int
	behindFront bool // the look began at the front
	run         []candidate
	aside       int    // tasks that were put aside
	left        []Task // of them, with an ordering key that they may have held
	dropped     int
}

// candidate is a task that a claim has locked.
type candidate struct {
	Task
	ordered   bool
	keyed     bool // with a dedupe key
	lost      int
	runAt     uint64
	created   uint64
	expiresAt uint64
	bytes     int
}

func (c *claiming) tasks() []Task {
	list := make([]Task, len(c.run))
	for i := range c.run {
		list[i] = c.run[i].Task
	}
	return list
}

// selectNext locks the tasks that are next. It passes over tasks that another claim has locked, and tasks that stand for a change
// which is about to commit; see unlocked, too.
const (
	selectNext = "SELECT id, type, subject, " + boundedArgs + ", priority, LEAST(attempts, 65534) + 1, max_attempts, backoff, lost, COALESCE(expires_at, 0)," +
		" run_at, created_at, dedupe_key IS NOT NULL, " + now + " FROM tasks FORCE INDEX (claim) WHERE state = 'waiting' AND queue = ?" +
		" AND (SELECT COUNT(*) FROM paused_queues WHERE queue = ?) = 0"
	fromFront   = " AND priority = ? AND id >= ?"
	inTheirTurn = " ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED"
)

func (c *claiming) do(ctx context.Context) error {
	list, err := c.look(ctx)
	if err != nil || len(list) == 0 {
		return err
	}
	c.now = uint64(list[0].Claimed.UnixMilli())
	var run, ordered, expired, early, long []candidate
	for _, t := range list {
		switch {
		case t.expiresAt > 0 && t.expiresAt <= c.now:
			expired = append(expired, t)
		case t.runAt > c.now:
			early = append(early, t)
		case t.bytes > MaxPayload:
			long = append(long, t)
		case t.ordered:
			ordered = append(ordered, t)
		default:
			run = append(run, t)
		}
	}
	if err := c.putAside(ctx, expired, early, long); err != nil {
		return err
	}
	first, err := c.hold(ctx, ordered)
	if err != nil {
		return err
	}
	run = append(run, first...)
	slices.SortFunc(run, func(a, b candidate) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID)) })
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
func (c *claiming) look(ctx context.Context) (list []candidate, err error) {
	query, args := selectNext+inTheirTurn, []any{c.queue, c.queue, c.limit}
	f, use := c.front(c.queue)
	if use {
		query, args = selectNext+fromFront+inTheirTurn, []any{c.queue, c.queue, f.priority, f.id, c.limit}
	}
	began := time.Now()
	list, err = mysql.Select(ctx, c.tx, c.scan, query, args...)
	c.read, c.behindFront = len(list), use
	if err != nil {
		return nil, err
	}
	c.looked(c.queue, list, use, time.Since(began))
	return c.unlocked(ctx, list)
}

// unlocked leaves out tasks whose dedupe key a transaction has locked, as by an INSERT that found it taken: the start, which takes
// the key away, would wait for the end of the transaction.
func (c *claiming) unlocked(ctx context.Context, list []candidate) ([]candidate, error) {
	keyed := slices.DeleteFunc(slices.Clone(list), func(t candidate) bool { return !t.keyed })
	if len(keyed) == 0 {
		return list, nil
	}
	free, err := ids(ctx, c.tx, "SELECT k.id FROM tasks t FORCE INDEX (PRIMARY) STRAIGHT_JOIN tasks k FORCE INDEX (dedupe) ON k.dedupe_key = t.dedupe_key WHERE t.id IN "+
		idList(keyed, candidateID)+" FOR UPDATE SKIP LOCKED")
	slices.Sort(free)
	return slices.DeleteFunc(list, func(t candidate) bool {
		_, found := slices.BinarySearch(free, t.ID)
		return t.keyed && !found
	}), err
}

func (c *claiming) scan(rows *sql.Rows) (t candidate, err error) {
	var args []byte
	var clock, backoff uint64
	err = rows.Scan(&t.ID, &t.Kind, &t.Key, &args, &t.Priority, &t.Attempts, &t.MaxAttempts, &backoff, &t.lost, &t.expiresAt, &t.runAt, &t.created, &t.keyed, &clock)
	kind, _ := c.options.Kinds.of(t.Kind)
	t.ordered = c.options.Kinds.isOrdered(t.Task)
	t.bytes, t.Payload, t.Queue, t.Lease, t.Expires = len(args), payloadOf(args), c.queue, c.token, t.expiresAt != 0
	t.MaxAttempts = cmp.Or(t.MaxAttempts, kind.MaxAttempts, defaultAttempts)
	t.Backoff = cmp.Or(time.Duration(backoff)*time.Millisecond, kind.Backoff, firstBackoff)
	t.Created, t.Claimed = timeOf(t.created), timeOf(clock)
	t.Waited = max(0, t.Claimed.Sub(timeOf(max(t.runAt, t.created))))
	return t, err
}

func candidateID(t candidate) uint64 { return t.ID }

// putAside deletes tasks that expired, schedules tasks for later, and buries tasks that are too long.
func (c *claiming) putAside(ctx context.Context, expired, early, long []candidate) error {
	gone, err := change(ctx, c.tx, expired, candidateID, deleteTasks)
	if err != nil {
		return err
	}
	later, err := change(ctx, c.tx, early, candidateID, update+"state = 'scheduled' WHERE id IN ")
	if err != nil {
		return err
	}
	dead, err := change(ctx, c.tx, long, candidateID, update+buried+" WHERE id IN ", fmt.Sprintf("more bytes of args: at most %d are read", MaxPayload))
	c.dropped += len(gone)
	for _, t := range slices.Concat(gone, later, dead) {
		c.aside++
		if t.ordered {
			c.left = append(c.left, t.Task)
		}
	}
	return err
}

// together returns the first tasks of a list that may be in a lease together.
func (c *claiming) together(list []candidate) []candidate {
	list = list[:min(len(list), c.n)]
	suspect := slices.IndexFunc(list, func(t candidate) bool { return t.lost >= sharedAttempts })
	switch {
	case suspect == 0:
		return list[:1]
	case suspect > 0:
		return list[:suspect]
	}
	return list
}

// start leases tasks. It writes the limits of their kinds into the rows, for a sweep that ends the lease.
func (c *claiming) start(ctx context.Context, list []candidate) error {
	type limits struct {
		attempts int
		backoff  time.Duration
	}
	groups := make(map[limits][]candidate)
	for _, t := range list {
		is := limits{t.MaxAttempts, t.Backoff}
		groups[is] = append(groups[is], t)
	}
	started := make(map[uint64]bool)
	for is, some := range groups {
		done, err := change(ctx, c.tx, some, candidateID, update+"state = 'running', lease = ?, run_at = "+now+" + ?, started_at = "+now+
			", attempts = LEAST(attempts, 65534) + 1, max_attempts = ?, backoff = ?, dedupe_key = NULL WHERE id IN ",
			c.token, c.lease.Milliseconds(), is.attempts, is.backoff.Milliseconds())
		if err != nil {
			return err
		}
		for _, t := range done {
			started[t.ID] = true
		}
	}
	c.run = slices.DeleteFunc(list, func(t candidate) bool { return !started[t.ID] })
	return nil
}
