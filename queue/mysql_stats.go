package queue

import (
	"cmp"
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/mysql"
)

// The queries of this file. Each reads at most as many entries of an index as its limit says.
// MariaDB finds the different priorities by jumping from one to
// the next, but counts all entries when asked for the smallest id of each.
const (
	waitingPriorities = "SELECT DISTINCT queue, priority FROM tasks FORCE INDEX (claim) WHERE queue = ? LIMIT ?"
	firstWaiting      = "SELECT IF(created_at < " + now + ", " + now + " - created_at, 0) FROM (SELECT id, type, created_at FROM tasks FORCE INDEX (claim)" +
		" WHERE queue = ? AND priority = ? AND " + isDue + " ORDER BY id LIMIT ?) AS first WHERE type REGEXP ? ORDER BY id LIMIT 1"
	// Those that were postponed or failed come due within the longest backoff, and the
	// sooner the longer they have been tried: workers begin with the oldest.
	longestDue = "SELECT queue, MAX(IF(since < " + now + ", " + now + " - since, 0)) FROM (" +
		"SELECT queue, IF(last_error IS NULL, due_at, created_at) AS since FROM" +
		" (SELECT queue, type, last_error, created_at, due_at FROM parked_tasks FORCE INDEX (timers)" +
		" WHERE state = 'scheduled' AND due_at <= " + now + " + ? ORDER BY due_at LIMIT ?) AS soonest WHERE type REGEXP ? UNION ALL" +
		" SELECT queue, since FROM task_leases FORCE INDEX (ends) WHERE ends_at > 0 AND tasks REGEXP ?) AS begun GROUP BY queue"
	distinctQueues = "SELECT DISTINCT queue FROM tasks FORCE INDEX (claim) LIMIT ?"
	otherQueues    = "SELECT DISTINCT queue FROM (SELECT queue FROM parked_tasks FORCE INDEX (timers) WHERE state IN ('scheduled', 'dead') LIMIT ?) AS some"
	runningQueues  = "SELECT DISTINCT queue FROM task_leases FORCE INDEX (ends) WHERE ends_at > 0"
)

// countKinds counts the kinds that there are by their names, letter by letter.
func countKinds(kinds int, rows string) string {
	return "SELECT queue, state, kind, COUNT(*), MIN(created_at) FROM (SELECT queue, state, created_at, IF(CAST(type AS BINARY) IN (" + mysql.Marks(kinds) + "), type, ?) AS kind" +
		" FROM (" + rows + ") AS counted) AS named GROUP BY queue, state, kind"
}

// isDue selects of tasks what waits.
const isDue = "(due_at IS NULL OR due_at <= " + now + ")"

// Stats returns how full the queues are. It counts up to [StatsLimit].
//
// Its queries read at most [StatsLimit] rows of each queue in tasks, and of each state in
// parked_tasks, and all leases. How
// many queues there are is up to the rows: those that have workers are asked about by their
// names, and of the others only some.
func (q *Queue) Stats(ctx context.Context) (s Stats, err error) {
	s, _, err = q.stats(ctx, q.db)
	return s, mysql.Translate(ctx, "count tasks", err)
}

// stats is Stats by db, and the highest id of a task that runs.
func (q *Queue) stats(ctx context.Context, db mysql.Querier) (s Stats, last uint64, err error) {
	paused, err := pausedBy(ctx, db)
	if err != nil {
		return s, 0, err
	}
	all, more, err := q.summaries(ctx, db, paused, nil)
	if err != nil {
		return s, 0, err
	}
	s.More = more
	if s.Tasks, last, err = q.taskStats(ctx, db, all); err != nil {
		return s, 0, err
	}
	s.Queues = slices.DeleteFunc(all, func(one Summary) bool {
		return !one.Paused && !slices.ContainsFunc(s.Tasks, func(t TaskStats) bool { return t.Queue == one.Queue })
	})
	for i := range s.Queues {
		s.Queues[i].Capped = capped(s.Tasks, s.Queues[i].Queue)
	}
	return s, last, nil
}

