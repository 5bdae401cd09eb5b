package queue

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/notify"
)

// now is the clock of the queue, in unix milliseconds: the database's own, so
// that machines whose clocks differ agree on when a lease ends.
const now = mysql.Now

// Queue is a durable queue of tasks in tables of the site's, so that a task commits
// together with the change that it is about. It is safe for concurrent use.
//
// A task is waiting, scheduled for later, running under a lease, or dead: see [row]. It is claimed at least once: a lease
// that ran out gives it to another worker. Package queuetest has its specification.
type Queue struct {
	db      *sql.DB
	options Options
	cursors *cursors
	metrics *metrics
	walked  atomic.Uint64 // the id up to which sweeps have looked for tasks of paused queues that expired

	keyLimit keyLimit
}

// NewQueue returns a queue over db, which comes from [OpenDB] and which the caller closes. It asks
// the database nothing. It panics if db is nil.
func NewQueue(db *sql.DB, o Options) *Queue {
	if db == nil {
		panic("queue: NewQueue: db is nil")
	}
	const most = 40 // leaves room in the token for the claim's own part
	if len(o.Owner) > most {
		o.Owner = o.Owner[:most]
	}
	if o.Notifier == nil {
		o.Notifier = &notify.Notifier{}
	}
	m := newMetrics(o.Registerer)
	m.begin(o.Kinds)
	return &Queue{
		db: db, options: o, cursors: newCursors(time.Now), metrics: m,
		keyLimit: keyLimit{most: MaxKeys, again: time.Now().Add(keyLook)},
	}
}

// Claim leases up to n due tasks of a queue, the urgent ones first, then in
// order of arrival, and at most about claimBytes of them. Whatever
// happens to the claimer, they are free again after the lease, which lasts
// [MaxLease] at most, and a Sweep. A task whose last lease ran out comes with others
// once; from then on (see sharedAttempts) it is claimed alone: should it be what
// killed its workers, it takes no other with it. Tasks that expired are deleted where they stand
// before others, and those that are to come later parked.
//
// Tasks that come with an error may have been claimed: the answer to the commit was lost. The
// caller has to hand them back.
func (q *Queue) Claim(ctx context.Context, queue string, n int, lease time.Duration) (claimed []Task, err error) {
	for again := false; ; {
		var c claiming
		err = mysql.Transact(ctx, q.db, "claim tasks of queue "+queue, func(tx *sql.Tx) (err error) {
			if again { // the tasks that the try before locked still wait, before the cursor
				q.cursors.forget()
			}
			again = true
			c = claiming{tx: tx, cursors: q.cursors, queue: queue, most: n, seen: make(map[uint64]bool)}
			claimed, err = c.move(ctx, q.options.Owner+"/"+rand.Text()[:16], min(lease, MaxLease))
			return err
		})
		if err != nil {
			q.cursors.forget()
			return claimed, err
		}
		q.metrics.dropped.Add(float64(c.dropped))
		if len(claimed) > 0 || c.dropped+c.parked == 0 {
			return claimed, nil
		}
		again = false
	}
}

// claiming is one claim.
type claiming struct {
	tx      *sql.Tx
	cursors *cursors
	queue   string
	most    int             // so many tasks are wanted
	seen    map[uint64]bool // what was read
	held    []any           // of Lend: keys whose tasks are left out
	now     uint64

	first, last         position // of what the last read found that was not seen; zero: nothing
	run, expired, later []row    // found
	bytes               int
	enough              bool // though there are fewer than that
	dropped, parked     int
}

// claimBytes bounds the payloads of a claim, which are one value of a statement, and claimAside the
// tasks that a transaction deletes or parks on its way.
const (
	claimBytes = 4 << 20
	claimAside = 1000
)

// move moves the next tasks into a lease.
func (c *claiming) move(ctx context.Context, token string, lease time.Duration) (claimed []Task, err error) {
	for found := 1; len(c.run) == 0 && found > 0; { // if the server refuses to have any of them deleted, those behind them are next
		c.enough = false
		if err := c.look(ctx); err != nil {
			return nil, err
		}
		found = len(c.run)
		if err := c.take(ctx); err != nil {
			return nil, err
		}
	}
	return c.lease(ctx, token, lease)
}

