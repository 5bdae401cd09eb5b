package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"
)

// onceRecord is a row of the table task_keys.
type onceRecord struct {
	batch   once
	ids     []uint64
	created int64
}

// EnqueueOnce implements [Queue].
func (q *MemoryQueue) EnqueueOnce(ctx context.Context, key string, batch []New) (ids []uint64, replayed bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("enqueue %d tasks once: %w", len(batch), err)
	}
	batch, err = validated(batch)
	if err != nil {
		return nil, false, err
	}
	hashes, err := newOnce(key, batch)
	if err != nil {
		return nil, false, err
	}
	q.mu.Lock()
	before, replayed := q.once[key]
	var inserted []New
	if !replayed {
		ids, inserted = q.add(batch)
		q.once[key] = onceRecord{hashes, ids, q.now().UnixMilli()}
	}
	q.mu.Unlock()
	switch {
	case !replayed:
		q.tell(batch, inserted)
		return ids, false, nil
	case before.batch != hashes:
		return nil, false, ErrKeyReused
	}
	return before.ids, true, nil
}

// forgetKeys forgets the keys that were used at end or before, and the oldest of
// those that are too many.
func (q *MemoryQueue) forgetKeys(end int64) {
	var all []int64
	for _, o := range q.once {
		all = append(all, o.created)
	}
	slices.Sort(all)
	if len(all) > q.mostKeys {
		end = max(end, all[len(all)-q.mostKeys-1])
	}
	maps.DeleteFunc(q.once, func(_ string, o onceRecord) bool { return o.created <= end })
}

// matches tells whether the filter chooses the record.
func (f Filter) matches(r *record) bool {
	return r.ID > f.After &&
		(len(f.IDs) == 0 || slices.Contains(f.IDs, r.ID)) &&
		(len(f.Kinds) == 0 || slices.Contains(f.Kinds, r.Kind)) &&
		(len(f.States) == 0 || slices.Contains(f.States, r.state)) &&
		(len(f.Queues) == 0 || slices.Contains(f.Queues, r.Queue)) &&
		(f.Key == 0 || f.Key == r.Key)
}

// matching returns up to limit records that match, by id.
func (q *MemoryQueue) matching(f Filter, limit int) []*record {
	found := q.inOrder(f.matches)
	slices.SortFunc(found, func(a, b *record) int { return cmp.Compare(a.ID, b.ID) })
	return found[:min(limit, len(found))]
}

// List implements [Queue].
func (q *MemoryQueue) List(_ context.Context, match Filter, limit int) (list []Record, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.matching(match, limit) {
		list = append(list, r.public())
	}
	return list, nil
}

func (r *record) public() Record {
	out := Record{
		ID: r.ID, Queue: r.Queue, Kind: r.Kind, Key: r.Key, Payload: r.Payload, Priority: r.Priority, State: r.state,
		Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, ExpiresAt: timeOrNone(uint64(r.expiresAt)), LeaseOwner: "", DedupeKey: r.dedupeKey,
		LastError: r.lastError, Created: time.UnixMilli(r.created), Updated: time.UnixMilli(r.updated),
	}
	if r.state == Running {
		out.LeaseOwner = r.Lease
	}
	out.setDue(timeOrNone(uint64(r.dueAt)))
	return out
}

// Retry implements [Queue].
func (q *MemoryQueue) Retry(_ context.Context, match Filter, limit int) (int, error) {
	match.States = among(match.States, Dead, Scheduled)
	queues := make(map[string]bool)
	q.mu.Lock()
	list := q.change(match, limit)
	for _, r := range list {
		r.state, r.dueAt, r.expiresAt, r.Attempts, r.lost, r.updated = Waiting, 0, 0, 0, false, q.now().UnixMilli()
		queues[r.Queue] = true
	}
	q.mu.Unlock()
	if len(list) > 0 {
		q.options.Notifier.Notify(slices.Sorted(maps.Keys(queues))...)
	}
	return len(list), nil
}

