package queue

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// Stats are the numbers of tasks in the queues.
type Stats struct {
	Tasks  []TaskStats // by queue, kind and state, sorted; none with a Count of 0
	Queues []Summary   // the queues that have tasks or are paused, by name
	// More says that further queues have tasks: of queues that neither the kinds nor [Options] name, Stats counts the first
	// maxOtherQueues by name.
	More bool
}

// StatsLimit bounds the tasks of a queue and state that [Queue.Stats] counts.
const StatsLimit = 100_000

// maxOtherQueues bounds the queues that only rows name.
const maxOtherQueues = 32

// TaskStats counts the tasks of a queue, kind and state.
type TaskStats struct {
	Queue  string
	Kind   string
	State  State
	Count  int
	Oldest time.Time // when the oldest of the counted tasks was enqueued
}

// Summary is the state of a queue.
type Summary struct {
	Queue  string
	Paused bool
	// Capped says that a state of the queue has more than [StatsLimit] tasks; only StatsLimit are counted.
	Capped bool
	// Oldest is the age of the oldest waiting task, of the counted tasks; 0: none waits.
	Oldest time.Duration
	// Due is how long ago the oldest task became due that is not done: it waits, runs, or was tried or postponed before. A delay
	// that its producer asked for does not count, unless the task was tried since: then it counts from when it was enqueued. 0: none.
	Due time.Duration
}

// Open is the number of tasks that wait, now or for their time, or run.
func (s Stats) Open() (n int) {
	for _, t := range s.Tasks {
		if t.State != Dead {
			n += t.Count
		}
	}
	return n
}

const (
	// placesOf finds the queues that have tasks in a state: the servers jump from each to the next.
	placesOf = "SELECT DISTINCT state, queue FROM tasks FORCE INDEX (claim) LIMIT 1000"
	countOf  = "SELECT type, COUNT(*), MIN(created_at), " + now + " FROM (SELECT type, created_at FROM tasks FORCE INDEX (claim)" +
		" WHERE state = ? AND queue = ? ORDER BY priority, id LIMIT ?) AS counted GROUP BY type"
)

// place is a state of a queue.
type place struct{ state, name string }

// places returns where there are tasks. Queues have their names of the list: to the table, "a" and "A" are the same.
func (q *Queue) places(ctx context.Context, names []string) ([]place, error) {
	return mysql.Select(ctx, q.db, func(rows *sql.Rows) (p place, err error) {
		err = rows.Scan(&p.state, &p.name)
		p.name = asIn(names, p.name)
		return p, err
	}, placesOf)
}

// asIn returns a name as a list has it.
func asIn(names []string, name string) string {
	if i := slices.IndexFunc(names, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
		return names[i]
	}
	return name
}

// Stats counts the tasks in the queues. It reads at most [StatsLimit] rows of each queue and state.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	paused, err := q.Paused(ctx)
	if err != nil {
		return s, err
	}
	due, err := q.Due(ctx)
	if err != nil {
		return s, err
	}
	names := slices.Concat(q.options.Kinds.Queues(), q.options.Queues, paused)
	places, err := q.places(ctx, names)
	if err != nil {
		return s, mysql.Translate(ctx, "count tasks", err)
	}
	queues := make(map[string]*Summary)
	summary := func(name string) *Summary {
		if queues[name] == nil {
			queues[name] = &Summary{Queue: name, Paused: slices.Contains(paused, name), Due: due[name]}
		}
		return queues[name]
	}
	for _, name := range paused {
		summary(name)
	}
	counts := make(map[TaskStats]*TaskStats) // by queue, kind and state
	others := make(map[string]bool)
	for _, p := range places {
		if !slices.Contains(names, p.name) {
			if len(others) == maxOtherQueues && !others[p.name] {
				s.More = true
				continue
			}
			others[p.name] = true
		}
		if err := q.countPlace(ctx, p, summary(p.name), counts); err != nil {
			return s, err
		}
	}
	for _, c := range counts {
		s.Tasks = append(s.Tasks, *c)
	}
	for _, is := range queues {
		s.Queues = append(s.Queues, *is)
	}
	slices.SortFunc(s.Tasks, func(a, b TaskStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	slices.SortFunc(s.Queues, func(a, b Summary) int { return cmp.Compare(a.Queue, b.Queue) })
	return s, nil
}

// countPlace adds the tasks of a place to a summary and to counts.
func (q *Queue) countPlace(ctx context.Context, p place, is *Summary, counts map[TaskStats]*TaskStats) error {
	total := 0
	_, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (t TaskStats, err error) {
		var oldest, clock uint64
		err = rows.Scan(&t.Kind, &t.Count, &oldest, &clock)
		total += t.Count
		of := TaskStats{Queue: p.name, Kind: t.Kind, State: shown(p.state)}
		if counts[of] == nil {
			counts[of] = &TaskStats{of.Queue, of.Kind, of.State, 0, timeOf(oldest)}
		}
		c := counts[of]
		if c.Count += t.Count; timeOf(oldest).Before(c.Oldest) {
			c.Oldest = timeOf(oldest)
		}
		if of.State == Waiting {
			is.Oldest = max(is.Oldest, timeOf(clock).Sub(c.Oldest))
		}
		return t, err
	}, countOf, p.state, p.name, StatsLimit)
	is.Capped = is.Capped || total >= StatsLimit
	return mysql.Translate(ctx, "count tasks", err)
}

