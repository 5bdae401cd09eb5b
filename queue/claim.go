package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// asideSize is how many tasks a claim looks at that met some which it had to put aside and none to run.
const asideSize = 500

// Claim leases up to n due tasks of a queue to [Options].Owner, the urgent ones first, then in order of arrival. They may be of
// any kind. The token of the lease, which no one can guess, is in each task ([Task].Lease). Whatever happens to the claimer, they
// are free again after the lease, which lasts [MaxLease] at most, and a Sweep. A paused queue gives none.
//
// Of the tasks with one ordering key (see [Kind]) one is leased at a time, in all processes. A claim puts those behind
// it aside, once each; the end of the task brings the next one back.
//
// A task whose last leases ran out is claimed alone (see sharedAttempts): should it be what killed its workers, it takes no
// other with it. Tasks that expired are deleted, those that are to come later are scheduled, and one that has more than
// [MaxPayload] bytes of arguments is dead with that reason.
//
// After an error nothing is leased: if the answer to a commit was lost, Claim gives the tasks back. If the database is
// away then, too, they come back when the lease ends.
func (q *Queue) Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error) {
	return q.ClaimAs(ctx, q.options.Owner, queue, n, lease)
}

// ClaimAs is [Queue.Claim] for a worker with a name of its own, such as one that asks by HTTP.
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
		if c.aside == 0 { // the first rows cannot be changed: look behind them
			limit += n
		}
	}
}

// leaveKeys passes the ordering keys on whose tasks a claim has put aside. If that fails, a sweep does it.
func (q *Queue) leaveKeys(ctx context.Context, c claiming) {
	if len(c.left) == 0 {
		return
	}
	var named bool
	err := mysql.Transact(ctx, q.db, "pass ordering keys on", func(tx *sql.Tx) (err error) {
		named, err = q.advance(ctx, tx, c.queue, c.left)
		return err
	})
	if err == nil && named && len(c.run) > 0 { // else the claim looks again
		q.notifyAll(map[string]bool{c.queue: true})
	}
}

var errUnclaimed = errors.New("the answer to its claim was lost")

// unclaim releases what may have been claimed though that failed with an error, which it returns.
func (q *Queue) unclaim(ctx context.Context, claimed []Task, err error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if len(claimed) > 0 {
		_, _ = q.Finish(ctx, handBack(claimed, 0, errUnclaimed))
	}
	return err
}

// claiming is one transaction of a claim.
type claiming struct {
	*Queue

	tx       *sql.Tx
	queue    string
	token    string
	n, limit int
	lease    time.Duration

	now         uint64
	read        int
	behindFront bool // not all that waits was looked at
	run         []candidate
	aside       int    // tasks that were put aside, so that others are next
	left        []Task // those with an ordering key, which may have been next
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

// selectNext locks the tasks that are next. It passes over those that another claim has locked, and those that a
// transaction dedupes a task into just now: that commits before its task starts; see unlocked, too. A paused queue has none.
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
	for len(run) > 0 && len(c.run) == 0 { // those behind tasks that the server refuses to have changed
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

// unlocked leaves tasks out whose dedupe key a transaction of the site's has locked, as by an INSERT that found it taken: the start,
// which takes the key away, would wait for its end.
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
	kind, known := c.options.Kinds.of(t.Kind)
	t.ordered = t.Key != 0 && (kind.Ordered || !known)
	t.bytes, t.Payload, t.Queue, t.Lease, t.Expires = len(args), payloadOf(args), c.queue, c.token, t.expiresAt != 0
	t.MaxAttempts = cmp.Or(t.MaxAttempts, kind.MaxAttempts, defaultAttempts)
	t.Backoff = cmp.Or(time.Duration(backoff)*time.Millisecond, kind.Backoff, firstBackoff)
	t.Created, t.Claimed = timeOf(t.created), timeOf(clock)
	t.Waited = max(0, t.Claimed.Sub(timeOf(max(t.runAt, t.created))))
	return t, err
}

func candidateID(t candidate) uint64 { return t.ID }

// putAside deletes what expired, schedules what is to come later, and buries what is too long.
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

// The statements about the ordering keys of a queue. They are locked in the order of the primary key, by whoever locks
// several, and after rows of tasks.
const (
	holdKeys  = "INSERT IGNORE INTO held_keys (queue, subject, task_id) VALUES "
	readHolds = "SELECT subject, task_id FROM held_keys FORCE INDEX (PRIMARY) WHERE queue = ? AND subject IN ("
	// deleteKeys names the index for the same reason as deleteTasks.
	deleteKeys = "DELETE held_keys FROM held_keys FORCE INDEX (PRIMARY) WHERE task_id IS NOT NULL AND queue = ? AND subject IN ("
)

// firstOfKeys reads the first ordered task of each key that waits. It may be locked by another claim, which has it then.
func (q *Queue) firstOfKeys() (query string, args []any) {
	ordered, args := q.ordered("f")
	return "SELECT c.subject, COALESCE((SELECT f.id FROM tasks f FORCE INDEX (subjects) WHERE f.subject = c.subject AND f.state = 'waiting' AND f.queue = c.queue" +
		" AND f.run_at <= " + now + ordered + " ORDER BY f.priority, f.id LIMIT 1), c.id) FROM tasks c FORCE INDEX (PRIMARY) WHERE c.id IN ", args
}

// hold returns those of the ordered tasks that may run, and puts the others behind these.
//
// A key that no task holds is given to the first one that waits, whichever claim has that. Then the rows of the keys stay
// locked, so that no key passes to its next task before all that is put behind it here can be seen.
func (c *claiming) hold(ctx context.Context, ordered []candidate) (first []candidate, err error) {
	if len(ordered) == 0 {
		return nil, nil
	}
	byKey := make(map[uint64]candidate) // any task of the key
	for _, t := range ordered {
		byKey[t.Key] = t
	}
	firstOf := make(map[uint64]uint64)
	pair := func(into map[uint64]uint64) func(rows *sql.Rows) (struct{}, error) {
		return func(rows *sql.Rows) (_ struct{}, err error) {
			var key, id uint64
			err = rows.Scan(&key, &id)
			into[key] = id
			return struct{}{}, err
		}
	}
	query, args := c.firstOfKeys()
	_, err = mysql.Select(ctx, c.tx, pair(firstOf), query+idList(slices.Collect(maps.Values(byKey)), candidateID), args...)
	if err != nil {
		return nil, err
	}
	keys := slices.Sorted(maps.Keys(firstOf))
	var values []any
	for _, key := range keys {
		values = append(values, c.queue, key, firstOf[key])
	}
	if _, err = c.tx.ExecContext(ctx, holdKeys+marks("(?,?,?)", len(keys)), values...); err != nil {
		return nil, err
	}
	holders := make(map[uint64]uint64)
	_, err = mysql.Select(ctx, c.tx, pair(holders), readHolds+mysql.Marks(len(keys))+") LOCK IN SHARE MODE", append([]any{c.queue}, mysql.Args(keys)...)...)
	if err != nil {
		return nil, err
	}
	var behind []candidate
	for _, t := range ordered {
		switch holder, held := holders[t.Key]; {
		case holder == t.ID:
			first = append(first, t)
		case held:
			behind = append(behind, t)
		}
	}
	moved, err := change(ctx, c.tx, behind, candidateID, update+"state = 'behind' WHERE id IN ")
	c.aside += len(moved)
	return first, err
}

// together returns the first tasks of a list that may be in one lease.
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

// start leases tasks. What the row left to the kind of a task is written down, for all that end the lease.
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
