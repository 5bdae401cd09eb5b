package queue_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// TestTheQueueIsItsSpecification drives the queue on MariaDB and the one in
// memory through the same random life, under a clock that jumps both ways, and
// compares every answer and every task after every step. Meanwhile a checker
// that knows neither looks for the promises: no task is lost or stuck, none runs
// twice at once, the urgent come first and then the older ones, and what is
// absorbed is done after all.
func TestTheQueueIsItsSpecification(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	rapid.Check(t, func(rt *rapid.T) {
		db, err := mysql.Open(dsn)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		db.SetMaxOpenConns(1) // the clock is set for a connection, which ends after 45 s or more
		m := newModel(rt, db)
		rt.Repeat(map[string]func(*rapid.T){
			"enqueue":      m.enqueue,
			"enqueue once": m.enqueueOnce,
			"claim":        m.claim,
			"finish":       m.finish,
			"extend":       m.extend,
			"crash":        m.crash,
			"absorb":       m.absorb,
			"clock":        m.jump,
			"sweep":        m.sweep,
			"pause":        m.pause,
			"retry":        m.retry,
			"discard":      m.discard,
			"forge":        m.forge,
			"":             m.compare,
		})
		m.drain()
	})
}

// model is the pair of queues and what the checker knows of them.
type model struct {
	t     *rapid.T
	db    *sql.DB
	now   time.Time
	mysql *queue.Queue
	spec  *queuetest.Memory

	claims    []pairOfClaims
	running   map[uint64]time.Time // by whom it is held until when
	key       map[uint64]string    // what each task is about
	changed   map[string]int       // the version of each thing that tasks are about
	seen      map[uint64]int       // the version that a running task may have read
	applied   map[string]int
	standsFor map[uint64]int  // the version up to which a task stands for what it absorbed
	immortal  map[uint64]bool // it, or what it absorbed, must never expire
	lost      map[uint64]bool // its last lease ran out
	excused   map[string]int  // the version up to which tasks expired, died or were discarded
}

// pairOfClaims is what both queues gave for one claim. Their leases have
// different names.
type pairOfClaims struct{ mysql, spec []queue.Task }

func newModel(t *rapid.T, db *sql.DB) *model {
	m := &model{
		t: t, db: db, now: time.UnixMilli(1_700_000_000_000),
		running: map[uint64]time.Time{}, key: map[uint64]string{}, changed: map[string]int{},
		seen: map[uint64]int{}, applied: map[string]int{}, excused: map[string]int{},
		standsFor: map[uint64]int{}, immortal: map[uint64]bool{}, lost: map[uint64]bool{},
	}
	options := queue.Options{Kinds: tasks.Kinds(), Owner: "model"}
	m.mysql = queue.NewQueue(db, options)
	m.mysql.LookCheaply() // else a claim may leave what is before its cursor to a later one
	m.spec = queuetest.NewMemory(options, func() time.Time { return m.now })
	m.exec("TRUNCATE TABLE tasks")
	m.exec("TRUNCATE TABLE task_leases")
	m.exec("TRUNCATE TABLE parked_tasks")
	m.exec("TRUNCATE TABLE task_keys")
	m.exec("TRUNCATE TABLE paused_queues")
	m.setClock(m.now)
	return m
}

func (m *model) exec(query string, args ...any) {
	if _, err := m.db.ExecContext(context.Background(), query, args...); err != nil {
		m.t.Fatal(err)
	}
}

func (m *model) setClock(now time.Time) {
	m.now = now
	m.exec(fmt.Sprintf("SET timestamp = %d.%03d", now.Unix(), now.UnixMilli()%1000))
}

// sameJSON compares arguments: MySQL writes them in a form of its own.
var sameJSON = cmp.Transformer("JSON", func(raw json.RawMessage) (v any) {
	if err := json.Unmarshal(raw, &v); err != nil {
		return err
	}
	return v
})

// same fails unless both queues said the same.
func (m *model) same(what string, fromMySQL, fromSpec any, errs ...error) {
	m.t.Helper()
	if err := errors.Join(errs...); err != nil {
		m.t.Fatalf("%s: %v", what, err)
	}
	if diff := cmp.Diff(fromSpec, fromMySQL, cmpopts.EquateEmpty(), sameJSON); diff != "" {
		m.t.Fatalf("%s: the specification (-) and MySQL (+) differ:\n%s", what, diff)
	}
}

