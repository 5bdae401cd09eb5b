// Package queuetest has the queue in memory: the executable specification of package
// queue, for tests and the demo.
package queuetest

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// Memory is a queue in memory: the plainest code for the rules, which lives as long as
// the process. It is safe for concurrent use.
type Memory struct {
	options queue.Options
	now     func() time.Time

	mu      sync.Mutex
	lastID  uint64
	claims  int
	rows    map[uint64]*row
	keys    map[string]uint64 // dedupe key to the task that has it
	paused  map[string]bool
	once    map[string]onceRow
	maxKeys int
}

// row is a task. Times are unix milliseconds, 0 for none.
type row struct {
	queue.Task
	state     queue.State // Waiting: of the table tasks, as Scheduled is of parked_tasks
	dedupeKey string
	dueAt     int64 // waiting, scheduled: it does not start before; running: the lease ends; done: it is forgotten
	expiresAt int64
	created   int64
	updated   int64
	lastError string
	lost      bool // the last lease ran out
}

// onceRow is a row of the table task_keys.
type onceRow struct {
	batch   [sha256.Size]byte
	ids     []uint64
	created int64
}

const defaultMaxAttempts = 25 // as in schema.sql

// SharedAttempts is how many attempts a task may share with others.
const SharedAttempts = 2

// kindOf returns the kind of that name; a zero one if there is none.
func kindOf(kinds queue.Kinds, name string) (k queue.Kind) {
	if i := slices.Index(kinds.Names(), name); i >= 0 {
		k = kinds[i]
	}
	return k
}

// sameWork reports whether a task does the work of n.
func sameWork(kinds queue.Kinds, n queue.New, t queue.Task) bool {
	k := kindOf(kinds, t.Kind)
	if k.DedupeKey == nil {
		return k.Name != "" && k.Name == n.Kind
	}
	key, err := k.DedupeKey(t.Key, t.Payload)
	return err == nil && key == n.DedupeKey
}

// standsFor reports whether a task that runs does the work of another.
func standsFor(kinds queue.Kinds, runs, other queue.Task) bool {
	k := kindOf(kinds, runs.Kind)
	if k.DedupeKey == nil || other.Kind != runs.Kind || other.Key != runs.Key {
		return false
	}
	key, err := k.DedupeKey(runs.Key, runs.Payload)
	return err == nil && sameWork(kinds, queue.New{DedupeKey: key}, other)
}

// NewMemory returns an empty queue whose clock is now.
func NewMemory(o queue.Options, now func() time.Time) *Memory {
	if o.Notifier == nil {
		o.Notifier = &notify.Notifier{}
	}
	return &Memory{
		options: o, now: now, maxKeys: queue.MaxKeys,
		rows: map[uint64]*row{}, keys: map[string]uint64{}, paused: map[string]bool{}, once: map[string]onceRow{},
	}
}

// Enqueue adds a batch.
func (q *Memory) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	batch, err := q.options.Kinds.Validate(batch)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, fmt.Errorf("enqueue %d tasks: %w", len(batch), err)
	}
	defer q.notify(batch)
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.add(batch), nil
}

// EnqueueOnce adds a batch under an idempotency key.
func (q *Memory) EnqueueOnce(ctx context.Context, key string, batch []queue.New) (ids []uint64, replayed bool, err error) {
	batch, err = q.options.Kinds.Validate(batch)
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return nil, false, fmt.Errorf("enqueue %d tasks once: %w", len(batch), err)
	}
	raw, err := json.Marshal(batch)
	if err != nil {
		return nil, false, err
	}
	hash := sha256.Sum256(raw)
	q.mu.Lock()
	defer q.mu.Unlock()
	if before, ok := q.once[key]; ok && before.batch != hash {
		return nil, false, queue.ErrKeyReused
	} else if ok {
		return before.ids, true, nil
	}
	defer q.notify(batch)
	ids = q.add(batch)
	q.once[key] = onceRow{hash, ids, q.now().UnixMilli()}
	return ids, false, nil
}

func (q *Memory) notify(batch []queue.New) {
	for _, n := range batch {
		q.options.Notifier.Notify(n.Queue)
	}
}

