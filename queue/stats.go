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

// Stats says how full the queues are.
type Stats struct {
	Tasks  []TaskStats // by queue, type and state; none that are 0
	Queues []Summary   // the queues in which there are tasks or that are paused, by name
	// More says that there are tasks in still other queues: of those which are
	// neither standard nor named by [Options], only the first 32 by name are
	// looked at.
	More bool
}

// StatsLimit bounds how many tasks of one queue and state [Queue.Stats] counts, and MaxOtherQueues the queues that only rows name.
const (
	StatsLimit     = 100_000
	MaxOtherQueues = 32
)

// TaskStats counts the tasks of one queue, kind and state.
type TaskStats struct {
	Queue string
	Kind  string
	State State
	Count int
	// Oldest is when the oldest of those that were counted was enqueued.
	Oldest time.Time
}

// Summary is the state of one queue.
type Summary struct {
	Queue  string
	Paused bool
	// Capped says that a state of the queue has more than [StatsLimit] tasks:
	// the counts are those of the first StatsLimit.
	Capped bool
	// Oldest is how long ago the oldest waiting task was enqueued, of those that were counted; 0 when none waits.
	Oldest time.Duration
	// Due is how long ago the oldest task became due that is not done: it waits,
	// runs, or was postponed or tried before. A delay that its producer wanted does
	// not count, unless it was tried since: then it counts from when it was enqueued.
	// 0 when there is none.
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
	// placesOf finds the queues in which tasks of a state are: the servers jump from one to the next.
	placesOf = "SELECT DISTINCT state, queue FROM tasks FORCE INDEX (claim) LIMIT ?"
	countOf  = "SELECT state, queue, type, COUNT(*), MIN(created_at), " + now + " FROM (SELECT state, queue, type, created_at FROM tasks FORCE INDEX (claim)" +
		" WHERE state = ? AND queue = ? ORDER BY priority, id LIMIT ?) AS counted GROUP BY state, queue, type"
)

// Stats returns how full the queues are. It reads at most [StatsLimit] rows of each queue and state.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	defer func() { err = mysql.Translate(ctx, "count tasks", err) }()
	paused, err := q.Paused(ctx)
	if err != nil {
		return s, err
	}
	names := slices.Concat(q.options.Kinds.Queues(), q.options.Queues, paused)
	places, err := q.places(ctx, names)
	if err != nil {
		return s, err
	}
	due, err := q.Due(ctx)
	if err != nil {
		return s, err
	}
	c := census{tasks: make(map[TaskStats]*TaskStats), queues: make(map[string]*Summary), paused: paused, due: due}
	for _, name := range paused {
		c.queue(name)
	}
	var others []string
	for _, p := range places {
		if !slices.Contains(names, p.name) && !slices.Contains(others, p.name) {
			if len(others) == MaxOtherQueues {
				s.More = true
				continue
			}
			others = append(others, p.name)
		}
		total := 0
		_, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (_ struct{}, err error) {
			var t TaskStats
			var oldest, clock uint64
			err = rows.Scan(&t.State, &t.Queue, &t.Kind, &t.Count, &oldest, &clock)
			t.Queue, t.Oldest = p.name, timeOf(oldest)
			c.add(t, timeOf(clock))
			total += t.Count
			return struct{}{}, err
		}, countOf, p.state, p.name, StatsLimit)
		if err != nil {
			return s, err
		}
		if total >= StatsLimit {
			c.queue(p.name).Capped = true
		}
	}
	s.Tasks, s.Queues = c.sorted()
	return s, nil
}

// census is what [Queue.Stats] has counted.
type census struct {
	tasks  map[TaskStats]*TaskStats // by queue, kind and state
	queues map[string]*Summary
	paused []string
	due    map[string]time.Duration
}

// queue returns the summary of a queue.
func (c *census) queue(name string) *Summary {
	if c.queues[name] == nil {
		c.queues[name] = &Summary{Queue: name, Paused: slices.Contains(c.paused, name), Due: c.due[name]}
	}
	return c.queues[name]
}