// lease writes the tasks that were taken into a lease.
func (c *claiming) lease(ctx context.Context, token string, lease time.Duration) (claimed []Task, err error) {
	if len(c.run) == 0 {
		return nil, nil
	}
	slices.SortFunc(c.run, func(a, b row) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID)) })
	since := uint64(math.MaxUint64)
	claimed = make([]Task, len(c.run))
	for i := range c.run {
		r := &c.run[i]
		if r.Lease, r.Index = token, i; r.lastError == "" {
			since = min(since, c.now)
		} else {
			since = min(since, r.created)
		}
		claimed[i] = r.Task
	}
	_, err = c.tx.ExecContext(ctx, "INSERT INTO task_leases (token, queue, claimed_at, ends_at, since, tasks, done) VALUES (?, ?, ?, "+now+" + ?, ?, ?, ?)",
		token, c.queue, c.now, lease.Milliseconds(), since, encodeTasks(c.run, c.now), noneDone(len(c.run)))
	return claimed, err
}

// look finds the next tasks, from the cursor of the queue or from its front.
func (c *claiming) look(ctx context.Context) error {
	from, front := c.cursors.begin(c.queue)
	for {
		began := time.Now()
		full, err := c.read(ctx, from, front)
		if err != nil {
			return err
		}
		c.cursors.found(c.queue, c.first, c.last, len(c.run) >= c.most, front, time.Since(began))
		switch {
		case c.enough || len(c.run) >= c.most || c.dropped+len(c.expired)+c.parked+len(c.later) >= claimAside:
			return nil
		case full: // there is more behind what was put aside
		case front || !c.cursors.cheap(c.queue, len(c.run) > 0):
			return nil
		default:
			front = true
		}
	}
}

// The next tasks are read from the index, in the order in which they are to run:
// from the front of the queue, or from its cursor on.
const (
	selectTasks = taskColumns + " FROM tasks FORCE INDEX (claim) WHERE queue = ?"
	taskColumns = "SELECT id, type, subject, " + boundedArgs + ", priority, " + oneMoreAttempt + ", max_attempts, " + expiry + ", COALESCE(GREATEST(due_at, 1), 0)," +
		" COALESCE(lost <> 0, FALSE), COALESCE(last_error, ''), created_at, " + now

	fromCursor  = " AND priority = ? AND id >= ?"
	inTheirTurn = " ORDER BY priority, id LIMIT ? FOR UPDATE SKIP LOCKED"

	// oneMoreAttempt is attempts + 1 for any row: it is a SMALLINT UNSIGNED.
	oneMoreAttempt = "LEAST(attempts, 65534) + 1"
)

// read locks the next tasks, passing over those that other workers
// are about to claim, and over those that a transaction absorbs a task into just
// now: that one commits before its task starts. It puts those that it had not seen where they belong;
// full: there may be more.
func (c *claiming) read(ctx context.Context, from position, front bool) (full bool, err error) {
	limit := c.most - len(c.run) + len(c.seen)
	query, args := selectTasks+inTheirTurn, []any{c.queue, limit}
	if !front {
		query, args = selectTasks+fromCursor+inTheirTurn, []any{c.queue, from.priority, from.id, limit}
	}
	c.first, c.last = position{}, position{}
	var r row // of each in turn
	var due uint64
	n, over := 0, false
	_, err = mysql.Select(ctx, c.tx, func(rows *sql.Rows) (struct{}, error) {
		n++
		if over {
			return struct{}{}, nil
		}
		err := c.scan(rows, &r, &due)
		if err == nil && !c.seen[r.ID] {
			over = !c.add(r, due)
		}
		return struct{}{}, err
	}, query, args...)
	return n >= limit, err
}

// scan reads a task of taskColumns.
func (c *claiming) scan(rows *sql.Rows, r *row, due *uint64) error {
	return rows.Scan(&r.ID, &r.Kind, &r.Key, (*[]byte)(&r.Payload), &r.Priority, &r.Attempts, &r.MaxAttempts, &r.expiresAt, due, &r.lost, &r.lastError, &r.created, &c.now)
}

// add puts a task where it belongs, unless no more are wanted.
func (c *claiming) add(r row, due uint64) bool {
	waits := due <= c.now
	alone := waits && r.lost && r.Attempts > sharedAttempts // it is lost again and again
	if c.enough || len(c.run) == c.most {                   // those before the cursor are more than were missing
		return false
	}
	if c.enough = c.bytes > claimBytes || alone && len(c.run) > 0; c.enough {
		return false
	}
	c.seen[r.ID] = true
	if c.last = (position{r.Priority, r.ID}); c.first.id == 0 {
		c.first = c.last
	}
	r.Payload = payloadOf(r.Payload)
	r.Queue, r.Expires, r.Created, r.Claimed = c.queue, r.expiresAt != 0, timeOf(r.created), timeOf(c.now)
	r.Waited = max(0, r.Claimed.Sub(timeOf(cmp.Or(due, r.created))))
	switch {
	case r.Expires && r.expiresAt <= c.now:
		c.expired = append(c.expired, r)
	case !waits:
		c.later = append(c.later, r)
	default:
		c.run = append(c.run, r)
		c.bytes += len(r.Payload) + len(r.lastError)
		c.enough = alone
	}
	return true
}