// add inserts the tasks of a batch, or lets those that wait absorb them, in order of
// their keys, as MySQL does.
func (q *Memory) add(batch []queue.New) []uint64 {
	now := q.now().UnixMilli()
	var withoutKey int
	var single uint64 // the id of the only task without a key
	for _, n := range merged(batch) {
		r := q.rows[q.keys[n.DedupeKey]] // nil for one without a key: keys has no ""
		if r != nil && r.absorb(q.options.Kinds, n, now) {
			continue
		} else if r != nil {
			r.dedupeKey = ""
		}
		q.insert(n, now)
		if n.DedupeKey == "" {
			withoutKey, single = withoutKey+1, q.lastID
		}
	}
	ids := make([]uint64, len(batch))
	for i, n := range batch {
		if ids[i] = q.keys[n.DedupeKey]; n.DedupeKey == "" && withoutKey == 1 {
			ids[i] = single
		}
	}
	return ids
}

// merged returns a batch in order of its keys; of those with one key only the first, which stands for all.
func merged(batch []queue.New) (out []queue.New) {
	for _, n := range slices.SortedStableFunc(slices.Values(batch), func(a, b queue.New) int { return cmp.Compare(a.DedupeKey, b.DedupeKey) }) {
		if n.DedupeKey == "" || len(out) == 0 || out[len(out)-1].DedupeKey != n.DedupeKey {
			out = append(out, n)
			continue
		}
		first := &out[len(out)-1]
		first.Priority, first.Delay = min(first.Priority, n.Priority), min(first.Delay, n.Delay)
		if first.Life > 0 && n.Life > 0 {
			first.Life = max(first.Life, n.Life)
		} else {
			first.Life = 0 // never
		}
	}
	return out
}

func (q *Memory) insert(n queue.New, now int64) {
	q.lastID++
	r := &row{
		Task:  queue.Task{ID: q.lastID, Kind: n.Kind, Key: n.Key, Payload: n.Payload, Queue: n.Queue, Priority: n.Priority, MaxAttempts: defaultMaxAttempts},
		state: queue.Waiting, dedupeKey: n.DedupeKey, created: now, updated: now,
	}
	if n.Life > 0 {
		r.expiresAt = now + n.Life.Milliseconds()
	}
	if n.Delay > 0 {
		r.dueAt = now + n.Delay.Milliseconds()
	}
	q.rows[r.ID] = r
	if n.DedupeKey != "" {
		q.keys[n.DedupeKey] = r.ID
	}
}

// absorb lets a task that was not started stand for another one, if it is the same
// work: it runs as early, as urgently and lives as long as either would.
func (r *row) absorb(kinds queue.Kinds, n queue.New, now int64) bool {
	waits := r.state == queue.Waiting || r.state == queue.Scheduled
	if !waits || r.Attempts > 0 || r.Queue != n.Queue || !sameWork(kinds, n, r.Task) {
		return false
	}
	r.Priority = min(r.Priority, n.Priority)
	if n.Life == 0 {
		r.expiresAt = 0
	} else if r.expiresAt > 0 {
		r.expiresAt = max(r.expiresAt, now+n.Life.Milliseconds())
	}
	if r.state == queue.Scheduled && n.Delay == 0 {
		r.wait(now)
	} else {
		r.dueAt = min(r.dueAt, now+n.Delay.Milliseconds()) // none stays none
	}
	return true
}

// wait puts a task back among those that wait.
func (r *row) wait(now int64) { r.state, r.dueAt = queue.Waiting, now }

// stateAt is the state that a task is shown in.
func (r *row) stateAt(now int64) queue.State {
	if r.state == queue.Waiting && r.dueAt > now {
		return queue.Scheduled
	}
	return r.state
}

// Claim starts the first n tasks that wait; one whose lease was
// lost goes alone, if it has had its shared attempts. Those before them that expired are dropped, and
// those that are to come later are parked.
func (q *Memory) Claim(ctx context.Context, name string, n int, lease time.Duration) (claimed []queue.Task, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim tasks of queue %s: %w", name, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims++
	now := q.now().UnixMilli()
	for _, r := range q.inOrder(func(r *row) bool { return r.state == queue.Waiting && r.Queue == name }) {
		waits := r.stateAt(now) == queue.Waiting
		alone := waits && r.lost && r.Attempts >= SharedAttempts
		if len(claimed) == n || alone && len(claimed) > 0 {
			break
		}
		switch {
		case r.expiresAt != 0 && r.expiresAt <= now:
			q.remove(r)
			continue
		case !waits:
			r.state, r.updated, r.lost = queue.Scheduled, now, false
			continue
		}
		r.Index = len(claimed)
		claimed = append(claimed, q.start(r, now, min(lease, queue.MaxLease)))
		if alone {
			break
		}
	}
	return claimed, nil
}