func (m *model) batch(t *rapid.T) []queue.New {
	one := rapid.Custom(func(t *rapid.T) queue.New {
		id := rapid.Custom(func(t *rapid.T) member.ID { return member.ID(rapid.IntRange(1, 3).Draw(t, "id")) })
		n := rapid.SampledFrom([]func() queue.New{
			func() queue.New { return tasks.NewUpload(id.Draw(t, "user")) },
			func() queue.New { return tasks.NewAddContact(id.Draw(t, "user"), id.Draw(t, "contact")) },
			func() queue.New { return tasks.NewRemoveContact(id.Draw(t, "user"), id.Draw(t, "contact")) },
			func() queue.New { return tasks.NewRefill(id.Draw(t, "user")) },
		}).Draw(t, "task")()
		n.Priority = rapid.SampledFrom([]int{0, 0, queue.Urgent, queue.Idle}).Draw(t, "priority")
		n.Delay = rapid.SampledFrom([]time.Duration{0, 0, 0, 5 * time.Second}).Draw(t, "delay")
		n.Life = rapid.SampledFrom([]time.Duration{0, 0, 0, 10 * time.Second}).Draw(t, "life")
		return n
	})
	return rapid.SliceOfN(one, 1, 4).Draw(t, "batch")
}

// noteChanges counts a change for every task: it commits with it.
func (m *model) noteChanges(batch []queue.New, ids []uint64) {
	for i, n := range batch {
		m.changed[n.DedupeKey]++
		m.key[ids[i]] = n.DedupeKey
		m.standsFor[ids[i]] = m.changed[n.DedupeKey]
		m.immortal[ids[i]] = m.immortal[ids[i]] || n.Life == 0
	}
}

// excuse forgives that a task was not done, and all that it stands for. One that
// must not expire is not forgiven for that.
func (m *model) excuse(id uint64, expired bool) {
	if expired && m.immortal[id] {
		m.t.Fatalf("task %d expired, though it stands for what never does", id)
	}
	m.excused[m.key[id]] = max(m.excused[m.key[id]], m.standsFor[id])
}

func (m *model) enqueue(t *rapid.T) {
	batch := m.batch(t)
	fromMySQL, err := m.mysql.Enqueue(context.Background(), batch)
	spec, specErr := m.spec.Enqueue(context.Background(), batch)
	m.same("Enqueue", fromMySQL, spec, err, specErr)
	m.noteChanges(batch, spec)
}

func (m *model) enqueueOnce(t *rapid.T) {
	batch := m.batch(t)
	key := fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "key"))
	fromMySQL, again, err := m.mysql.EnqueueOnce(context.Background(), key, batch)
	spec, specAgain, specErr := m.spec.EnqueueOnce(context.Background(), key, batch)
	m.same("EnqueueOnce: whether the key was reused", errors.Is(err, queue.ErrKeyReused), errors.Is(specErr, queue.ErrKeyReused))
	if specErr != nil {
		return
	}
	m.same("EnqueueOnce", []any{fromMySQL, again}, []any{spec, specAgain}, err)
	if !again {
		m.noteChanges(batch, spec)
	}
}

// shown is a claimed task without the name of its lease.
func shown(list []queue.Task) []queue.Task {
	out := slices.Clone(list)
	for i := range out {
		out[i].Lease = ""
	}
	return out
}

func (m *model) claim(t *rapid.T) {
	q := rapid.SampledFrom([]string{queue.DefaultQueue, queue.DefaultQueue, tasks.QueueRefill}).Draw(t, "queue")
	n := rapid.IntRange(1, 4).Draw(t, "n")
	lease := rapid.SampledFrom([]time.Duration{2 * time.Second, time.Minute}).Draw(t, "lease")
	before := m.waiting(q)
	m.claimFrom(q, n, lease)
	m.checkOrder(before, n)
}

// expired excuses those of the records that are gone.
func (m *model) expired(before []queue.Record) {
	for _, r := range m.gone(before) {
		m.excuse(r.ID, true)
	}
}

