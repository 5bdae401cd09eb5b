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
	More   bool        // rows name more queues without a kind than are counted
}

const (
	// StatsLimit bounds the tasks of a queue and state that [Queue.Stats] counts.
	StatsLimit = 100_000
	// dueLimit bounds the rows that [Queue.Due] reads of each queue and state.
	dueLimit = 1000
	// maxPlaces bounds the states of queues that are found, and maxOther the queues that are counted without a kind: rows may name
	// any queue.
	maxPlaces = 1000
	maxOther  = 32
)

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

const (
	// placesOf finds the queues that have tasks in a state: the servers jump from each to the next.
	placesOf = "SELECT DISTINCT state, queue FROM tasks FORCE INDEX (claim) LIMIT ?"
	countOf  = "SELECT type, COUNT(*), MIN(created_at), MIN(since), " + now + " FROM (SELECT type, created_at, IF(last_error IS NULL, IF(state = 'running', started_at," +
		" GREATEST(created_at, run_at)), created_at) AS since FROM tasks FORCE INDEX (claim) WHERE state = ? AND queue = ? ORDER BY priority, id LIMIT ?) AS first GROUP BY type"
	// dueTimers are the postponed tasks that come next: the longer a task was tried, the sooner. Tasks for later do not count.
	dueTimers = "SELECT queue, type, MIN(since), " + now + " FROM (SELECT queue, type, IF(last_error IS NULL, run_at, created_at) AS since" +
		" FROM tasks FORCE INDEX (timers) WHERE state = 'scheduled' AND run_at <= " + now + " + ? ORDER BY run_at LIMIT ?) AS first GROUP BY queue, type"
)

// counted are tasks of a kind in a state of a queue.
type counted struct {
	TaskStats
	age, due time.Duration // since the oldest was enqueued, and became due
	capped   bool          // the state of the queue has more tasks
}

// counts counts the first tasks of some states of each queue by kind, up to a limit. It calls queues as a list has them, and leaves out
// further queues if there are too many (more).
func (q *Queue) counts(ctx context.Context, known []string, limit int, states ...string) (all []counted, more bool, err error) {
	places, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (p [2]string, err error) {
		err = rows.Scan(&p[0], &p[1])
		return p, err
	}, placesOf, maxPlaces)
	more = len(places) == maxPlaces
	others := make(map[string]bool)
	for _, p := range places {
		if err != nil || !slices.Contains(states, p[0]) {
			continue
		}
		if spelled(known, p[1], "") == "" {
			if len(others) == maxOther && !others[p[1]] {
				more = true
				continue
			}
			others[p[1]] = true
		}
		var list []counted
		total := 0
		list, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (c counted, err error) {
			var oldest, since, clock uint64
			err = rows.Scan(&c.Kind, &c.Count, &oldest, &since, &clock)
			c.Queue, c.State, c.Oldest = spelled(known, p[1], p[1]), shown(p[0]), timeOf(oldest)
			c.age, c.due = timeOf(clock).Sub(timeOf(oldest)), max(0, timeOf(clock).Sub(timeOf(since)))
			total += c.Count
			return c, err
		}, countOf, p[0], p[1], limit)
		for i := range list {
			list[i].capped = total >= limit
		}
		all = append(all, list...)
	}
	return all, more, err
}

// spelled returns a name as a list has it, or otherwise: to the table, "a" and "A" are the same.
func spelled(known []string, name, otherwise string) string {
	if i := slices.IndexFunc(known, func(n string) bool { return strings.EqualFold(n, name) }); i >= 0 {
		return known[i]
	}
	return otherwise
}

// Stats counts the tasks in the queues. It reads at most [StatsLimit] rows of each queue and state.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	paused, err := q.Paused(ctx)
	if err != nil {
		return s, err
	}
	of := func(queue string) *Summary {
		i := slices.IndexFunc(s.Queues, func(is Summary) bool { return strings.EqualFold(is.Queue, queue) })
		if i < 0 {
			i, s.Queues = len(s.Queues), append(s.Queues, Summary{Queue: queue})
		}
		return &s.Queues[i]
	}
	known := slices.Concat(q.options.Kinds.Queues(), paused)
	for _, name := range paused {
		of(spelled(known, name, name)).Paused = true
	}
	all, more, err := q.counts(ctx, known, StatsLimit, string(Waiting), behind, string(Scheduled), string(Running), string(Dead))
	for _, c := range all {
		is := of(c.Queue)
		is.Capped, c.Queue = is.Capped || c.capped, is.Queue
		if c.State == Waiting {
			is.Oldest = max(is.Oldest, c.age)
		}
		if c.State != Dead {
			is.Due = max(is.Due, c.due)
		}
		i, found := slices.BinarySearchFunc(s.Tasks, c.TaskStats, func(a, b TaskStats) int {
			return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
		})
		if !found {
			s.Tasks = slices.Insert(s.Tasks, i, c.TaskStats)
			continue
		}
		s.Tasks[i].Count += c.Count // tasks that wait, and tasks that are behind
		if c.Oldest.Before(s.Tasks[i].Oldest) {
			s.Tasks[i].Oldest = c.Oldest
		}
	}
	s.More = more
	slices.SortFunc(s.Queues, func(a, b Summary) int { return cmp.Compare(a.Queue, b.Queue) })
	return s, mysql.Translate(ctx, "count tasks", err)
}

// Due returns, by queue, how long ago the oldest task of some kinds became due that is not done, as [Summary] has it. Queues of the
// kinds without a due task have 0. Without kinds, Due is about all tasks. It reads the first 1000 tasks of each queue that wait or run,
// and the first 1000 postponed tasks.
func (q *Queue) Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error) {
	due := make(map[string]time.Duration)
	for _, name := range kinds {
		kind, _ := q.options.Kinds.of(name)
		due[kind.Queue] = 0
	}
	known := q.options.Kinds.Queues()
	all, _, err := q.counts(ctx, known, dueLimit, string(Waiting), behind, string(Running))
	if err == nil {
		var timers []counted
		timers, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (c counted, err error) {
			var since, clock uint64
			err = rows.Scan(&c.Queue, &c.Kind, &since, &clock)
			c.Queue, c.due = spelled(known, c.Queue, c.Queue), max(0, timeOf(clock).Sub(timeOf(since)))
			return c, err
		}, dueTimers, maxBackoff.Milliseconds(), dueLimit)
		all = append(all, timers...)
	}
	for _, c := range all {
		if len(kinds) == 0 || slices.Contains(kinds, c.Kind) {
			due[c.Queue] = max(due[c.Queue], c.due)
		}
	}
	return due, mysql.Translate(ctx, "look how long tasks are due", err)
}

// CountWaiting counts the tasks that wait in all queues, up to a limit. It reads index entries, also of transactions that are not
// committed: for a consistent view the server would look up the row of each entry that has just changed.
func (q *Queue) CountWaiting(ctx context.Context, limit int) (n int, err error) {
	tx, err := q.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadUncommitted})
	if err == nil {
		defer func() { _ = tx.Rollback() }() // it only reads
		err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM (SELECT id FROM tasks FORCE INDEX (claim) WHERE state IN ('waiting', 'behind') LIMIT ?) AS w", limit).Scan(&n)
	}
	return n, mysql.Translate(ctx, "count waiting tasks", err)
}
