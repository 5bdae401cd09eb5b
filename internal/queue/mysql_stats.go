package queue

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// The queries of this file. Each reads entries of an index alone, at most as many
// as its limit says. MariaDB finds the different priorities by jumping from one to
// the next, but counts all entries when asked for the smallest id of each.
const (
	waitingPriorities = "SELECT DISTINCT queue, state, priority FROM tasks FORCE INDEX (claim) WHERE queue = ? AND state = 'waiting' LIMIT ?"
	firstWaiting      = "SELECT IF(created_at < " + now + ", " + now + " - created_at, 0) FROM tasks FORCE INDEX (claim)" +
		" WHERE queue = ? AND state = 'waiting' AND priority = ? ORDER BY id LIMIT 1"
	// Those that were postponed or failed come due within the longest backoff, and the
	// sooner the longer they have been tried: workers begin with the oldest.
	longestDue = "SELECT queue, MAX(IF(since < " + now + ", " + now + " - since, 0)) FROM (" +
		"SELECT queue, CASE WHEN last_error IS NOT NULL THEN created_at WHEN state = 'scheduled' THEN due_at ELSE updated_at END AS since FROM (" +
		"(SELECT queue, state, last_error, created_at, due_at, updated_at FROM tasks FORCE INDEX (timers)" +
		" WHERE state = 'scheduled' AND due_at <= " + now + " + ? ORDER BY due_at LIMIT ?) UNION ALL" +
		" (SELECT queue, state, last_error, created_at, due_at, updated_at FROM tasks FORCE INDEX (timers)" +
		" WHERE state = 'running' ORDER BY due_at LIMIT ?)) AS soonest) AS begun GROUP BY queue"
	distinctQueues = "SELECT DISTINCT queue FROM tasks FORCE INDEX (claim) LIMIT ?"
)

// countKinds counts the kinds that there are by their names, letter by letter.
func countKinds(kinds int) string {
	return "SELECT ? AS queue, ? AS state, kind, COUNT(*) FROM (SELECT IF(CAST(type AS BINARY) IN (" + mysql.Marks(kinds) + "), type, ?) AS kind" +
		" FROM tasks FORCE INDEX (claim) WHERE queue = ? AND state = ? LIMIT ?) AS counted GROUP BY kind"
}

// Stats returns how full the queues are. It counts up to [StatsLimit].
//
// Its queries read index entries alone, at most [StatsLimit] of each queue and state. How
// many queues there are is up to the rows: those that have workers are asked about by their
// names, and of the others only some.
func (q *MySQLQueue) Stats(ctx context.Context) (s Stats, err error) {
	s, err = q.stats(ctx)
	return s, mysql.Translate(ctx, "count tasks", err)
}

func (q *MySQLQueue) stats(ctx context.Context) (s Stats, err error) {
	paused, err := mysql.Select(ctx, q.db, mysql.Column[string], "SELECT queue FROM paused_queues")
	if err != nil {
		return s, err
	}
	names, more, err := q.names(ctx, paused)
	if err != nil {
		return s, err
	}
	due, err := q.due(ctx)
	if err != nil {
		return s, err
	}
	s.More = more
	if s.Tasks, err = q.taskStats(ctx, names); err != nil {
		return s, err
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		if !slices.Contains(paused, name) && !slices.ContainsFunc(s.Tasks, func(t TaskStats) bool { return t.Queue == name }) {
			continue
		}
		oldest, err := q.oldest(ctx, name)
		if err != nil {
			return s, err
		}
		s.Queues = append(s.Queues, Summary{
			Queue: name, Paused: slices.Contains(paused, name), Oldest: oldest, Due: max(oldest, due[name]), Capped: capped(s.Tasks, name),
		})
	}
	return s, nil
}