func (q *Memory) start(r *row, now int64, lease time.Duration) queue.Task {
	delete(q.keys, r.dedupeKey)
	r.Expires, r.Created, r.Claimed = r.expiresAt != 0, time.UnixMilli(r.created), time.UnixMilli(now)
	r.Waited = time.Duration(max(0, now-cmp.Or(r.dueAt, r.created))) * time.Millisecond
	r.dedupeKey, r.state, r.updated, r.lost = "", queue.Running, now, false
	r.Attempts++
	r.Lease, r.dueAt = fmt.Sprintf("%s/%d", q.options.Owner, q.claims), now+lease.Milliseconds()
	return r.Task
}

func (q *Memory) remove(r *row) {
	delete(q.keys, r.dedupeKey) // "" is no task's
	delete(q.rows, r.ID)
}

// inOrder returns the rows that fit, the urgent ones first, then in order of arrival.
func (q *Memory) inOrder(fits func(*row) bool) []*row {
	var found []*row
	for _, r := range q.rows {
		if fits(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, func(a, b *row) int { return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.ID, b.ID)) })
	return found
}

// held returns the row of a task whose lease still holds, or nil.
func (q *Memory) held(t queue.Task) *row {
	if r := q.rows[t.ID]; r != nil && r.state == queue.Running && r.Lease == t.Lease {
		return r
	}
	return nil
}