// take deletes what was found, and parks what is to come later. A task whose row the server
// refuses to have deleted, or written where it goes, stays where it is and is passed over.
func (c *claiming) take(ctx context.Context) (err error) {
	withIDs := func(do change) func([]row) error {
		return func(list []row) error {
			ids := make([]uint64, len(list))
			for i := range list {
				ids[i] = list[i].ID
			}
			_, err := do(ctx, c.tx, ids)
			return err
		}
	}
	if c.run, _, err = each(c.run, withIDs(byStatementOf(deleteTasks))); err != nil {
		return err
	}
	expired, _, err := each(c.expired, withIDs(byStatementOf(deleteTasks)))
	if err != nil {
		return err
	}
	later, _, err := each(c.later, withIDs(move("INSERT INTO parked_tasks ("+columns+", dedupe_key, due_at, state) SELECT "+columns+
		", dedupe_key, due_at, 'scheduled' FROM tasks FORCE INDEX (PRIMARY) WHERE id IN ", deleteTasks)))
	c.dropped, c.parked = c.dropped+len(expired), c.parked+len(later)
	c.expired, c.later = nil, nil
	return err
}

// Active returns those of the keys that have tasks of the kind that wait, or run
// under a lease. One that a producer put elsewhere does not count, so that it holds
// up nothing: one in another queue than the kind's, where perhaps no worker looks,
// or less urgent than [Normal]; nor does one that failed and is scheduled for later.
func (q *Queue) Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	home, _ := q.options.Kinds.of(kind)
	return q.keysOf(ctx, "look for tasks under way", []string{kind}, keys, func(r row) bool { return r.Priority <= Normal },
		[]string{"tasks FORCE INDEX (subjects) WHERE (due_at IS NULL OR due_at <= " + now + ") AND priority <= 0 AND queue = ? AND"},
		// The index leaves out what is left of leases that were finished long ago, and not purged.
		"FORCE INDEX (ends) WHERE queue = ? AND ends_at > "+now+" - 600000", home.Queue)
}

// Pending returns those of the keys that have tasks of the kinds which are not
// finished and not dead. It reads all leases.
func (q *Queue) Pending(ctx context.Context, kinds []string, keys []uint64) (map[uint64]bool, error) {
	return q.keysOf(ctx, "look for pending tasks", kinds, keys, func(row) bool { return true },
		[]string{"tasks FORCE INDEX (subjects) WHERE", "parked_tasks FORCE INDEX (subjects) WHERE state = 'scheduled' AND"}, "")
}

// keysOf returns those of the keys that have tasks of the kinds in tables, or in leases and fit. It is
// one statement, which sees a task that moves in one place. Each condition takes the arguments.
func (q *Queue) keysOf(
	ctx context.Context, what string, kinds []string, keys []uint64, fits func(row) bool, tables []string, leases string, args ...any,
) (map[uint64]bool, error) {
	found := make(map[uint64]bool)
	if len(kinds) == 0 || len(keys) == 0 {
		return found, nil
	}
	var text strings.Builder
	var all []any
	for _, from := range tables {
		text.WriteString("SELECT DISTINCT subject, '' AS token, '' AS queue, 0 AS claimed_at, 0 AS ends_at, '' AS done, '' AS tasks FROM " + from +
			" type IN (" + mysql.Marks(len(kinds)) + ") AND subject IN (" + mysql.Marks(len(keys)) + ") UNION ALL ")
		all = append(append(append(all, args...), mysql.Args(kinds)...), mysql.Args(keys)...)
	}
	_, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var key uint64
		l, err := scanLease(rows, &key)
		if err != nil || l.token == "" {
			found[key] = true
			return struct{}{}, err
		}
		for _, r := range l.open() {
			if slices.Contains(kinds, r.Kind) && slices.Contains(keys, r.Key) && fits(r) {
				found[r.Key] = true
			}
		}
		return struct{}{}, nil
	}, text.String()+"SELECT 0, "+leaseColumns+", tasks FROM task_leases "+leases, append(all, args...)...)
	return found, mysql.Translate(ctx, what, err)
}
