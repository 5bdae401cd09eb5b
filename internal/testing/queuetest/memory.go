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
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// Memory is a queue in memory: the plainest code for the rules. Its tasks live as long as the process. It is
// safe for concurrent use.
type Memory struct {
	options queue.Options
	now     func() time.Time

	mu     sync.Mutex
	lastID uint64
	claims int
	rows   map[uint64]*row
	keys   map[string]uint64 // dedupe key to the task that has it
	held   map[orderingKey]uint64
	paused map[string]bool
	once   map[string]onceRow
}

// row is a task. Times are unix milliseconds, 0 for none.
type row struct {
	queue.Task
	state     queue.State
	dedupeKey string
	runAt     int64 // as in the table
	started   int64
	expiresAt int64
	created   int64
	lastError string
	lost      int // leases that ran out
}

// orderingKey is the ordering key of a task, and held is the only task of a key that may run.
type orderingKey struct {
	queue string
	key   uint64
}

// onceRow is a row of the table idempotency_keys.
type onceRow struct {
	batch   [sha256.Size]byte
	ids     []uint64
	created int64
}

const (
	defaultAttempts = 25 // as in schema.sql
	sharedAttempts  = 2
)

// NewMemory returns an empty queue whose clock is now.
func NewMemory(o queue.Options, now func() time.Time) *Memory {
	if o.Notifier == nil {
		o.Notifier = &notify.Notifier{}
	}
	return &Memory{
		options: o, now: now, rows: map[uint64]*row{}, keys: map[string]uint64{}, held: map[orderingKey]uint64{},
		paused: map[string]bool{}, once: map[string]onceRow{},
	}
}

// Options returns the options of the queue.
func (q *Memory) Options() queue.Options { return q.options }

// clock is now in unix milliseconds.
func (q *Memory) clock() int64 { return q.now().UnixMilli() }

// kind returns the kind of that name.
func (q *Memory) kind(name string) (k queue.Kind, known bool) {
	if i := slices.Index(q.options.Kinds.Names(), name); i >= 0 {
		return q.options.Kinds[i], true
	}
	return k, false
}

// sameWork reports whether a task does the work of n.
func (q *Memory) sameWork(n queue.New, t queue.Task) bool {
	k, known := q.kind(t.Kind)
	if k.DedupeKey == nil {
		return known && k.Name == n.Kind
	}
	key, err := k.DedupeKey(t.Key, t.Payload)
	return err == nil && key == n.DedupeKey
}

// orderOf returns the ordering key of a task.
func (q *Memory) orderOf(t queue.Task) (key orderingKey, ordered bool) {
	k, known := q.kind(t.Kind)
	return orderingKey{t.Queue, t.Key}, t.Key != 0 && (k.Ordered || !known)
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
	q.once[key] = onceRow{hash, ids, q.clock()}
	return ids, false, nil
}

func (q *Memory) notify(batch []queue.New) {
	for _, n := range batch {
		q.options.Notifier.Notify(n.Queue)
	}
}

// add inserts the tasks of a batch in order of their keys, as MySQL does. A waiting task may stand for a new
// task.
func (q *Memory) add(batch []queue.New) []uint64 {
	var plain int
	var single uint64 // the id of the only task without a key
	for _, n := range slices.SortedStableFunc(slices.Values(batch), func(a, b queue.New) int { return cmp.Compare(a.DedupeKey, b.DedupeKey) }) {
		r := q.rows[q.keys[n.DedupeKey]] // nil for a task without a key: keys has no ""
		if r != nil && q.standsFor(r, n) {
			continue
		} else if r != nil {
			r.dedupeKey = ""
		}
		q.insert(n)
		if n.DedupeKey == "" {
			plain, single = plain+1, q.lastID
		}
	}
	ids := make([]uint64, len(batch))
	for i, n := range batch {
		if ids[i] = q.keys[n.DedupeKey]; n.DedupeKey == "" && plain == 1 {
			ids[i] = single
		}
	}
	return ids
}

func (q *Memory) insert(n queue.New) {
	q.lastID++
	k, _ := q.kind(n.Kind)
	r := &row{
		Task: queue.Task{
			ID: q.lastID, Kind: n.Kind, Key: n.Key, Payload: n.Payload, Queue: n.Queue, Priority: n.Priority,
			MaxAttempts: cmp.Or(n.MaxAttempts, k.MaxAttempts), Backoff: cmp.Or(n.Backoff, k.Backoff),
		},
		state: queue.Waiting, dedupeKey: n.DedupeKey, created: q.clock(),
	}
	if n.Life > 0 {
		r.expiresAt = r.created + n.Life.Milliseconds()
	}
	if n.Delay > 0 {
		r.state, r.runAt = queue.Scheduled, r.created+n.Delay.Milliseconds()
	}
	q.rows[r.ID] = r
	if n.DedupeKey != "" {
		q.keys[n.DedupeKey] = r.ID
	}
}