// add adds some tasks of a kind and state, which are Waiting, too, while they are behind others.
func (c *census) add(t TaskStats, clock time.Time) {
	if t.State == behind {
		t.State = Waiting
	}
	alike := TaskStats{Queue: t.Queue, Kind: t.Kind, State: t.State}
	if one := c.tasks[alike]; one == nil {
		c.tasks[alike] = &t
	} else {
		one.Count += t.Count
		if t.Oldest.Before(one.Oldest) {
			one.Oldest = t.Oldest
		}
	}
	if is := c.queue(t.Queue); t.State == Waiting {
		is.Oldest = max(is.Oldest, clock.Sub(t.Oldest))
	}
}

// sorted returns the tasks and the queues in order.
func (c *census) sorted() (list []TaskStats, queues []Summary) {
	for _, t := range c.tasks {
		list = append(list, *t)
	}
	for _, one := range c.queues {
		queues = append(queues, *one)
	}
	slices.SortFunc(list, func(a, b TaskStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	slices.SortFunc(queues, func(a, b Summary) int { return cmp.Compare(a.Queue, b.Queue) })
	return list, queues
}

// place is a state of a queue.
type place struct{ state, name string }

// places returns where there are tasks, with the queues under the given names: to the table, "a" and "A" are one queue.
func (q *Queue) places(ctx context.Context, names []string) ([]place, error) {
	const most = 1000
	return mysql.Select(ctx, q.db, func(rows *sql.Rows) (p place, err error) {
		err = rows.Scan(&p.state, &p.name)
		if i := slices.IndexFunc(names, func(name string) bool { return strings.EqualFold(name, p.name) }); i >= 0 {
			p.name = names[i]
		}
		return p, err
	}, placesOf, most)
}

// CountWaiting counts the tasks that wait in all queues, up to a limit. It reads entries of an index, and what is not committed,
// too: for any other view the server looks up the row of each entry that has just changed.
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

// dueLimit bounds the rows that are read for [Queue.Due] of each queue and state.
const dueLimit = 1000

// What is due: the first tasks that wait, whatever their priority, and the leases and postponed tasks that end first: of these the
// sooner, the longer they have been tried.
const (
	dueOf     = "SELECT queue, MIN(since), " + now + " FROM (SELECT queue, type, IF(last_error IS NULL, GREATEST(created_at, run_at), created_at) AS since FROM tasks FORCE INDEX (claim) WHERE state = ? AND queue = ? ORDER BY priority, id LIMIT ?) AS first"
	dueTimers = "SELECT queue, MIN(since), " + now + " FROM (SELECT queue, type, IF(last_error IS NULL, IF(state = 'running', started_at, run_at), created_at) AS since" +
		" FROM tasks FORCE INDEX (timers) WHERE state = ? AND run_at <= " + now + " + ? ORDER BY run_at LIMIT ?) AS first"
)

// Due returns, by queue, how long ago the oldest task of some kinds became due that is not done, as [Summary] has it: for
// each queue of such kinds, 0 if there is none, and for others in which there is one. Without kinds it is about all.
// It looks at the first dueLimit tasks of each queue and counts none.
func (q *Queue) Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error) {
	own := q.options.Kinds.queuesOf(kinds)
	places, err := q.places(ctx, slices.Concat(own, q.options.Kinds.Queues(), q.options.Queues))
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
	for _, p := range places {
		if p.state == string(Waiting) || p.state == behind {
			part(dueOf, p.state, p.name, dueLimit)
		}
		if len(kinds) == 0 {
			due[p.name] = 0
		}
	}
	part(dueTimers, Running, MaxLease.Milliseconds(), dueLimit)
	part(dueTimers, Scheduled, maxBackoff.Milliseconds(), dueLimit)
	for _, name := range own {
		due[name] = 0
	}
	_, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (_ struct{}, err error) {
		var name string
		var since, clock uint64
		err = rows.Scan(&name, &since, &clock)
		if i := slices.IndexFunc(places, func(p place) bool { return strings.EqualFold(p.name, name) }); i >= 0 {
			name = places[i].name
		}
		if age := max(0, timeOf(clock).Sub(timeOf(since))); age > 0 || len(kinds) == 0 {
			due[name] = max(due[name], age)
		}
		return struct{}{}, err
	}, strings.Join(parts, " UNION ALL "), args...)
	return due, mysql.Translate(ctx, "look how long tasks are due", err)
}