// summaries returns what the standing queues and those that only rows name are, by name, without counts, for tasks of
// some kinds (nil: of all); more: there are still others.
func (q *Queue) summaries(ctx context.Context, db mysql.Querier, paused, kinds []string) (list []Summary, more bool, err error) {
	names, more, err := q.names(ctx, db, paused)
	if err != nil {
		return nil, false, err
	}
	due, err := longestDueBy(ctx, db, kinds)
	if err != nil {
		return nil, false, err
	}
	for _, name := range slices.Sorted(slices.Values(names)) {
		oldest, err := oldest(ctx, db, name, kinds)
		if err != nil {
			return nil, false, err
		}
		list = append(list, Summary{Queue: name, Paused: slices.Contains(paused, name), Oldest: oldest, Due: max(oldest, due[name])})
	}
	return list, more, nil
}

// names returns the standing queues and those that only rows name; more: there are still others.
func (q *Queue) names(ctx context.Context, db mysql.Querier, paused []string) (names []string, more bool, err error) {
	names = slices.Concat(q.options.Kinds.Queues(), q.options.Queues, paused)
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	// Two names that the table takes for one, as "a" and "A", are one queue to its workers.
	others, err := mysql.Select(ctx, db, mysql.Column[string], "SELECT DISTINCT queue FROM (SELECT queue FROM ("+distinctQueues+") AS first UNION ALL SELECT queue FROM ("+
		otherQueues+") AS parked UNION ALL "+runningQueues+") AS found WHERE queue NOT IN ("+mysql.Marks(len(names))+") ORDER BY queue",
		append([]any{len(names) + MaxOtherQueues + 1, StatsLimit}, mysql.Args(names)...)...)
	return append(names, others[:min(len(others), MaxOtherQueues)]...), len(others) > MaxOtherQueues, err
}

