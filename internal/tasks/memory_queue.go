package tasks

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// MemoryQueue is the executable specification of the queue: the plainest code
// for its rules, for the demo and for tests. It lives as long as the process.
type MemoryQueue struct {
	options QueueOptions
	now     func() time.Time

	mu     sync.Mutex
	nextID uint64
	claims int
	open   map[uint64]*record
	keys   map[string]uint64 // dedupe key to the task that has not been started
}

// record is a row of the table tasks.
type record struct {
	Task
	state      State
	dedupeKey  string
	runAt      time.Time
	leaseUntil time.Time
	lastError  string
}

const defaultMaxAttempts = 25 // as in schema.sql

// NewMemoryQueue returns an empty queue that tells time by now.
func NewMemoryQueue(o QueueOptions, now func() time.Time) *MemoryQueue {
	return &MemoryQueue{options: o.withDefaults(), now: now, open: map[uint64]*record{}, keys: map[string]uint64{}}
}

// Enqueue implements [Queue].
func (q *MemoryQueue) Enqueue(ctx context.Context, batch []New) ([]uint64, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("enqueue %d tasks: %w", len(batch), err)
	}
	for _, n := range batch {
		if n.DedupeKey == "" {
			return nil, fmt.Errorf("%w: %s task for %s has no dedupe key", ErrInvalid, n.Type, n.Subject)
		}
	}
	q.mu.Lock()
	ids := make([]uint64, len(batch))
	for i, n := range batch {
		ids[i] = q.add(n)
	}
	q.mu.Unlock()
	q.options.Bell.Ring()
	return ids, nil
}

func (q *MemoryQueue) add(n New) uint64 {
	if id, ok := q.keys[n.DedupeKey]; ok {
		return id
	}
	raw, err := json.Marshal(n.Args)
	if err != nil {
		panic(fmt.Sprintf("tasks: Args cannot be marshalled: %v", err)) // two numbers always can
	}
	q.nextID++
	q.open[q.nextID] = &record{
		Task:  Task{ID: q.nextID, Type: n.Type, Subject: n.Subject, RawArgs: raw, Queue: n.Queue, MaxAttempts: defaultMaxAttempts},
		state: Waiting, dedupeKey: n.DedupeKey,
	}
	q.keys[n.DedupeKey] = q.nextID
	return q.nextID
}

// Claim implements [Queue].
func (q *MemoryQueue) Claim(ctx context.Context, queue string, n int, lease time.Duration) ([]Task, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim tasks of queue %s: %w", queue, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	due := q.inOrder(func(r *record) bool {
		return r.state == Waiting && r.Queue == queue && !r.runAt.After(q.now())
	})
	due = due[:min(n, len(due))]
	q.claims++
	claimed := make([]Task, len(due))
	for i, r := range due {
		delete(q.keys, r.dedupeKey)
		r.dedupeKey, r.state = "", Running
		r.Attempts++
		r.Lease, r.leaseUntil = fmt.Sprintf("claim %d", q.claims), q.now().Add(lease)
		claimed[i] = r.Task
	}
	return claimed, nil
}

// inOrder returns the records that fit, in order of arrival.
func (q *MemoryQueue) inOrder(fits func(*record) bool) []*record {
	var found []*record
	for _, r := range q.open {
		if fits(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *record) int { return cmp.Compare(a.ID, b.ID) })
	return found
}

// Finish implements [Queue].
func (q *MemoryQueue) Finish(ctx context.Context, results []Result) (lost int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("finish %d tasks: %w", len(results), err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, result := range results {
		r := q.open[result.Task.ID]
		if r == nil || r.state != Running || r.Lease != result.Task.Lease {
			lost++
			continue
		}
		q.settle(r, judge(result))
	}
	return lost, nil
}

func (q *MemoryQueue) settle(r *record, v verdict) {
	if v.kind == done {
		delete(q.open, r.ID)
		return
	}
	if v.kind == postpone {
		r.Attempts--
	}
	r.state, r.Lease, r.lastError, r.runAt = v.state(), "", v.message, q.now().Add(v.after)
}

// Sweep implements [Queue].
func (q *MemoryQueue) Sweep(ctx context.Context) (s Swept, err error) {
	if err := ctx.Err(); err != nil {
		return s, fmt.Errorf("sweep tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.open {
		switch {
		case r.state == Scheduled && !r.runAt.After(q.now()):
			r.state = Waiting
			s.Due++
		case r.state == Running && !r.leaseUntil.After(q.now()):
			r.state, r.lastError = Waiting, "the lease of "+r.Lease+" ran out"
			if r.Attempts >= r.MaxAttempts {
				r.state = Dead
			}
			r.Lease = ""
			s.TookOver++
		}
	}
	return s, nil
}

// FanningOut implements [Queue].
func (q *MemoryQueue) FanningOut(_ context.Context, users []member.ID) (map[member.ID]bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := make(map[member.ID]bool)
	for _, r := range q.open {
		if r.Type == FanOut && (r.state == Waiting || r.state == Running) && slices.Contains(users, r.Subject) {
			found[r.Subject] = true
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
	for _, t := range held {
		if own := q.open[t.ID]; own == nil || own.state != Running || own.Lease != t.Lease {
			continue
		}
		for id, r := range q.open {
			if r.Type == t.Type && r.Subject == t.Subject && (r.state == Waiting || r.state == Scheduled) {
				delete(q.keys, r.dedupeKey)
				delete(q.open, id)
				absorbed++
			}
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
		}
	}
	return c, nil
}