func (m *model) claimFrom(queue string, n int, lease time.Duration) int {
	before := m.records(all)
	fromMySQL, err := m.mysql.Claim(context.Background(), queue, n, lease)
	spec, specErr := m.spec.Claim(context.Background(), queue, n, lease)
	m.expired(before)
	for _, r := range m.records(scheduled) {
		delete(m.lost, r.ID) // the clock was put back, and it was parked
	}
	m.same("Claim", shown(fromMySQL), shown(spec), err, specErr)
	for _, task := range spec {
		if until, ok := m.running[task.ID]; ok {
			m.t.Fatalf("task %d runs twice: it was held until %v, now is %v", task.ID, until, m.now)
		}
		m.running[task.ID] = m.now.Add(lease)
		m.seen[task.ID] = m.changed[m.key[task.ID]]
	}
	if len(spec) > 0 {
		m.claims = append(m.claims, pairOfClaims{fromMySQL, spec})
	}
	return len(spec)
}

// all matches all tasks, and scheduled those of that state.
var (
	all       queue.Filter
	scheduled = queue.Filter{States: []queue.State{queue.Scheduled}}
)

// waiting returns the tasks of a queue that may be claimed, in the order in which
// they should be.
func (m *model) waiting(name string) []queue.Record {
	list := m.records(queue.Filter{Queues: []string{name}, States: []queue.State{queue.Waiting}})
	slices.SortStableFunc(list, func(a, b queue.Record) int { return a.Priority - b.Priority })
	return list
}

func (m *model) records(f queue.Filter) []queue.Record {
	list, err := m.spec.List(context.Background(), f, 1000)
	if err != nil {
		m.t.Fatal(err)
	}
	return list
}

// checkOrder: no task is claimed before one that stands before it, none is left
// when none is claimed, and one whose lease was lost goes alone, but for its second attempt. Those that
// expired are passed over.
func (m *model) checkOrder(before []queue.Record, n int) {
	passed, claimed, alone := uint64(0), 0, false
	for _, r := range before {
		_, runs := m.running[r.ID]
		suspect := m.lost[r.ID] && r.Attempts >= 2
		switch expired := !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(m.now); {
		case runs && (passed != 0 || expired || alone || claimed == n || suspect && claimed > 0):
			m.t.Fatalf("task %d was claimed out of its turn; %d was left, %d claimed before", r.ID, passed, claimed)
		case runs:
			claimed++
			alone = suspect
			delete(m.lost, r.ID)
		case !expired && passed == 0:
			passed = r.ID
		}
	}
	if claimed == 0 && passed != 0 {
		m.t.Fatalf("task %d is left, though none was claimed", passed)
	}
}

// takeClaim takes one of the claims that are under way.
func (m *model) takeClaim(t *rapid.T) (c pairOfClaims, at int) {
	if len(m.claims) == 0 {
		t.Skip("nothing is claimed")
	}
	at = rapid.IntRange(0, len(m.claims)-1).Draw(t, "claim")
	return m.claims[at], at
}

func (m *model) finish(t *rapid.T) {
	c, at := m.takeClaim(t)
	m.claims = slices.Delete(m.claims, at, at+1)
	verdict := rapid.SampledFrom([]error{
		nil, nil, nil, errors.New("failed"), queue.Later(3*time.Second, errors.New("away")), queue.Later(0, errors.New("stopped")),
		queue.Permanent(errors.New("never")),
	}).Draw(t, "result")
	m.finishWith(c, verdict)
}

func (m *model) finishWith(c pairOfClaims, result error) {
	for i := range c.spec {
		fromMySQL, err := m.mysql.Finish(context.Background(), []queue.Result{{Task: c.mysql[i], Err: result}})
		spec, specErr := m.spec.Finish(context.Background(), []queue.Result{{Task: c.spec[i], Err: result}})
		m.same("Finish", fromMySQL, spec, err, specErr)
		if spec == 0 {
			m.finished(c.spec[i], result)
		}
	}
	m.alignPauses()
}

// finished notes what a result that was accepted means.
func (m *model) finished(task queue.Task, result error) {
	id, key := task.ID, m.key[task.ID]
	delete(m.running, id)
	switch left := m.records(queue.Filter{IDs: []uint64{id}}); {
	case result == nil:
		m.applied[key] = max(m.applied[key], m.seen[id])
	case len(left) == 1 && left[0].State == queue.Dead:
		m.excuse(id, false)
	}
}