// standsFor lets a task that was not started stand for a new task of the same work. The task then has the
// earlier time, the higher urgency and the longer life of the two.
func (q *Memory) standsFor(r *row, n queue.New) bool {
	waits := r.state == queue.Waiting || r.state == queue.Scheduled
	if !waits || r.Attempts > 0 || r.Queue != n.Queue || !q.sameWork(n, r.Task) {
		return false
	}
	now := q.clock()
	r.Priority = min(r.Priority, n.Priority)
	if n.Life == 0 {
		r.expiresAt = 0
	} else if r.expiresAt > 0 {
		r.expiresAt = max(r.expiresAt, now+n.Life.Milliseconds())
	}
	if r.runAt = min(r.runAt, now+n.Delay.Milliseconds()); n.Delay == 0 {
		r.state = queue.Waiting
	}
	return true
}

// Claim starts the first n waiting tasks. It takes the first task of each ordering key, if no task of the key
// runs. A task that has lost sharedAttempts leases goes alone. Claim drops expired tasks.
func (q *Memory) Claim(ctx context.Context, name string, n int, lease time.Duration) (claimed []queue.Task, err error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("claim tasks of queue %s: %w", name, err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.claims++
	now := q.clock()
	for _, r := range q.inOrder(func(r *row) bool { return r.state == queue.Waiting && r.Queue == name && !q.paused[name] }) {
		if r.expiresAt != 0 && r.expiresAt <= now {
			q.remove(r)
			continue
		}
		key, ordered := q.orderOf(r.Task)
		if ordered && q.held[key] == 0 {
			q.held[key] = r.ID
		}
		alone := r.lost >= sharedAttempts
		if len(claimed) == n || alone && len(claimed) > 0 {
			break
		}
		if ordered && q.held[key] != r.ID {
			continue
		}
		claimed = append(claimed, q.start(r, now, min(lease, queue.MaxLease)))
		if alone {
			break
		}
	}
	return claimed, nil
}

func (q *Memory) start(r *row, now int64, lease time.Duration) queue.Task {
	delete(q.keys, r.dedupeKey)
	r.Created, r.Claimed = time.UnixMilli(r.created), time.UnixMilli(now)
	r.Waited = time.Duration(max(0, now-max(r.runAt, r.created))) * time.Millisecond
	r.MaxAttempts = cmp.Or(r.MaxAttempts, defaultAttempts)
	r.Backoff = cmp.Or(r.Backoff, 500*time.Millisecond)
	r.dedupeKey, r.state, r.started = "", queue.Running, now
	r.Attempts++
	r.Lease, r.runAt = fmt.Sprintf("%s/%d", q.options.Owner, q.claims), now+lease.Milliseconds()
	return r.Task
}

// remove deletes a task, and its key goes to the next.
func (q *Memory) remove(r *row) {
	delete(q.keys, r.dedupeKey) // "" is no task's
	delete(q.rows, r.ID)
	q.leave(r)
}

// leave frees the ordering key that a task holds. The next claim gives it to the first that waits.
func (q *Memory) leave(r *row) {
	if key, _ := q.orderOf(r.Task); q.held[key] == r.ID {
		delete(q.held, key)
		q.options.Notifier.Notify(r.Queue)
	}
}

// inOrder returns the rows that fit, urgent rows first, then in order of arrival.
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

// leased returns the row of a task whose lease still holds, or nil.
func (q *Memory) leased(t queue.Task) *row {
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
	for _, t := range held {
		if r := q.leased(t); r != nil {
			r.runAt = q.clock() + min(lease, queue.MaxLease).Milliseconds()
		} else {
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
		if r := q.leased(result.Task); r != nil {
			v := queue.Judge(result)
			q.settle(r, v)
			next = append(next, result.FollowUps()...)
		} else {
			lost++
		}
	}
	next, err = q.options.Kinds.Validate(next)
	q.add(next)
	q.mu.Unlock()
	q.notify(next)
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
	r.state, r.Lease, r.lastError, r.lost, r.runAt = v.State, "", v.Message, 0, q.clock()+v.After.Milliseconds()
	if v.State != queue.Waiting {
		q.leave(r)
	}
	q.options.Notifier.Notify(r.Queue)
}

// Sweep makes due tasks wait for a claim, takes back the tasks whose leases ran out, and forgets old keys.
func (q *Memory) Sweep(ctx context.Context) (s queue.Swept, err error) {
	if err := ctx.Err(); err != nil {
		return s, fmt.Errorf("sweep tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.clock()
	for _, r := range q.rows {
		switch {
		case r.state == queue.Scheduled && r.runAt <= now:
			r.state = queue.Waiting
		case r.state == queue.Running && (r.runAt <= now || r.started > now+1000):
			s.TookOver++
			r.lastError = "the lease of " + r.Lease + " ran out: it crashed, was stopped, or took too long"
			r.state, r.lost, r.Lease, r.runAt = queue.Waiting, r.lost+1, "", now
			if r.Attempts >= r.MaxAttempts {
				r.state = queue.Dead
				q.leave(r)
			}
		default:
			continue
		}
		q.options.Notifier.Notify(r.Queue)
	}
	maps.DeleteFunc(q.once, func(_ string, o onceRow) bool { return o.created <= now-queue.KeyTTL.Milliseconds() })
	return s, nil
}

// Active returns the keys with tasks of a kind that wait or run.
func (q *Memory) Active(_ context.Context, name string, keys []uint64) (map[uint64]bool, error) {
	k, _ := q.kind(name)
	home := cmp.Or(k.Queue, queue.DefaultQueue)
	return q.keysOf(keys, func(r *row) bool {
		alive := r.state == queue.Waiting || r.state == queue.Running
		return alive && r.Kind == name && r.Queue == home && r.Priority <= queue.Normal
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

// Dedupe deletes the waiting tasks that a held task stands for.
func (q *Memory) Dedupe(ctx context.Context, held []queue.Task) (deduped int, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("dedupe tasks: %w", err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	ours := slices.DeleteFunc(slices.Clone(held), func(t queue.Task) bool { return q.leased(t) == nil })
	for _, t := range ours {
		k, _ := q.kind(t.Kind)
		if k.DedupeKey == nil {
			continue
		}
		key, err := k.DedupeKey(t.Key, t.Payload)
		for _, r := range q.rows {
			waits := r.state == queue.Waiting || r.state == queue.Scheduled
			if err == nil && waits && r.Kind == t.Kind && r.Key == t.Key && q.sameWork(queue.New{DedupeKey: key}, r.Task) {
				q.remove(r)
				deduped++
			}
		}
	}
	for _, t := range ours {
		if deduped > 0 { // a held task stands for deleted tasks now, and they may never expire
			q.rows[t.ID].expiresAt = 0
		}
	}
	return deduped, nil
}

// CountWaiting counts the waiting tasks, up to a limit.
func (q *Memory) CountWaiting(ctx context.Context, limit int) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return min(limit, len(q.inOrder(func(r *row) bool { return r.state == queue.Waiting }))), ctx.Err()
}

// matching returns up to limit rows that match, by id.
func (q *Memory) matching(f queue.Filter, limit int) []*row {
	found := q.inOrder(func(r *row) bool {
		return r.ID > f.After &&
			(len(f.IDs) == 0 || slices.Contains(f.IDs, r.ID)) &&
			(len(f.Kinds) == 0 || slices.Contains(f.Kinds, r.Kind)) &&
			(len(f.States) == 0 || slices.Contains(f.States, r.state)) &&
			(len(f.Queues) == 0 || slices.Contains(f.Queues, r.Queue)) &&
			(f.DedupeKey == "" || f.DedupeKey == r.dedupeKey) &&
			(f.Key == 0 || f.Key == r.Key) && Like(r.lastError, f.Error)
	})
	slices.SortFunc(found, func(a, b *row) int { return cmp.Compare(a.ID, b.ID) })
	return found[:min(limit, len(found))]
}

// Like reports whether [queue.Filter].Error chooses a last error.
func Like(text, pattern string) bool {
	if pattern == "" || text == "" {
		return pattern == ""
	}
	expression, quoted := strings.Builder{}, false
	for _, r := range pattern {
		switch {
		case quoted || r != '%' && r != '_' && r != '\\':
			expression.WriteString(regexp.QuoteMeta(string(r)))
			quoted = false
		case r == '\\':
			quoted = true
		default:
			expression.WriteString(map[rune]string{'%': ".*", '_': "."}[r])
		}
	}
	return regexp.MustCompile("(?is)" + expression.String()).MatchString(text)
}

// List returns up to limit tasks that match.
func (q *Memory) List(_ context.Context, match queue.Filter, limit int) (list []queue.Record, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.matching(match, limit) {
		list = append(list, q.record(r))
	}
	return list, nil
}

func (q *Memory) record(r *row) queue.Record {
	out := queue.Record{
		ID: r.ID, Queue: r.Queue, Kind: r.Kind, Key: r.Key, Payload: r.Payload, Priority: r.Priority, State: r.state,
		Attempts: r.Attempts, MaxAttempts: r.MaxAttempts, ExpiresAt: timeOf(r.expiresAt), DedupeKey: r.dedupeKey,
		LastError: r.lastError, Created: timeOf(r.created), Started: timeOf(r.started),
	}
	switch out.State {
	case queue.Scheduled:
		out.RunAt = timeOf(r.runAt)
	case queue.Running:
		out.LeaseOwner, out.LeaseUntil = r.Lease, timeOf(r.runAt)
	case queue.Dead:
		out.Died = timeOf(r.runAt)
	case queue.Waiting:
		key, ordered := q.orderOf(r.Task)
		out.Behind = ordered && q.held[key] != 0 && q.held[key] != r.ID
	case queue.Done:
	}
	return out
}

func timeOf(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

// change applies do to up to limit matching tasks that are in any of the states.
func (q *Memory) change(match queue.Filter, limit int, states []queue.State, do func(r *row)) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.matching(match, len(q.rows)) {
		if n < limit && slices.Contains(states, r.state) {
			do(r)
			q.options.Notifier.Notify(r.Queue)
			n++
		}
	}
	return n, nil
}

// Retry makes matching tasks wait again.
func (q *Memory) Retry(_ context.Context, match queue.Filter, limit int) (n int, err error) {
	return q.change(match, limit, []queue.State{queue.Dead, queue.Scheduled}, func(r *row) {
		r.state, r.runAt, r.expiresAt, r.Attempts, r.lost = queue.Waiting, q.clock(), 0, 0, 0
	})
}

// Discard deletes matching tasks that do not run.
func (q *Memory) Discard(_ context.Context, match queue.Filter, limit int) (n int, err error) {
	return q.change(match, limit, []queue.State{queue.Waiting, queue.Scheduled, queue.Dead}, q.remove)
}

// Cancel deletes matching tasks that have not begun.
func (q *Memory) Cancel(_ context.Context, match queue.Filter) (n int, err error) {
	return q.change(match, len(q.rows), []queue.State{queue.Waiting, queue.Scheduled}, q.remove)
}

// Due returns how long ago the oldest task of some kinds, or of all, became due that is not done, by queue.
func (q *Memory) Due(_ context.Context, kinds ...string) (map[string]time.Duration, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	due := make(map[string]time.Duration)
	for _, k := range q.options.Kinds {
		if slices.Contains(kinds, k.Name) {
			due[cmp.Or(k.Queue, queue.DefaultQueue)] = 0
		}
	}
	for _, r := range q.rows {
		if len(kinds) > 0 && !slices.Contains(kinds, r.Kind) || r.state == queue.Dead {
			continue
		}
		since := r.created
		if r.lastError == "" {
			since = map[queue.State]int64{queue.Waiting: max(r.created, r.runAt), queue.Running: r.started, queue.Scheduled: r.runAt}[r.state]
		}
		if age := max(0, q.now().Sub(timeOf(since))); age > 0 || len(kinds) == 0 {
			due[r.Queue] = max(due[r.Queue], age)
		}
	}
	return due, nil
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
	q.options.Notifier.Notify(name)
	return changed, nil
}

// Paused returns the queues that are paused.
func (q *Memory) Paused(context.Context) ([]string, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Sorted(maps.Keys(q.paused)), nil
}

// Stats returns how full the queues are.
func (q *Memory) Stats(ctx context.Context) (s queue.Stats, err error) {
	due, err := q.Due(ctx)
	q.mu.Lock()
	defer q.mu.Unlock()
	counts, queues := make(map[queue.TaskStats]*queue.TaskStats), make(map[string]*queue.Summary)
	for name := range q.paused {
		queues[name] = &queue.Summary{Queue: name, Paused: true}
	}
	for _, r := range q.inOrder(func(*row) bool { return true }) {
		t := queue.TaskStats{Queue: r.Queue, Kind: r.Kind, State: r.state}
		if counts[t] == nil {
			counts[t] = &queue.TaskStats{Queue: t.Queue, Kind: t.Kind, State: t.State, Oldest: timeOf(r.created)}
		}
		counts[t].Count++
		if at := timeOf(r.created); at.Before(counts[t].Oldest) {
			counts[t].Oldest = at
		}
		if queues[r.Queue] == nil {
			queues[r.Queue] = &queue.Summary{Queue: r.Queue}
		}
		is := queues[r.Queue]
		if is.Due = due[r.Queue]; r.state == queue.Waiting {
			is.Oldest = max(is.Oldest, q.now().Sub(timeOf(r.created)))
		}
	}
	for _, t := range counts {
		s.Tasks = append(s.Tasks, *t)
	}
	slices.SortFunc(s.Tasks, func(a, b queue.TaskStats) int {
		return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
	})
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		s.Queues = append(s.Queues, *queues[name])
	}
	return s, err
}

// Errors returns the errors of outcomes.
func Errors(outcomes []queue.Outcome) []error {
	errs := make([]error, len(outcomes))
	for i, o := range outcomes {
		errs[i] = o.Err
	}
	return errs
}