func (q *Queue) taskStats(ctx context.Context, db mysql.Querier, queues []Summary) (list []TaskStats, last uint64, err error) {
	kinds := append(q.options.Kinds.Names(), otherKinds)
	var parts []string
	var args []any
	for _, queue := range queues {
		parts = append(parts, countKinds(len(kinds), "SELECT ? AS queue, IF(due_at > "+now+", 'scheduled', 'waiting') AS state, type, created_at FROM tasks FORCE INDEX (claim) WHERE queue = ? LIMIT ?"))
		args = append(append(append(args, mysql.Args(kinds)...), otherKinds), queue.Queue, queue.Queue, StatsLimit)
	}
	for _, state := range []State{Scheduled, Dead} {
		parts = append(parts, countKinds(len(kinds), "SELECT queue, state, type, created_at FROM parked_tasks FORCE INDEX (timers) WHERE state = ? LIMIT ?"))
		args = append(append(append(args, mysql.Args(kinds)...), otherKinds), state, StatsLimit)
	}
	counts := make(map[TaskStats]*TaskStats)
	count := func(queue, kind string, state State, n int, created uint64) {
		// As names has it: to the table, "a" and "A" are one queue.
		if i := slices.IndexFunc(queues, func(s Summary) bool { return strings.EqualFold(s.Queue, queue) }); i >= 0 {
			t := TaskStats{Queue: queues[i].Queue, Kind: kind, State: state}
			if counts[t] == nil {
				counts[t] = &TaskStats{Queue: t.Queue, Kind: kind, State: state, Oldest: timeOf(created)}
			}
			counts[t].Count += n
			if at := timeOf(created); at.Before(counts[t].Oldest) {
				counts[t].Oldest = at
			}
		}
	}
	_, err = mysql.Select(ctx, db, func(rows *sql.Rows) (_ struct{}, err error) {
		var t TaskStats
		var created uint64
		err = rows.Scan(&t.Queue, &t.State, &t.Kind, &t.Count, &created)
		count(t.Queue, t.Kind, t.State, t.Count, created)
		return struct{}{}, err
	}, strings.Join(parts, " UNION ALL "), args...)
	if err != nil {
		return nil, 0, err
	}
	leases, err := readLeases(ctx, db, true, "")
	for _, l := range leases {
		for _, r := range l.open() {
			count(l.queue, q.options.Kinds.label(r.Kind), Running, 1, r.created)
			last = max(last, r.ID)
		}
	}
	for _, t := range counts {
		list = append(list, *t)
	}
	slices.SortFunc(list, func(a, b TaskStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	return list, last, err
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

// oldest looks at the first task of each priority, and at no other; for some kinds, at the first dueLimit.
func oldest(ctx context.Context, db mysql.Querier, queue string, kinds []string) (age time.Duration, err error) {
	looked := 1
	if len(kinds) > 0 {
		looked = dueLimit
	}
	priorities, err := prioritiesOf(ctx, db, queue)
	if err != nil {
		return 0, err
	}
	for _, priority := range priorities {
		milliseconds, err := mysql.Select(ctx, db, mysql.Column[int64], firstWaiting, queue, priority, looked, "^"+oneOf(kinds)+"$")
		if err != nil {
			return 0, err
		}
		if len(milliseconds) > 0 { // else it was claimed since
			age = max(age, time.Duration(milliseconds[0])*time.Millisecond)
		}
	}
	return age, nil
}

// prioritiesOf returns the priorities of a queue's tasks, up to [MaxPriorities].
func prioritiesOf(ctx context.Context, db mysql.Querier, queue string) ([]int, error) {
	return mysql.Select(ctx, db, func(rows *sql.Rows) (priority int, err error) {
		err = rows.Scan(&queue, &priority)
		return priority, err
	}, waitingPriorities, queue, MaxPriorities)
}

// Due returns, by queue, how long ago the oldest task of some kinds became due that is not done, as [Summary] has it: for
// each queue of such kinds, 0 if there is none, and for others in which there is one. Without kinds it is about all.
// It looks at the first dueLimit tasks of an index and counts none.
func (q *Queue) Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error) {
	list, _, err := q.summaries(ctx, q.db, nil, kinds)
	own := q.options.Kinds.queuesOf(kinds)
	due := make(map[string]time.Duration, len(list))
	for _, one := range list {
		if one.Due > 0 || len(kinds) == 0 || slices.Contains(own, one.Queue) {
			due[one.Queue] = one.Due
		}
	}
	return due, mysql.Translate(ctx, "look how long tasks are due", err)
}

// dueLimit bounds the rows that are read for [Queue.Due] of each queue and priority, and the scheduled ones.
const dueLimit = 1000

// oneOf returns the regular expression for the names of kinds; nil: for any.
func oneOf(kinds []string) string {
	if len(kinds) == 0 {
		return ".*"
	}
	quoted := make([]string, len(kinds))
	for i, name := range kinds {
		quoted[i] = regexp.QuoteMeta(name)
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

// longestDueBy returns, by queue, how long ago the oldest task became due of those of some kinds that run,
// or were postponed or tried before. Of a lease all tasks count, if one is of these kinds.
func longestDueBy(ctx context.Context, db mysql.Querier, kinds []string) (map[string]time.Duration, error) {
	list, err := mysql.Select(ctx, db, func(rows *sql.Rows) (s Summary, err error) {
		var milliseconds int64
		err = rows.Scan(&s.Queue, &milliseconds)
		s.Due = time.Duration(milliseconds) * time.Millisecond
		return s, err
	}, longestDue, maxBackoff.Milliseconds(), dueLimit, "^"+oneOf(kinds)+"$", `\[[0-9]+,"`+oneOf(kinds)+`",`)
	due := make(map[string]time.Duration, len(list))
	for _, s := range list {
		due[s.Queue] = s.Due
	}
	return due, err
}
