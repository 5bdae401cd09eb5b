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

// Look is how full the queues are at one moment, and what came and went since the look before.
type Look struct {
	Stats
	// Since is the time from the look before; 0: there was none, so Flows says nothing.
	Since time.Duration
	// Flows are by queue and kind, of those with tasks that came or went.
	Flows []Flow
	// About is, of each queue in which more than [StatsLimit] tasks wait, about how many wait. It is
	// estimated: their ids are counted in sixteen places of each priority.
	About map[string]int

	at   time.Time
	last uint64              // the highest id of a task
	ends map[string]position // of a queue with more waiting tasks than are counted, the last one that was
}

// Flow is how many tasks of a queue and kind came and went between two looks. A task that came after the
// first look and had been started before the second is in neither number: AtLeast says that there may be some, because the
// tasks of the queue wait for less time than lay between the looks, or because they are more than are counted.
type Flow struct {
	Queue, Kind string
	Enqueued    int // that were not there at the first look, and wait at the second
	Started     int // that waited at the first look, and do not at the second: nearly all were claimed
	AtLeast     bool
}

// maxBetween is how long ago the look before may be. What came since then is read row by row.
const maxBetween = time.Minute

// The places of a backlog in which ids are counted, and how many ids are in each.
const (
	sampledPlaces = 16
	sampledIDs    = 1000
)

// The queries of a look read index entries, and rows up to [StatsLimit] of a queue.
const (
	highestID = "SELECT COALESCE(MAX(id), 0) FROM tasks UNION ALL SELECT COALESCE(MAX(id), 0) FROM parked_tasks"
	// came is what was inserted since, and left what is left of what was counted. The order names the index.
	came      = "SELECT queue, 'came' AS state, type, created_at FROM tasks FORCE INDEX (PRIMARY) WHERE id > ? AND " + isDue + " ORDER BY id LIMIT ?"
	left      = "SELECT ? AS queue, 'left' AS state, type, created_at FROM tasks FORCE INDEX (claim) WHERE queue = ? AND id <= ? AND " + isDue + " LIMIT ?"
	leftUpTo  = "SELECT ? AS queue, 'left' AS state, type, created_at FROM tasks FORCE INDEX (claim) WHERE queue = ? AND id <= ? AND " + isDue + " AND (priority < ? OR priority = ? AND id <= ?) LIMIT ?"
	lastOf    = "SELECT priority, id FROM tasks FORCE INDEX (claim) WHERE queue = ? ORDER BY priority, id LIMIT 1 OFFSET ?"
	idsOf     = "(SELECT id FROM tasks FORCE INDEX (claim) WHERE queue = ? AND priority = ? ORDER BY id LIMIT 1) UNION ALL" + " (SELECT id FROM tasks FORCE INDEX (claim) WHERE queue = ? AND priority = ? ORDER BY id DESC LIMIT 1)"
	sampledOf = "SELECT COUNT(*) FROM tasks FORCE INDEX (claim) WHERE queue = ? AND priority = ? AND id BETWEEN ? AND ?"
)

// Look returns how full the queues are, and what came and went since the look before, if there was one in the last
// minute; nil: there was none. It sees one moment, without a lock. Beyond what Stats reads, it reads as many rows again.
func (q *Queue) Look(ctx context.Context, before *Look) (l Look, err error) {
	defer func() { err = mysql.Translate(ctx, "look at the queues", err) }()
	tx, err := q.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return l, err
	}
	defer func() { _ = tx.Rollback() }() // it only read
	l.at = time.Now()
	if l.Stats, l.last, err = q.stats(ctx, tx); err != nil {
		return l, err
	}
	highest, err := mysql.Select(ctx, tx, mysql.Column[uint64], highestID)
	if err != nil {
		return l, err
	}
	l.last = max(l.last, slices.Max(highest))
	if err := l.measure(ctx, tx); err != nil {
		return l, err
	}
	if before == nil || l.at.Sub(before.at) > maxBetween {
		return l, nil
	}
	l.last, l.Since = max(l.last, before.last), l.at.Sub(before.at)
	err = q.compare(ctx, tx, before, &l)
	return l, err
}

// waiting returns how many tasks of a queue and kind were counted that wait; of any kind, if it is "".
func (l *Look) waiting(queue, kind string) (n int) {
	for _, t := range l.Tasks {
		if t.Queue == queue && t.State == Waiting && (kind == "" || t.Kind == kind) {
			n += t.Count
		}
	}
	return n
}