// Discard implements [Queue].
func (q *MemoryQueue) Discard(_ context.Context, match Filter, limit int) (int, error) {
	match.States = among(match.States, Waiting, Scheduled, Dead, Done)
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.change(match, limit)
	for _, r := range list {
		q.remove(r)
	}
	return len(list), nil
}

// change returns the records to change; none when no state is possible.
func (q *MemoryQueue) change(match Filter, limit int) []*record {
	if len(match.States) == 0 {
		return nil
	}
	return q.matching(match, limit)
}

// Pause implements [Queue].
func (q *MemoryQueue) Pause(_ context.Context, queue string) (changed bool, err error) {
	if err := checkQueueName(queue); err != nil {
		return false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	changed = !q.paused[queue]
	q.paused[queue] = true
	return changed, nil
}

// Resume implements [Queue].
func (q *MemoryQueue) Resume(_ context.Context, queue string) (changed bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed = q.paused[queue]
	delete(q.paused, queue)
	return changed, nil
}

// Paused implements [Queue].
func (q *MemoryQueue) Paused(context.Context) ([]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.paused)), nil
}

// Full implements [Queue].
func (q *MemoryQueue) Full(ctx context.Context, limit int) (bool, error) {
	c, err := q.Count(ctx)
	return c.Waiting >= limit, err
}

// Stats implements [Queue].
func (q *MemoryQueue) Stats(context.Context) (s Stats, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	names := q.namesToCount()
	counts, found := make(map[TaskStats]int), maps.Clone(q.paused)
	for _, r := range q.open {
		if !slices.Contains(names, r.Queue) {
			s.More = true
			continue
		}
		t := r.Kind
		if !slices.Contains(Kinds(), t) {
			t = OtherKinds
		}
		counts[TaskStats{Queue: r.Queue, Kind: t, State: r.state}]++
		found[r.Queue] = true
	}
	for t, n := range counts {
		t.Count = n
		s.Tasks = append(s.Tasks, t)
	}
	slices.SortFunc(s.Tasks, func(a, b TaskStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	for _, name := range slices.Sorted(maps.Keys(found)) {
		s.Queues = append(s.Queues, QueueStats{
			Queue: name, Paused: q.paused[name], Capped: capped(s.Tasks, name), Oldest: q.oldest(name), Due: max(q.oldest(name), q.due(name)),
		})
	}
	return s, nil
}

// due is the age of the oldest of those that run, or were postponed or tried before.
func (q *MemoryQueue) due(queue string) (age time.Duration) {
	begun := func(r *record) bool { return r.state == Scheduled && r.dueAt != 0 || r.state == Running }
	for _, r := range q.inOrder(func(r *record) bool { return begun(r) && r.Queue == queue }) {
		since := r.updated
		switch {
		case r.lastError != "":
			since = r.created
		case r.state == Scheduled:
			since = r.dueAt
		}
		age = max(age, q.now().Sub(time.UnixMilli(since)))
	}
	return age
}

// namesToCount returns the queues that Stats looks at.
func (q *MemoryQueue) namesToCount() []string {
	names, others := q.options.standing(slices.Collect(maps.Keys(q.paused))), make(map[string]bool)
	for _, r := range q.open {
		if !slices.Contains(names, r.Queue) {
			others[r.Queue] = true
		}
	}
	list := slices.Sorted(maps.Keys(others))
	return append(names, list[:min(len(list), mostOthers)]...)
}

// oldest is the age of the oldest of those that stand first in line, each in its
// priority.
func (q *MemoryQueue) oldest(queue string) (age time.Duration) {
	first := make(map[int]bool)
	for _, r := range q.inOrder(func(r *record) bool { return r.state == Waiting && r.Queue == queue }) {
		if !first[r.Priority] && len(first) < mostPriorities {
			first[r.Priority] = true
			age = max(age, q.now().Sub(time.UnixMilli(r.created)))
		}
	}
	return age
}