// alignPauses gives MySQL the random pauses before the next attempt that the
// specification drew.
func (m *model) alignPauses() {
	for _, r := range m.records(queue.Filter{States: []queue.State{queue.Scheduled}}) {
		if r.RunAt.IsZero() { // forged
			continue
		}
		m.exec("UPDATE parked_tasks SET due_at = ? WHERE id = ? AND state = 'scheduled'", r.RunAt.UnixMilli(), r.ID)
	}
}

func (m *model) extend(t *rapid.T) {
	c, _ := m.takeClaim(t)
	fromMySQL, err := m.mysql.Extend(context.Background(), c.mysql, 10*time.Second)
	spec, specErr := m.spec.Extend(context.Background(), c.spec, 10*time.Second)
	m.same("Extend", fromMySQL, spec, err, specErr)
	for _, r := range m.records(queue.Filter{States: []queue.State{queue.Running}}) {
		m.running[r.ID] = r.LeaseUntil
	}
}

// crash forgets a claim: its worker is never heard of again.
func (m *model) crash(t *rapid.T) {
	_, at := m.takeClaim(t)
	m.claims = slices.Delete(m.claims, at, at+1)
}

func (m *model) absorb(t *rapid.T) {
	c, _ := m.takeClaim(t)
	if c.spec[0].Kind != tasks.Upload {
		t.Skip("only uploads absorb when they run")
	}
	before := m.records(queue.Filter{})
	fromMySQL, err := m.mysql.Absorb(context.Background(), c.mysql[:1])
	spec, specErr := m.spec.Absorb(context.Background(), c.spec[:1])
	m.same("Absorb", fromMySQL, spec, err, specErr)
	holder := c.spec[0].ID
	for _, r := range m.gone(before) { // the holder does their work, with what it reads from now on
		m.seen[holder] = m.changed[m.key[holder]]
		m.standsFor[holder] = max(m.standsFor[holder], m.standsFor[r.ID])
		m.immortal[holder] = m.immortal[holder] || m.immortal[r.ID]
	}
}

// gone returns those of the records that are not there any more.
func (m *model) gone(before []queue.Record) []queue.Record {
	after := m.records(queue.Filter{})
	return slices.DeleteFunc(before, func(r queue.Record) bool {
		return slices.ContainsFunc(after, func(o queue.Record) bool { return o.ID == r.ID })
	})
}

func (m *model) jump(t *rapid.T) {
	m.setClock(m.now.Add(time.Duration(rapid.SampledFrom([]int{1, 900, 2500, 11_000, 61_000, 25 * 3_600_000, -1500, -70_000}).Draw(t, "milliseconds")) * time.Millisecond))
}

// pause makes tasks of a queue expire that no claim meets. Claims are the fetchers' choice, and go on.
func (m *model) pause(*rapid.T) {
	changed, err := m.mysql.Pause(context.Background(), tasks.QueueRefill)
	spec, specErr := m.spec.Pause(context.Background(), tasks.QueueRefill)
	if !spec {
		changed, err = m.mysql.Resume(context.Background(), tasks.QueueRefill)
		spec, specErr = m.spec.Resume(context.Background(), tasks.QueueRefill)
	}
	m.same("Pause", changed, spec, err, specErr)
}

func (m *model) sweep(*rapid.T) {
	before := m.records(queue.Filter{States: []queue.State{queue.Waiting, queue.Scheduled, queue.Running}})
	defer func() { m.expired(before) }()
	fromMySQL, err := m.mysql.Sweep(context.Background())
	spec, specErr := m.spec.Sweep(context.Background())
	m.same("Sweep", fromMySQL, spec, err, specErr)
	for id, until := range m.running {
		if !until.After(m.now) {
			delete(m.running, id)
			m.lost[id] = true
		}
	}
	for _, r := range m.records(queue.Filter{States: []queue.State{queue.Dead}}) {
		m.excuse(r.ID, false)
	}
}

