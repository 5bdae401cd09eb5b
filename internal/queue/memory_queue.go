package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// MemoryQueue is the executable specification of the queue: the plainest code
// for its rules, for the demo and for tests. It lives as long as the process.
type MemoryQueue struct {
	options Options
	now     func() time.Time

	mu     sync.Mutex
	nextID uint64
	claims int
	open   map[uint64]*record
	keys   map[string]uint64 // dedupe key to the task that has it
	paused map[string]bool
	once   map[string]onceRecord

	mostKeys int
}

// record is a row of the table tasks. Times are unix milliseconds, 0 for none.
type record struct {
	Task
	state     State
	dedupeKey string
	dueAt     int64
	expiresAt int64
	created   int64
	updated   int64
	lastError string
	lost      bool // the last lease ran out
}

const defaultMaxAttempts = 25 // as in schema.sql

// NewMemoryQueue returns an empty queue that tells time by now.
func NewMemoryQueue(o Options, now func() time.Time) *MemoryQueue {
	return &MemoryQueue{
		options: o.withDefaults(), now: now,
		open: map[uint64]*record{}, keys: map[string]uint64{}, paused: map[string]bool{}, once: map[string]onceRecord{}, mostKeys: MostKeys,
	}
}

// Enqueue implements [Queue].
func (q *MemoryQueue) Enqueue(ctx context.Context, batch []New) ([]uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enqueue %d tasks: %w", len(batch), err)
	}
	batch, err := validated(batch)
	if err != nil || len(batch) == 0 {
		return nil, err
	}
	q.mu.Lock()
	ids, inserted := q.add(batch)
	q.mu.Unlock()
	q.tell(batch, inserted)
	return ids, nil
}

// tell wakes workers and counts.
func (q *MemoryQueue) tell(batch, inserted []New) {
	countEnqueued(batch, inserted)
	q.options.Notifier.Notify(queuesOf(batch)...)
}

// add inserts the distinct tasks of a batch, in order of their keys as MySQL
// does, or lets waiting ones absorb them.
func (q *MemoryQueue) add(batch []New) (ids []uint64, inserted []New) {
	byKey, now := distinct(batch), q.now().UnixMilli()
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		n := byKey[key]
		if r := q.open[q.keys[key]]; r != nil && r.absorbs(n) {
			r.setTiming(r.timing().absorbing(timingOf(n, now)), now)
			continue
		} else if r != nil {
			r.dedupeKey = ""
		}
		q.insert(n, now)
		inserted = append(inserted, n)
	}
	for _, n := range batch {
		ids = append(ids, q.keys[n.DedupeKey])
	}
	return ids, inserted
}

func (q *MemoryQueue) insert(n New, now int64) {
	q.nextID++
	r := &record{
		Task:      Task{ID: q.nextID, Kind: n.Kind, Key: n.Key, Payload: n.Payload, Queue: n.Queue, MaxAttempts: defaultMaxAttempts},
		dedupeKey: n.DedupeKey, created: now, updated: now,
	}
	r.setTiming(timingOf(n, now), now)
	q.open[r.ID], q.keys[n.DedupeKey] = r, r.ID
}

func (r *record) timing() timing {
	t := timing{priority: r.Priority, expiresAt: r.expiresAt}
	if r.state == Scheduled {
		t.runAt = r.dueAt
	}
	return t
}

// setTiming changes nothing when there is nothing to change, not even updated.
func (r *record) setTiming(t timing, now int64) {
	if r.state != "" && r.timing() == t {
		return
	}
	r.Priority, r.expiresAt, r.state, r.dueAt, r.updated = t.priority, t.expiresAt, t.state(), t.dueAt(), now
}

// Claim implements [Queue].
func (q *MemoryQueue) Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim tasks of queue %s: %w", queue, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims++
	return q.claim(queue, n, min(lease, MostLease)), nil
}

// claim starts the first n tasks that wait and have not expired; one whose lease
// was lost goes alone.
func (q *MemoryQueue) claim(queue string, n int, lease time.Duration) (claimed []Task) {
	now := q.now().UnixMilli()
	due := q.inOrder(func(r *record) bool { return r.state == Waiting && r.Queue == queue && !r.isDue(now) })
	for _, r := range due[:min(n, len(due))] {
		if r.lost && len(claimed) > 0 {
			break
		}
		claimed = append(claimed, q.start(r, now, lease))
		if r.lost {
			r.lost = false
			break
		}
	}
	return claimed
}

func (q *MemoryQueue) start(r *record, now int64, lease time.Duration) Task {
	delete(q.keys, r.dedupeKey)
	r.Expires, r.Created, r.Claimed = r.expiresAt != 0, time.UnixMilli(r.created), time.UnixMilli(now)
	r.Waited = time.Duration(max(0, now-r.updated)) * time.Millisecond
	r.dedupeKey, r.state, r.updated = "", Running, now
	r.Attempts++
	r.Lease, r.dueAt = fmt.Sprintf("%s/%d", q.options.Owner, q.claims), now+lease.Milliseconds()
	return r.Task
}

func (q *MemoryQueue) remove(r *record) {
	delete(q.keys, r.dedupeKey) // "" is no task's
	delete(q.open, r.ID)
}

// inOrder returns the records that fit, the urgent ones first, then in order of
// arrival.
func (q *MemoryQueue) inOrder(fits func(*record) bool) []*record {
	var found []*record
	for _, r := range q.open {
		if fits(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *record) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID)) })
	return found
}