// names returns the standing queues and those that only rows name; more: there are still others.
func (q *MySQLQueue) names(ctx context.Context, paused []string) (names []string, more bool, err error) {
	names = q.options.standing(paused)
	// Two names that the table takes for one, as "a" and "A", are one queue to its workers.
	others, err := mysql.Select(ctx, q.db, mysql.Column[string], "SELECT queue FROM ("+distinctQueues+") AS found WHERE queue NOT IN ("+mysql.Marks(len(names))+")",
		append([]any{len(names) + MaxOtherQueues + 1}, mysql.Args(names)...)...)
	return append(names, others[:min(len(others), MaxOtherQueues)]...), len(others) > MaxOtherQueues, err
}

func (q *MySQLQueue) taskStats(ctx context.Context, queues []string) (list []TaskStats, err error) {
	kinds := append(Kinds(), OtherKinds)
	var parts []string
	var args []any
	for _, queue := range queues {
		for _, state := range States() {
			parts = append(parts, countKinds(len(kinds)))
			args = append(append(append(args, queue, state), mysql.Args(kinds)...), OtherKinds, queue, state, StatsLimit)
		}
	}
	return mysql.Select(ctx, q.db, func(rows *sql.Rows) (t TaskStats, err error) {
		err = rows.Scan(&t.Queue, &t.State, &t.Kind, &t.Count)
		return t, err
	}, strings.Join(parts, " UNION ALL ")+" ORDER BY queue, kind, state", args...)
}

// capped reports whether a state of the queue was not counted to the end.
func capped(list []TaskStats, queue string) bool {
	counts := make(map[State]int)
	for _, t := range list {
		if t.Queue == queue {
			counts[t.State] += t.Count
		}
	}
	for _, n := range counts {
		if n >= StatsLimit {
			return true
		}
	}
	return false
}

// oldest looks at the first task of each priority, and at no other.
func (q *MySQLQueue) oldest(ctx context.Context, queue string) (age time.Duration, err error) {
	priorities, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (priority int, err error) {
		var state string
		err = rows.Scan(&queue, &state, &priority)
		return priority, err
	}, waitingPriorities, queue, MaxPriorities)
	if err != nil {
		return 0, err
	}
	for _, priority := range priorities {
		var milliseconds int64
		err := q.db.QueryRowContext(ctx, firstWaiting, queue, priority).Scan(&milliseconds)
		if err != nil && !errors.Is(err, sql.ErrNoRows) { // then it was claimed since
			return 0, err
		}
		age = max(age, time.Duration(milliseconds)*time.Millisecond)
	}
	return age, nil
}

// Due returns, by queue, how long ago the oldest task became due that is not done, as
// [Summary] has it; 0 for the standard queues and those of the options, if there is none.
// It looks at the first tasks of an index and counts none.
func (q *MySQLQueue) Due(ctx context.Context) (map[string]time.Duration, error) {
	due, err := q.allDue(ctx)
	return due, mysql.Translate(ctx, "look how long tasks are due", err)
}

func (q *MySQLQueue) allDue(ctx context.Context) (map[string]time.Duration, error) {
	names, _, err := q.names(ctx, nil)
	if err != nil {
		return nil, err
	}
	due, err := q.due(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		oldest, err := q.oldest(ctx, name)
		if err != nil {
			return nil, err
		}
		due[name] = max(due[name], oldest)
	}
	return due, nil
}

// dueLimit bounds the rows of each state that are read for [Summary.Due].
const dueLimit = 1000

// due returns, by queue, how long ago the oldest task became due of those that run,
// or were postponed or tried before.
func (q *MySQLQueue) due(ctx context.Context) (map[string]time.Duration, error) {
	list, err := mysql.Select(ctx, q.db, func(rows *sql.Rows) (s Summary, err error) {
		var milliseconds int64
		err = rows.Scan(&s.Queue, &milliseconds)
		s.Due = time.Duration(milliseconds) * time.Millisecond
		return s, err
	}, longestDue, maxBackoff.Milliseconds(), dueLimit, dueLimit)
	due := make(map[string]time.Duration, len(list))
	for _, s := range list {
		due[s.Queue] = s.Due
	}
	return due, err
}