// measure finds, of the queues with more waiting tasks than are counted, where the counting ended, and estimates how many they are.
func (l *Look) measure(ctx context.Context, tx *sql.Tx) error {
	l.About, l.ends = make(map[string]int), make(map[string]position)
	for _, s := range l.Queues {
		if !s.Capped {
			continue
		}
		ends, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (p position, err error) {
			err = rows.Scan(&p.priority, &p.id)
			return p, err
		}, lastOf, s.Queue, StatsLimit-1)
		if err != nil {
			return err
		}
		if len(ends) == 0 { // they are in another state
			continue
		}
		l.ends[s.Queue] = ends[0]
		n, err := estimate(ctx, tx, s.Queue)
		if err != nil {
			return err
		}
		l.About[s.Queue] = max(n, StatsLimit)
	}
	return nil
}

// estimate returns about how many tasks of a queue there are.
func estimate(ctx context.Context, tx *sql.Tx, queue string) (about int, err error) {
	priorities, err := prioritiesOf(ctx, tx, queue)
	if err != nil {
		return 0, err
	}
	for _, priority := range priorities {
		ids, err := mysql.Select(ctx, tx, mysql.Column[uint64], idsOf, queue, priority, queue, priority)
		if err != nil {
			return 0, err
		}
		if len(ids) < 2 {
			continue
		}
		first, span := slices.Min(ids), slices.Max(ids)-slices.Min(ids)+1
		part := max(1, (span+sampledPlaces-1)/sampledPlaces)
		size := min(part, sampledIDs)
		var texts []string
		var args []any
		for i := range uint64(sampledPlaces) {
			from := first + i*part + (part-size)/2 // in the middle of the part
			texts, args = append(texts, sampledOf), append(args, queue, priority, from, from+size-1)
		}
		found, err := mysql.Select(ctx, tx, mysql.Column[int], strings.Join(texts, " UNION ALL "), args...)
		if err != nil {
			return 0, err
		}
		sum := 0
		for _, n := range found {
			sum += n
		}
		about += int(float64(sum) * float64(part) / float64(size))
	}
	return about, nil
}

// compare sets what came and went since before.
func (q *Queue) compare(ctx context.Context, tx *sql.Tx, before, l *Look) error {
	kinds := append(q.options.Kinds.Names(), otherKinds)
	named := append(mysql.Args(kinds), otherKinds)
	texts := []string{countKinds(len(kinds), came)}
	args := append(slices.Clone(named), before.last, StatsLimit)
	for _, s := range before.Queues {
		if before.waiting(s.Queue, "") == 0 {
			continue
		}
		args = append(append(args, named...), s.Queue, s.Queue, before.last)
		if end, ok := before.ends[s.Queue]; ok {
			texts, args = append(texts, countKinds(len(kinds), leftUpTo)), append(args, end.priority, end.priority, end.id)
		} else {
			texts = append(texts, countKinds(len(kinds), left))
		}
		args = append(args, StatsLimit)
	}
	flows := make(map[[2]string]*Flow)
	of := func(queue, kind string) *Flow {
		// As names has it: to the table, "a" and "A" are one queue.
		if i := slices.IndexFunc(l.Queues, func(s Summary) bool { return strings.EqualFold(s.Queue, queue) }); i >= 0 {
			queue = l.Queues[i].Queue
		}
		key := [2]string{queue, kind}
		flows[key] = cmp.Or(flows[key], &Flow{Queue: queue, Kind: kind})
		return flows[key]
	}
	for _, t := range before.Tasks {
		if t.State == Waiting {
			of(t.Queue, t.Kind).Started += t.Count
		}
	}
	arrived := 0
	_, err := mysql.Select(ctx, tx, func(rows *sql.Rows) (_ struct{}, err error) {
		var queue, kind, what string
		var n int
		var oldest uint64
		if err = rows.Scan(&queue, &what, &kind, &n, &oldest); what == "came" {
			of(queue, kind).Enqueued += n
			arrived += n
		} else {
			of(queue, kind).Started -= n
		}
		return struct{}{}, err
	}, strings.Join(texts, " UNION ALL "), args...)
	started := make(map[string]int)
	for _, f := range flows {
		f.Started = max(f.Started, 0) // some came back, or committed late
		started[f.Queue] += f.Started
	}
	for _, f := range flows {
		f.AtLeast = arrived >= StatsLimit || started[f.Queue] >= StatsLimit || l.hides(f.Queue)
		l.Flows = append(l.Flows, *f)
	}
	slices.SortFunc(l.Flows, func(a, b Flow) int { return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind)) })
	return err
}

// hides reports whether tasks of a queue may have come and gone unseen between the looks.
func (l *Look) hides(queue string) bool {
	i := slices.IndexFunc(l.Queues, func(s Summary) bool { return s.Queue == queue })
	return i < 0 || l.Queues[i].Oldest < l.Since && !l.Queues[i].Paused
}