// CountWaiting counts the tasks that wait in all queues, up to a limit. It reads index entries, also of transactions that are not
// committed: for a consistent view the server would look up the row of each entry that has just changed.
func (q *Queue) CountWaiting(ctx context.Context, limit int) (n int, err error) {
	tx, err := q.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	if err != nil {
		return 0, mysql.Translate(ctx, "count waiting tasks", err)
	}
	defer func() { _ = tx.Rollback() }() // it only reads
	const of = "(SELECT COUNT(*) FROM (SELECT id FROM tasks FORCE INDEX (claim) WHERE state = ? LIMIT ?) AS "
	err = tx.QueryRowContext(ctx, "SELECT "+of+"w) + "+of+"b)", Waiting, limit, behind, limit).Scan(&n)
	return min(n, limit), mysql.Translate(ctx, "count waiting tasks", err)
}

// dueLimit bounds the rows that [Queue.Due] reads of each queue and state.
const dueLimit = 1000

// The tasks that are due: the first that wait, whatever their priority, and the leases and postponed tasks that end first: the longer
// a task was tried, the sooner it ends.
const (
	dueOf     = "SELECT queue, MIN(since), " + now + " FROM (SELECT queue, type, IF(last_error IS NULL, GREATEST(created_at, run_at), created_at) AS since FROM tasks FORCE INDEX (claim) WHERE state = ? AND queue = ? ORDER BY priority, id LIMIT ?) AS first"
	dueTimers = "SELECT queue, MIN(since), " + now + " FROM (SELECT queue, type, IF(last_error IS NULL, IF(state = 'running', started_at, run_at), created_at) AS since" +
		" FROM tasks FORCE INDEX (timers) WHERE state = ? AND run_at <= " + now + " + ? ORDER BY run_at LIMIT ?) AS first"
)

// Due returns, by queue, how long ago the oldest task of some kinds became due that is not done, as [Summary] has it. Queues of the
// kinds without a due task have 0. Without kinds, Due is about all tasks. It reads the first 1000 tasks of each queue and state.
func (q *Queue) Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error) {
	own := q.options.Kinds.queuesOf(kinds)
	names := slices.Concat(own, q.options.Kinds.Queues(), q.options.Queues)
	places, err := q.places(ctx, names)
	if err != nil {
		return nil, mysql.Translate(ctx, "look where tasks are due", err)
	}
	of := ""
	if len(kinds) > 0 {
		of = " WHERE type IN (" + mysql.Marks(len(kinds)) + ")"
	}
	var parts []string
	var args []any
	part := func(text string, with ...any) {
		parts, args = append(parts, text+of+" GROUP BY queue"), slices.Concat(args, with, mysql.Args(kinds))
	}
	due := make(map[string]time.Duration)
	for _, name := range own {
		due[name] = 0
	}
	for _, p := range places {
		if shown(p.state) == Waiting {
			part(dueOf, p.state, p.name, dueLimit)
		}
	}
	part(dueTimers, Running, MaxLease.Milliseconds(), dueLimit)
	part(dueTimers, Scheduled, maxBackoff.Milliseconds(), dueLimit)
	_, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (name string, err error) {
		var since, clock uint64
		err = rows.Scan(&name, &since, &clock)
		name = asIn(names, name)
		if age := timeOf(clock).Sub(timeOf(since)); age > 0 {
			due[name] = max(due[name], age)
		}
		return name, err
	}, strings.Join(parts, " UNION ALL "), args...)
	return due, mysql.Translate(ctx, "look how long tasks are due", err)
}
