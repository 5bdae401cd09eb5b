package queue

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// SearchLimit bounds the rows of each state that [Queue.Search] and [Queue.Failures] look at: the newest
// ones, of those that are scheduled those that are due first, and in a queue those that are next.
const SearchLimit = 10_000

// window is some rows of a table in one order of an index.
type window struct {
	table
	rows string // as SQL that ends before LIMIT
	args []any
}

// windows returns where tasks that match may be. A condition of which there is no index narrows nothing.
func (f Filter) windows() (list []window) {
	waits, parked := tables[0], tables[1]
	subjects := func(t table) window {
		return window{t, "SELECT id AS place FROM " + t.name + " FORCE INDEX (subjects) WHERE subject = ? ORDER BY id DESC", []any{f.Key}}
	}
	if among(f.States, Waiting) || among(f.States, Scheduled) {
		switch {
		case f.Key != 0:
			list = append(list, subjects(waits))
		case len(f.Queues) > 0:
			for _, queue := range f.Queues {
				list = append(list, window{waits, "SELECT id AS place FROM tasks FORCE INDEX (claim) WHERE queue = ? ORDER BY queue, priority, id", []any{queue}})
			}
		default:
			list = append(list, window{waits, "SELECT id AS place FROM tasks FORCE INDEX (PRIMARY) WHERE id >= 0 ORDER BY id DESC", nil})
		}
	}
	if f.Key != 0 {
		return append(list, subjects(parked))
	}
	for _, state := range parked.states {
		if among(f.States, state) {
			list = append(list, window{parked, "SELECT id AS place FROM parked_tasks FORCE INDEX (timers) WHERE state = ? " + ordered(state), []any{state}})
		}
	}
	return list
}

// ordered is the order in which tasks of a state are looked at.
func ordered(state State) string {
	if state == Scheduled {
		return "ORDER BY state, due_at, id"
	}
	return "ORDER BY state DESC, due_at DESC, id DESC" // dead ones have no time
}

// Search returns up to limit tasks that match, the newest first. It reads up to [SearchLimit] rows of each state, and all
// leases, whatever there is; partial says that it did not look at all. Tasks that are named by ids are all looked at.
func (q *Queue) Search(ctx context.Context, match Filter, limit int) (list []Record, partial bool, err error) {
	if len(match.IDs) > 0 {
		list, err = q.List(ctx, match, limit)
		return list, false, err
	}
	var parts, beyond []string
	var args, places []any
	for _, w := range match.windows() {
		condition, more := match.condition(w.table, match.States)
		parts = append(parts, "("+w.records()+" FROM ("+w.rows+" LIMIT ?) AS places STRAIGHT_JOIN "+w.name+" FORCE INDEX (PRIMARY) ON id = place WHERE TRUE"+
			condition+" ORDER BY id DESC LIMIT ?)")
		args = append(append(append(append(args, w.args...), SearchLimit), more...), limit)
		beyond = append(beyond, "("+w.rows+" LIMIT 1 OFFSET ?)")
		places = append(append(places, w.args...), SearchLimit)
	}
	list, err = q.records(ctx, match, parts, args)
	slices.SortFunc(list, func(a, b Record) int { return cmp.Compare(b.ID, a.ID) })
	list = list[:min(len(list), limit)]
	if err == nil && len(beyond) > 0 {
		var more []uint64
		more, err = mysql.Select(ctx, q.db, mysql.Column[uint64], strings.Join(beyond, " UNION ALL "), places...)
		partial = len(more) > 0
	}
	return list, partial, mysql.Translate(ctx, "search tasks", err)
}

// Failure is the last error of a task that is dead or will be tried again.
type Failure struct {
	ID          uint64
	Queue, Kind string
	State       State
	Error       string // its beginning
}

// Failures returns the last errors of tasks that are dead or will be tried again, as [Queue.Search] looks at them.
func (q *Queue) Failures(ctx context.Context) (list []Failure, partial bool, err error) {
	read := make(map[State]int)
	list, err = mysql.Select(ctx, q.db, func(rows *sql.Rows) (f Failure, err error) {
		err = rows.Scan(&f.ID, &f.Queue, &f.Kind, &f.State, &f.Error)
		read[f.State]++
		return f, err
	}, "("+failures+ordered(Dead)+" LIMIT ?) UNION ALL ("+failures+ordered(Scheduled)+" LIMIT ?)", Dead, SearchLimit, Scheduled, SearchLimit)
	list = slices.DeleteFunc(list, func(f Failure) bool { return f.Error == "" })
	return list, read[Dead] == SearchLimit || read[Scheduled] == SearchLimit, mysql.Translate(ctx, "look at failures", err)
}

const failures = "SELECT id, queue, type, state, COALESCE(LEFT(last_error, 300), '') FROM parked_tasks FORCE INDEX (timers) WHERE state = ? "
