package queue

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// Stats are the numbers of tasks in the queues.
type Stats struct {
	Tasks  []TaskStats // by queue, kind and state, sorted; none with a Count of 0
	Queues []Summary   // the queues that have tasks or are paused, by name
	More   bool        // there are more than maxPlaces states of queues that have tasks; Tasks has the first
}

const (
	// StatsLimit bounds the tasks of a queue and state that [Queue.Stats] counts.
	StatsLimit = 100_000
	// dueLimit bounds the rows that [Queue.Due] reads of each queue and state.
	dueLimit = 1000
	// maxPlaces bounds the states of queues: rows may name any queue.
	maxPlaces = 1000
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
	countOf  = "SELECT type, COUNT(*), MIN(created_at), " + now + " FROM (SELECT type, created_at FROM tasks FORCE INDEX (claim)" +
		" WHERE state = ? AND queue = ? ORDER BY priority, id LIMIT ?) AS counted GROUP BY type"
	// The tasks that are due: the first that wait, whatever their priority, and the leases and postponed tasks that end first: the longer
	// a task was tried, the sooner it ends.
	dueOf = "SELECT queue, MIN(since), " + now + " FROM (SELECT queue, type, IF(last_error IS NULL, GREATEST(created_at, run_at), created_at) AS since" +
		" FROM tasks FORCE INDEX (claim) WHERE state = ? AND queue = ? ORDER BY priority, id LIMIT ?) AS first"
	dueTimers = "SELECT queue, MIN(since), " + now + " FROM (SELECT queue, type, IF(last_error IS NULL, IF(state = 'running', started_at, run_at), created_at) AS since" +
		" FROM tasks FORCE INDEX (timers) WHERE state = ? AND run_at <= " + now + " + ? ORDER BY run_at LIMIT ?) AS first"
)

// place is a state of a queue that has tasks.
type place struct{ state, queue string }

func (q *Queue) places(ctx context.Context) ([]place, error) {
	known := q.options.Kinds.Queues()
	return mysql.Select(ctx, q.db, func(rows *sql.Rows) (p place, err error) {
		err = rows.Scan(&p.state, &p.queue)
		p.queue = spelled(known, p.queue, p.queue)
		return p, err
	}, placesOf, maxPlaces)
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
	due, err := q.Due(ctx)
	if err != nil {
		return s, err
	}
	places, err := q.places(ctx)
	if err != nil {
		return s, mysql.Translate(ctx, "count tasks", err)
	}
	queues := make(map[string]*Summary)
	for _, name := range paused {
		queues[name] = &Summary{Queue: name, Paused: true, Due: due[name]}
	}
	counts := make(map[TaskStats]TaskStats) // by queue, kind and state
	for _, p := range places {
		if queues[p.queue] == nil {
			queues[p.queue] = &Summary{Queue: p.queue, Due: due[p.queue]}
		}
		if err := q.countPlace(ctx, p, queues[p.queue], counts); err != nil {
			return s, mysql.Translate(ctx, "count tasks", err)
		}
	}
	s.Tasks, s.More = slices.Collect(maps.Values(counts)), len(places) == maxPlaces
	slices.SortFunc(s.Tasks, func(a, b TaskStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		s.Queues = append(s.Queues, *queues[name])
	}
	return s, nil
}

// countPlace adds the tasks of a place to a summary and to counts.
func (q *Queue) countPlace(ctx context.Context, p place, is *Summary, counts map[TaskStats]TaskStats) error {
	total := 0
	_, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (t TaskStats, err error) {
		var oldest, clock uint64
		err = rows.Scan(&t.Kind, &t.Count, &oldest, &clock)
		of := TaskStats{Queue: p.queue, Kind: t.Kind, State: shown(p.state)}
		is.Capped = is.Capped || total+t.Count >= StatsLimit
		total += t.Count
		if of.State == Waiting {
			is.Oldest = max(is.Oldest, timeOf(clock).Sub(timeOf(oldest)))
		}
		t.Queue, t.State, t.Oldest = of.Queue, of.State, timeOf(oldest)
		if before, found := counts[of]; found { // tasks that wait, and tasks that are behind
			t.Count += before.Count
			t.Oldest = timeOf(min(oldest, uint64(before.Oldest.UnixMilli())))
		}
		counts[of] = t
		return t, err
	}, countOf, p.state, p.queue, StatsLimit)
	return err
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

// Due returns, by queue, how long ago the oldest task of some kinds became due that is not done, as [Summary] has it. Queues of the
// kinds without a due task have 0. Without kinds, Due is about all tasks. It reads the first 1000 tasks of each queue and state.
func (q *Queue) Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error) {
	places, err := q.places(ctx)
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
	for _, p := range places {
		if shown(p.state) == Waiting {
			part(dueOf, p.state, p.queue, dueLimit)
		}
	}
	part(dueTimers, Running, MaxLease.Milliseconds(), dueLimit)
	part(dueTimers, Scheduled, maxBackoff.Milliseconds(), dueLimit)
	due, known := make(map[string]time.Duration), q.options.Kinds.Queues()
	for _, name := range kinds {
		kind, _ := q.options.Kinds.of(name)
		due[kind.Queue] = 0
	}
	_, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (name string, err error) {
		var since, clock uint64
		err = rows.Scan(&name, &since, &clock)
		name = spelled(known, name, name)
		due[name] = max(due[name], timeOf(clock).Sub(timeOf(since)))
		return name, err
	}, strings.Join(parts, " UNION ALL "), args...)
	return due, mysql.Translate(ctx, "look how long tasks are due", err)
}