func (m *model) filter(t *rapid.T) queue.Filter {
	return rapid.SampledFrom([]queue.Filter{
		{},
		{States: []queue.State{queue.Dead}},
		{States: []queue.State{queue.Running}},
		{Kinds: []string{tasks.Upload}, Key: 1},
		{Queues: []string{tasks.QueueRefill}},
		{IDs: []uint64{1, 2, 3}, After: 1},
	}).Draw(t, "filter")
}

func (m *model) retry(t *rapid.T) {
	f, before := m.filter(t), m.records(queue.Filter{})
	fromMySQL, err := m.mysql.Retry(context.Background(), f, 1000)
	spec, specErr := m.spec.Retry(context.Background(), f, 1000)
	m.same("Retry", fromMySQL, spec, err, specErr)
	for _, r := range before {
		if after := m.records(queue.Filter{IDs: []uint64{r.ID}}); after[0].State != r.State {
			delete(m.lost, r.ID) // and it never expires any more
		}
	}
}

func (m *model) discard(t *rapid.T) {
	f, before := m.filter(t), m.records(queue.Filter{})
	fromMySQL, err := m.mysql.Discard(context.Background(), f, 1000)
	spec, specErr := m.spec.Discard(context.Background(), f, 1000)
	m.same("Discard", fromMySQL, spec, err, specErr)
	for _, r := range m.gone(before) {
		m.excuse(r.ID, false)
	}
}

// forge makes of a task that waits, and has its dedupe key, a row that only a
// producer can have written: tried before, or in a queue without workers. It need not be done any
// more, but what is enqueued later under its key has to be.
func (m *model) forge(t *rapid.T) {
	list := slices.DeleteFunc(m.records(queue.Filter{States: []queue.State{queue.Waiting}}),
		func(r queue.Record) bool { return r.DedupeKey == "" })
	if len(list) == 0 {
		t.Skip("no task has a dedupe key")
	}
	r := rapid.SampledFrom(list).Draw(t, "task")
	attempts, q := rapid.SampledFrom([]int{0, 1, 24}).Draw(t, "attempts"), r.Queue
	if attempts == 0 {
		q = "nowhere"
	}
	m.exec("UPDATE tasks SET attempts = ?, due_at = NULL, queue = ? WHERE id = ?", attempts, q, r.ID)
	m.spec.Forge(r.ID, attempts, 0, q)
	m.excuse(r.ID, false)
}

// compare looks at every task, and at the counts.
func (m *model) compare(*rapid.T) {
	ctx := context.Background()
	fromMySQL, err := m.mysql.List(ctx, queue.Filter{}, 1000)
	spec, specErr := m.spec.List(ctx, queue.Filter{}, 1000)
	for _, list := range [][]queue.Record{fromMySQL, spec} {
		for i := range list { // each names the lease as it likes
			list[i].LastError, list[i].LeaseOwner = "", ""
		}
	}
	m.same("List", fromMySQL, spec, err, specErr)
	realCounts, err := queuetest.Count(ctx, m.mysql)
	specCounts, specErr := queuetest.Count(ctx, m.spec)
	m.same("Count", realCounts, specCounts, err, specErr)
	realStats, err := m.mysql.Stats(ctx)
	specStats, specErr := m.spec.Stats(ctx)
	m.same("Stats", realStats, specStats, err, specErr)
}

// drain works with good workers until nothing is open. What was running is given
// up: its leases run out.
func (m *model) drain() {
	m.claims = nil
	for range 20 {
		m.setClock(m.now.Add(2 * time.Minute))
		m.sweep(nil)
		for _, name := range []string{queue.DefaultQueue, tasks.QueueRefill, "nowhere"} {
			for claimed := 1; claimed > 0; {
				before := m.waiting(name)
				claimed = m.claimFrom(name, 1000, time.Hour)
				m.checkOrder(before, 1000)
			}
		}
		for _, c := range m.claims {
			m.finishWith(c, nil)
		}
		m.claims = nil
	}
	if c, err := queuetest.Count(context.Background(), m.spec); err != nil || c.Open() != 0 {
		m.t.Fatalf("stuck: %+v, %v", c, err)
	}
	for key, version := range m.changed {
		if max(m.applied[key], m.excused[key]) < version {
			m.t.Fatalf("lost: change %d of %s; the last one that was seen by a task is %d", version, key, m.applied[key])
		}
	}
}