// held returns the record of a task whose lease still holds, or nil.
func (q *MemoryQueue) held(t Task) *record {
	if r := q.open[t.ID]; r != nil && r.state == Running && r.Lease == t.Lease {
		return r
	}
	return nil
}

// Extend implements [Queue].
func (q *MemoryQueue) Extend(ctx context.Context, held []Task, lease time.Duration) (lost int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("extend the leases of %d tasks: %w", len(held), err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range held {
		if r := q.held(t); r != nil {
			r.dueAt = q.now().UnixMilli() + min(lease, MostLease).Milliseconds()
		} else {
			lost++
		}
	}
	return lost, nil
}

// Finish implements [Queue].
func (q *MemoryQueue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("finish %d tasks: %w", len(results), err)
	}
	lost = q.finish(results)
	q.options.Notifier.Notify(queuesOfReturned(results)...)
	return lost, nil
}

func (q *MemoryQueue) finish(results []Result) (lost int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, result := range results {
		if r := q.held(result.Task); r != nil {
			q.settle(r, Judge(result))
		} else {
			lost++
		}
	}
	return lost
}

func (q *MemoryQueue) settle(r *record, v Verdict) {
	if v.State == Done && q.options.Keep == 0 {
		q.remove(r)
		return
	}
	if v.Uncounted {
		r.Attempts--
	}
	now := q.now().UnixMilli()
	r.state, r.Lease, r.lastError, r.updated = v.State, "", v.Message, now
	switch r.state {
	case Waiting:
		r.dueAt = r.expiresAt
	case Scheduled:
		r.dueAt = now + v.After.Milliseconds()
	case Done:
		r.dueAt = now + q.options.Keep.Milliseconds()
	case Dead, Running:
		r.dueAt = 0
	}
}

// Sweep implements [Queue].
func (q *MemoryQueue) Sweep(ctx context.Context) (s Swept, err error) {
	if err := ctx.Err(); err != nil {
		return s, fmt.Errorf("sweep tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now().UnixMilli()
	for _, r := range q.open {
		if r.isDue(now) {
			q.timeUp(r, now, &s)
		}
	}
	q.forgetKeys(now - KeyLife.Milliseconds())
	return s, nil
}

// isDue tells whether something must happen to the record at once.
func (r *record) isDue(now int64) bool {
	switch r.state {
	case Waiting:
		return r.dueAt != 0 && r.dueAt <= now
	case Scheduled, Done:
		return r.dueAt <= now
	case Running:
		return r.dueAt <= now || r.dueAt > now+MostLease.Milliseconds()
	case Dead:
	}
	return false
}

// timeUp does what is due for one task.
func (q *MemoryQueue) timeUp(r *record, now int64, s *Swept) {
	switch r.state {
	case Running:
		s.TookOver++
		r.lastError = "the lease of " + r.Lease + " ran out: it crashed, was stopped, or took too long"
		r.Lease, r.updated, r.lost = "", now, true
		if r.state, r.dueAt = Waiting, r.expiresAt; r.Attempts >= r.MaxAttempts {
			r.state, r.dueAt = Dead, 0
		}
	case Scheduled:
		s.Due++
		r.state, r.dueAt, r.updated = Waiting, r.expiresAt, now
	case Waiting:
		s.Dropped++
		q.remove(r)
	case Done:
		q.remove(r)
	case Dead: // nothing is ever due
	}
}

// Active implements [Queue].
func (q *MemoryQueue) Active(_ context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k, _ := kindOf(kind)
	found := make(map[uint64]bool)
	for _, r := range q.open {
		alive := r.state == Waiting || r.state == Running && r.Lease != ""
		if r.Kind == kind && alive && r.Queue == k.Queue && r.Priority <= Normal && slices.Contains(keys, r.Key) {
			found[r.Key] = true
		}
	}
	return found, nil
}

// Pending implements [Queue].
func (q *MemoryQueue) Pending(_ context.Context, kinds []string, keys []uint64) (map[uint64]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := make(map[uint64]bool)
	for _, r := range q.open {
		unfinished := r.state == Waiting || r.state == Scheduled || r.state == Running
		if unfinished && slices.Contains(kinds, r.Kind) && slices.Contains(keys, r.Key) {
			found[r.Key] = true
		}
	}
	return found, nil
}

// Absorb implements [Queue].
func (q *MemoryQueue) Absorb(ctx context.Context, held []Task) (absorbed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("absorb tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ours := slices.DeleteFunc(slices.Clone(held), func(t Task) bool { return q.held(t) == nil })
	for _, t := range ours {
		for _, r := range q.open {
			if r.Kind == t.Kind && r.Key == t.Key && (r.state == Waiting || r.state == Scheduled) {
				q.remove(r)
				absorbed++
			}
		}
	}
	for _, t := range ours {
		if absorbed > 0 { // they stand for others now, and those may never expire
			q.open[t.ID].expiresAt = 0
		}
	}
	return absorbed, nil
}

// Count implements [Queue].
func (q *MemoryQueue) Count(context.Context) (c Counts, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.open {
		switch r.state {
		case Waiting:
			c.Waiting++
		case Scheduled:
			c.Scheduled++
		case Running:
			c.Running++
		case Dead:
			c.Dead++
		case Done:
			c.Done++
		}
	}
	return c, nil
}