// Extend extends leases.
func (q *Memory) Extend(ctx context.Context, held []queue.Task, lease time.Duration) (lost int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("extend the leases of %d tasks: %w", len(held), err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	lives := make(map[string]bool)
	for _, t := range held {
		lives[t.Lease] = false
	}
	for _, r := range q.rows {
		if _, asked := lives[r.Lease]; asked && r.state == queue.Running {
			r.dueAt, lives[r.Lease] = q.now().UnixMilli()+min(lease, queue.MaxLease).Milliseconds(), true
		}
	}
	for _, t := range held {
		if !lives[t.Lease] {
			lost++
		}
	}
	return lost, nil
}

// Finish records results, and enqueues their follow-ups.
func (q *Memory) Finish(ctx context.Context, results []queue.Result) (lost int, err error) {
	var next []queue.New
	for i := range results {
		if _, err = q.options.Kinds.Validate(results[i].Next); err != nil {
			break
		}
	}
	if err = cmp.Or(ctx.Err(), err); err != nil {
		return 0, fmt.Errorf("finish %d tasks: %w", len(results), err)
	}
	q.mu.Lock()
	for _, result := range results {
		if r := q.held(result.Task); r != nil {
			v := queue.Judge(result)
			q.settle(r, v)
			next = append(next, v.Next...)
		} else {
			lost++
		}
	}
	next, err = q.options.Kinds.Validate(next)
	q.add(next)
	q.mu.Unlock()
	q.notify(next)
	for _, result := range results {
		if queue.Judge(result).State == queue.Waiting {
			q.options.Notifier.Notify(result.Task.Queue)
		}
	}
	return lost, err
}

func (q *Memory) settle(r *row, v queue.Verdict) {
	if v.State == queue.Done {
		q.remove(r)
		return
	}
	if v.Uncounted {
		r.Attempts--
	}
	now := q.now().UnixMilli()
	r.state, r.Lease, r.lastError, r.updated, r.dueAt = v.State, "", v.Message, now, 0
	switch r.state {
	case queue.Waiting:
		r.wait(now)
	case queue.Scheduled:
		r.dueAt = now + v.After.Milliseconds()
	case queue.Dead, queue.Running, queue.Done:
	}
}

// Sweep does what is due.
func (q *Memory) Sweep(ctx context.Context) (s queue.Swept, err error) {
	if err := ctx.Err(); err != nil {
		return s, fmt.Errorf("sweep tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now().UnixMilli()
	for _, r := range q.rows {
		if r.isDue(now) {
			q.timeUp(r, now, &s)
		}
		if r.state == queue.Waiting && q.paused[r.Queue] && r.expiresAt != 0 && r.expiresAt <= now {
			q.remove(r)
		}
	}
	q.forgetKeys(now - queue.KeyTTL.Milliseconds())
	return s, nil
}

// Forward makes all tasks waiting that were postponed and are ready, from whatever place.
func (q *Memory) Forward(ctx context.Context, _ queue.Place, ready func(kind string, key uint64) bool) (next queue.Place, n int, err error) {
	if err := ctx.Err(); err != nil {
		return next, 0, fmt.Errorf("bring forward tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now().UnixMilli()
	for _, r := range q.rows {
		postponed := r.state == queue.Scheduled && r.Attempts == 0 && r.lastError != ""
		if postponed && r.dueAt >= now && r.dueAt <= now+(5*time.Minute).Milliseconds() && ready(r.Kind, r.Key) {
			r.wait(now)
			n++
		}
	}
	return next, n, nil
}

// isDue reports whether something must happen to the row at once.
func (r *row) isDue(now int64) bool {
	switch r.state {
	case queue.Scheduled:
		return r.dueAt <= now
	case queue.Running:
		return r.dueAt <= now || r.dueAt > now+queue.MaxLease.Milliseconds()
	case queue.Waiting, queue.Dead, queue.Done:
	}
	return false
}

// timeUp does what is due for one task.
func (q *Memory) timeUp(r *row, now int64, s *queue.Swept) {
	switch r.state {
	case queue.Running:
		s.TookOver++
		r.lastError = "the lease of " + r.Lease + " ran out: it crashed, was stopped, or took too long"
		r.Lease, r.updated, r.lost = "", now, true
		r.wait(now)
		if r.Attempts >= r.MaxAttempts {
			r.state, r.dueAt = queue.Dead, 0
		}
	case queue.Scheduled:
		s.Due++
		r.wait(now)
	case queue.Waiting, queue.Dead, queue.Done: // nothing is ever due
	}
}

// forgetKeys forgets the idempotency keys that were used at end or before, and the
// oldest of those that are too many.
func (q *Memory) forgetKeys(end int64) {
	var all []int64
	for _, o := range q.once {
		all = append(all, o.created)
	}
	slices.Sort(all)
	if len(all) > q.maxKeys {
		end = max(end, all[len(all)-q.maxKeys-1])
	}
	maps.DeleteFunc(q.once, func(_ string, o onceRow) bool { return o.created <= end })
}

// Active returns the keys with tasks of a kind that wait or run.
func (q *Memory) Active(_ context.Context, kind string, keys []uint64) (map[uint64]bool, error) {
	home, now := cmp.Or(kindOf(q.options.Kinds, kind).Queue, queue.DefaultQueue), q.now().UnixMilli()
	return q.keysOf(keys, func(r *row) bool {
		alive := r.stateAt(now) == queue.Waiting || r.state == queue.Running
		return alive && r.Kind == kind && r.Queue == home && r.Priority <= queue.Normal
	}), nil
}

// Pending returns the keys with unfinished tasks of the kinds.
func (q *Memory) Pending(_ context.Context, kinds []string, keys []uint64) (map[uint64]bool, error) {
	return q.keysOf(keys, func(r *row) bool {
		return r.state != queue.Dead && slices.Contains(kinds, r.Kind)
	}), nil
}

func (q *Memory) keysOf(keys []uint64, fits func(*row) bool) map[uint64]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	found := make(map[uint64]bool)
	for _, r := range q.rows {
		if fits(r) && slices.Contains(keys, r.Key) {
			found[r.Key] = true
		}
	}
	return found
}

// Absorb deletes the tasks that held ones stand for.
func (q *Memory) Absorb(ctx context.Context, held []queue.Task) (absorbed int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("absorb tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ours := slices.DeleteFunc(slices.Clone(held), func(t queue.Task) bool { return q.held(t) == nil })
	for _, t := range ours {
		for _, r := range q.rows {
			if standsFor(q.options.Kinds, t, r.Task) && (r.state == queue.Waiting || r.state == queue.Scheduled) {
				q.remove(r)
				absorbed++
			}
		}
	}
	for _, t := range ours {
		if absorbed > 0 { // they stand for others now, and those may never expire
			q.rows[t.ID].expiresAt = 0
		}
	}
	return absorbed, nil
}

// Room returns how many more tasks may come before limit wait, now or, not yet parked, for later.
func (q *Memory) Room(ctx context.Context, limit int) (room int, stale bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return max(0, limit-len(q.inOrder(func(r *row) bool { return r.state == queue.Waiting }))), false, ctx.Err()
}

// CountWaiting does nothing: Room counts by itself.
func (q *Memory) CountWaiting(context.Context, int) error { return nil }

// matching returns up to limit rows that match, by id.
func (q *Memory) matching(f queue.Filter, limit int) []*row {
	found := q.inOrder(func(r *row) bool {
		return r.ID > f.After &&
			(len(f.IDs) == 0 || slices.Contains(f.IDs, r.ID)) &&
			(len(f.Kinds) == 0 || slices.Contains(f.Kinds, r.Kind)) &&
			(len(f.States) == 0 || slices.Contains(f.States, r.stateAt(q.now().UnixMilli()))) &&
			(len(f.Queues) == 0 || slices.Contains(f.Queues, r.Queue)) &&
			(f.Key == 0 || f.Key == r.Key) && f.FitsError(r.lastError)
	})
	slices.SortFunc(found, func(a, b *row) int { return cmp.Compare(a.ID, b.ID) })
	return found[:min(limit, len(found))]
}

// List returns up to limit tasks that match.
func (q *Memory) List(_ context.Context, match queue.Filter, limit int) (list []queue.Record, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.matching(match, limit) {
		list = append(list, r.record(q.now().UnixMilli()))
	}
	return list, nil
}

func (r *row) record(now int64) queue.Record {
	out := queue.Record{
		ID: r.ID, Queue: r.Queue, Kind: r.Kind, Key: r.Key, Payload: r.Payload, Priority: r.Priority, State: r.stateAt(now),
		Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, ExpiresAt: timeOf(r.expiresAt), DedupeKey: r.dedupeKey,
		LastError: r.lastError, Created: time.UnixMilli(r.created), Updated: time.UnixMilli(r.updated),
	}
	if r.state == queue.Waiting { // since then
		if out.Updated = out.Created; r.dueAt != 0 && r.dueAt <= now {
			out.Updated = timeOf(r.dueAt)
		}
	}
	switch out.State {
	case queue.Scheduled:
		out.RunAt = timeOf(r.dueAt)
	case queue.Running:
		out.LeaseOwner, out.LeaseUntil = r.Lease, timeOf(r.dueAt)
	case queue.Waiting, queue.Dead, queue.Done:
	}
	return out
}

func timeOf(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

// Retry makes matching tasks wait again.
func (q *Memory) Retry(_ context.Context, match queue.Filter, limit int) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.matching(match, len(q.rows)) {
		now := q.now().UnixMilli()
		if state := r.stateAt(now); n == limit || state != queue.Dead && state != queue.Scheduled {
			continue
		}
		if r.state == queue.Waiting {
			now = 0
		}
		r.wait(now)
		r.expiresAt, r.Attempts, r.lost = 0, 0, false
		q.options.Notifier.Notify(r.Queue)
		n++
	}
	return n, nil
}

// SetPriority gives matching tasks that have not been started a priority.
func (q *Memory) SetPriority(_ context.Context, match queue.Filter, limit, priority int) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.matching(match, len(q.rows)) {
		if n < limit && (r.state == queue.Waiting || r.state == queue.Scheduled) {
			r.Priority = priority
			n++
		}
	}
	return n, nil
}

// Due returns how long ago the oldest task of some kinds, or of all, became due that is not done, by queue.
func (q *Memory) Due(_ context.Context, kinds ...string) (map[string]time.Duration, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := make(map[string]time.Duration)
	for _, k := range q.options.Kinds {
		if len(kinds) == 0 || slices.Contains(kinds, k.Name) {
			due[cmp.Or(k.Queue, queue.DefaultQueue)] = 0
		}
	}
	for _, r := range q.rows {
		if len(kinds) == 0 || slices.Contains(kinds, r.Kind) {
			due[r.Queue] = max(q.oldest(r.Queue, kinds), q.due(r.Queue, kinds))
		}
	}
	return due, nil
}

// Discard deletes matching tasks that do not run.
func (q *Memory) Discard(_ context.Context, match queue.Filter, limit int) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.matching(match, len(q.rows)) {
		if n < limit && r.state != queue.Running {
			q.remove(r)
			n++
		}
	}
	return n, nil
}

// Pause lets no task of the queue start.
func (q *Memory) Pause(_ context.Context, name string) (changed bool, err error) {
	if err := queue.CheckName(name); err != nil {
		return false, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	changed = !q.paused[name]
	q.paused[name] = true
	return changed, nil
}

// Resume ends a pause.
func (q *Memory) Resume(_ context.Context, name string) (changed bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	changed = q.paused[name]
	delete(q.paused, name)
	return changed, nil
}

// Paused returns the queues that are paused.
func (q *Memory) Paused(context.Context) ([]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.paused)), nil
}

// Stats returns how full the queues are.
func (q *Memory) Stats(context.Context) (s queue.Stats, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	standing := slices.Concat(q.options.Kinds.Queues(), q.options.Queues, slices.Collect(maps.Keys(q.paused)))
	others := make(map[string]bool)
	counts, found := make(map[queue.TaskStats]*queue.TaskStats), maps.Clone(q.paused)
	for _, r := range q.rows {
		if !slices.Contains(standing, r.Queue) {
			others[r.Queue] = true
		}
	}
	named := slices.Sorted(maps.Keys(others))
	s.More = len(named) > queue.MaxOtherQueues
	standing = append(standing, named[:min(len(named), queue.MaxOtherQueues)]...)
	for _, r := range q.rows {
		if !slices.Contains(standing, r.Queue) {
			continue
		}
		kind := r.Kind
		if !slices.Contains(q.options.Kinds.Names(), kind) {
			kind = "other"
		}
		t := queue.TaskStats{Queue: r.Queue, Kind: kind, State: r.stateAt(q.now().UnixMilli())}
		if counts[t] == nil {
			counts[t] = &queue.TaskStats{Queue: r.Queue, Kind: kind, State: t.State, Oldest: timeOf(r.created)}
		}
		counts[t].Count++
		if at := timeOf(r.created); at.Before(counts[t].Oldest) {
			counts[t].Oldest = at
		}
		found[r.Queue] = true
	}
	for _, t := range counts {
		s.Tasks = append(s.Tasks, *t)
	}
	slices.SortFunc(s.Tasks, func(a, b queue.TaskStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	for _, name := range slices.Sorted(maps.Keys(found)) {
		oldest := q.oldest(name, nil)
		s.Queues = append(s.Queues, queue.Summary{Queue: name, Paused: q.paused[name], Oldest: oldest, Due: max(oldest, q.due(name, nil))})
	}
	return s, nil
}

// due is the age of the oldest of those that run, or were postponed or tried before.
func (q *Memory) due(name string, kinds []string) (age time.Duration) {
	for _, r := range q.rows {
		if r.Queue != name || len(kinds) > 0 && !slices.Contains(kinds, r.Kind) || r.state != queue.Running && (r.state != queue.Scheduled || r.dueAt == 0) {
			continue
		}
		since := r.updated
		switch {
		case r.lastError != "":
			since = r.created
		case r.state == queue.Scheduled:
			since = r.dueAt
		}
		age = max(age, q.now().Sub(time.UnixMilli(since)))
	}
	return age
}

// oldest is the age of the oldest of those that are first, each in its priority.
func (q *Memory) oldest(name string, kinds []string) (age time.Duration) {
	first := make(map[int]bool)
	for _, r := range q.inOrder(func(r *row) bool {
		return r.stateAt(q.now().UnixMilli()) == queue.Waiting && r.Queue == name && (len(kinds) == 0 || slices.Contains(kinds, r.Kind))
	}) {
		if !first[r.Priority] && len(first) < queue.MaxPriorities {
			first[r.Priority] = true
			age = max(age, q.now().Sub(time.UnixMilli(r.created)))
		}
	}
	return age
}

// SetMaxKeys makes the queue remember fewer idempotency keys.
func (q *Memory) SetMaxKeys(most int) { q.maxKeys = most }

// Forge makes a row of what a producer may write: it changes a task that waits, and has its dedupe
// key, as no queue would. A time of 0 stands for none.
func (q *Memory) Forge(id uint64, attempts int, dueAt int64, name string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := q.rows[id]
	r.Attempts, r.dueAt, r.Queue = attempts, dueAt, name
}

// Errors returns the errors of outcomes.
func Errors(outcomes []queue.Outcome) []error {
	errs := make([]error, len(outcomes))
	for i, o := range outcomes {
		errs[i] = o.Err
	}
	return errs
}
