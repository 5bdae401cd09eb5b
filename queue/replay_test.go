//go:build model

package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// TestTheModelAcceptsWhatTheQueueDoes plays two producers, two workers and a sweep on a server, one
// statement at a time, in a random order, with statements that fail and answers that are
// lost. Each commit, and each statement that others can notice, is a step of model/queue.pml. SPIN
// then runs the model along these steps: all must be possible, its properties must hold, and after
// each step its tables must be those of the server.
//
// It refuses code that finishes without the lease, or without its lock; that deletes a range of ids; that brings a key
// back with its task; that absorbs without a lock; or that takes finished tasks of a lease for open ones.
func TestTheModelAcceptsWhatTheQueueDoes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			r := newReplay(t, seed)
			for len(r.steps) < 400 && r.changes < replayChanges {
				r.move(0.03)
			}
			r.drain()
			r.check()
		})
	}
}

// What a replay has at most, so that a set is an int of Promela.
const (
	replayChanges  = 28
	replayAttempts = 3
)

// atOnce is a finish that is one statement.
const atOnce = "DELETE FROM task_leases WHERE token = ? AND done = ?"

// theKey is the dedupe key of all tasks that have one.
const theKey = "upload:1"

// replay is one run of the queue, and the steps of the model that it consists of.
type replay struct {
	t   *testing.T
	db  *sql.DB // without gates
	q   *queue.Queue
	rnd *rand.Rand

	actors  []*actor // the producers, the workers, the sweep
	workers []*worker
	owner   map[string]*actor // by table: who has locked the row with the key, or inserted it

	steps                            []string
	changes                          int
	keyed, mortal, delayed, followed []int          // changes
	row                              map[uint64]int // the model's number of a task
	lease                            map[string]int // the model's number of a claim, by its token
	seen                             tables
}

// actor does one thing at a time, from gate to gate.
type actor struct {
	gate   *gate
	busy   bool
	at     string // the statement that is next
	leases bool   // it has locked leases in this transaction
	idle   func() // begins something
	passed func(statement string, v verdict)
	ended  func()
}

// tables are what is committed.
type tables struct {
	ready, parked, dead []int            // rows
	leases              map[string][]int // by token: what is not finished
	follow              []int            // changes whose task has a follow-up task
}

func newReplay(t *testing.T, seed uint64) *replay {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	exec(t, db, fmt.Sprintf("ALTER TABLE tasks ALTER max_attempts SET DEFAULT %d", replayAttempts))
	behind := gated(db)
	t.Cleanup(func() { _ = behind.Close() })
	r := &replay{
		t: t, db: db, rnd: rand.New(rand.NewPCG(seed, 0)), owner: make(map[string]*actor),
		q:   queue.NewQueue(behind, queue.Options{Kinds: tasks.Kinds(), Owner: "replay"}),
		row: make(map[uint64]int), lease: make(map[string]int),
	}
	r.q.LookCheaply()
	for i := range 2 {
		r.newProducer(i, behind)
	}
	for i := range 2 {
		r.workers = append(r.workers, r.newWorker(i))
	}
	sweep := r.newActor()
	sweep.idle = func() {
		r.begin(sweep, func(ctx context.Context) { _, _ = r.q.Sweep(ctx) })
	}
	sweep.passed = func(statement string, _ verdict) {
		if statement == "COMMIT" {
			r.swept()
		}
	}
	r.seen = r.read()
	return r
}

func (r *replay) newActor() *actor {
	a := &actor{gate: &gate{arrived: make(chan string), pass: make(chan verdict)}, passed: func(string, verdict) {}, ended: func() {}}
	r.actors = append(r.actors, a)
	return a
}

// begin lets the actor do something, up to its first gate.
func (r *replay) begin(a *actor, do func(ctx context.Context)) {
	ctx := context.WithValue(r.t.Context(), gateKey{}, a.gate)
	a.busy = true
	go func() {
		do(ctx)
		a.gate.arrived <- ""
	}()
	r.await(a)
}

func (r *replay) await(a *actor) {
	select {
	case a.at = <-a.gate.arrived:
	case <-r.t.Context().Done():
		r.t.Fatal("the test has ended")
	}
}

// pass lets the actor go on to its next gate, and records what that was.
func (r *replay) pass(a *actor, v verdict) {
	statement := a.at
	a.gate.pass <- v
	r.await(a)
	if strings.Contains(statement, "task_leases") && strings.Contains(statement, "FOR UPDATE") {
		a.leases = true
	}
	if statement == "COMMIT" || a.at == "" {
		a.leases = false
	}
	r.findOwners(a)
	if statement != "COMMIT" && statement != atOnce || v != refuse {
		a.passed(statement, v)
	}
	if a.at == "" {
		a.busy = false
		a.ended()
	}
	r.compare()
}

// findOwners notes whether the actor that has just moved has locked the row with the key.
func (r *replay) findOwners(moved *actor) {
	for _, table := range []string{"tasks", "parked_tasks"} {
		_, err := mysql.Select(r.t.Context(), r.db, mysql.Column[uint64], "SELECT id FROM "+table+" FORCE INDEX (dedupe) WHERE dedupe_key = ? FOR UPDATE NOWAIT", theKey)
		var sent *driver.MySQLError
		switch {
		case err == nil:
			delete(r.owner, table)
		case !errors.As(err, &sent) || sent.Number != 1205 && sent.Number != 3572:
			r.t.Fatal(err)
		case r.owner[table] == nil:
			r.owner[table] = moved
		}
	}
}

// waits reports whether the actor's next statement would wait for another actor.
func (r *replay) waits(a *actor) bool {
	if strings.Contains(a.at, "SKIP LOCKED") {
		return false
	}
	for _, o := range r.owner {
		if o != a && strings.Contains(a.at, "dedupe_key") {
			return true
		}
	}
	for _, o := range r.actors {
		if o != a && o.leases && strings.Contains(a.at, "task_leases") && !strings.HasPrefix(a.at, "INSERT") {
			return true
		}
	}
	return false
}

// move does one thing that is possible, in a share of the cases wrongly.
func (r *replay) move(faults float64) {
	var can []*actor
	for _, a := range r.actors {
		if !a.busy || !r.waits(a) {
			can = append(can, a)
		}
	}
	if len(can) == 0 { // all wait for another: the server would give one of them up
		r.pass(r.actors[r.rnd.IntN(len(r.actors))], refuse)
		return
	}
	if r.rnd.IntN(8) == 0 {
		r.timePasses()
	}
	a := can[r.rnd.IntN(len(can))]
	v := goOn
	switch {
	case !a.busy && slices.Contains(r.actors[:2], a) && r.rnd.IntN(3) > 0: // else tasks pile up
		return
	case !a.busy:
		a.idle()
		return
	case r.rnd.Float64() < faults:
		v = refuse
	case (a.at == "COMMIT" || a.at == atOnce) && r.rnd.Float64() < 2*faults:
		v = lose
	}
	r.pass(a, v)
}

// timePasses makes something due that is not locked.
func (r *replay) timePasses() {
	for _, what := range [][3]string{
		{"tasks", "expires_at", "expires_at > 1"},
		{"tasks", "due_at", "due_at > 1"},
		{"parked_tasks", "due_at", "state = 'scheduled' AND due_at > 1"},
		{"task_leases", "ends_at", "ends_at > 1"},
	} {
		if r.rnd.IntN(2) == 0 {
			continue
		}
		key := "id"
		if what[0] == "task_leases" {
			key = "token"
		}
		tx := begin(r.t, r.db)
		keys, err := mysql.Keys(r.t.Context(), tx, "SELECT "+key+" FROM "+what[0]+" WHERE "+what[2]+" ORDER BY RAND(?) LIMIT 1 FOR UPDATE SKIP LOCKED", r.rnd.IntN(1000))
		if err == nil && len(keys) > 0 {
			_, err = tx.ExecContext(r.t.Context(), "UPDATE "+what[0]+" SET "+what[1]+" = 1 WHERE "+key+" = ?", keys[0])
		}
		if err = errors.Join(err, tx.Commit()); err != nil {
			r.t.Fatal(err)
		}
	}
}

// drain lets all come to their end, and all tasks be done.
func (r *replay) drain() {
	for r.isBusy() {
		var can []*actor
		for _, a := range r.actors {
			if a.busy && !r.waits(a) {
				can = append(can, a)
			}
		}
		if len(can) == 0 {
			i := slices.IndexFunc(r.actors, func(a *actor) bool { return a.busy })
			r.pass(r.actors[i], refuse)
			continue
		}
		r.pass(can[0], goOn)
	}
	for round := 0; len(r.seen.ready)+len(r.seen.parked)+len(r.seen.leases) > 0; round++ {
		if round == 100 {
			r.t.Fatalf("not done: %+v", r.seen)
		}
		exec(r.t, r.db, "UPDATE parked_tasks SET due_at = 1 WHERE state = 'scheduled'")
		exec(r.t, r.db, "UPDATE tasks SET due_at = 1 WHERE due_at > 1")
		exec(r.t, r.db, "UPDATE task_leases SET ends_at = 1")
		r.play(r.actors[len(r.actors)-1].idle)
		for _, w := range r.workers {
			if len(w.held) == 0 {
				r.play(func() { w.claim(10) })
			}
			if len(w.held) > 0 {
				r.play(func() { w.finish(w.held, func() error { return nil }) })
			}
		}
	}
	r.step("nothing is left", "(ready | parked) == 0 && (changed & ~settled) == 0", "skip")
}

// play lets one actor do something up to its end.
func (r *replay) play(begin func()) {
	for begin(); r.isBusy(); {
		r.pass(r.actors[slices.IndexFunc(r.actors, func(a *actor) bool { return a.busy })], goOn)
	}
}

func (r *replay) isBusy() bool {
	return slices.ContainsFunc(r.actors, func(a *actor) bool { return a.busy })
}

// producer is a transaction of the site's, or one of activityd that enqueues.
type producer struct {
	*actor
	number int

	ids    []uint64 // of the changes that it has enqueued
	next   []int
	absent string // how far it has looked for the key
	ended  bool   // its transaction
}

func (r *replay) newProducer(number int, db *sql.DB) {
	p := &producer{actor: r.newActor(), number: number}
	p.idle = func() {
		p.ids, p.next, p.absent = nil, nil, "NOWHERE"
		for range 1 + r.rnd.IntN(2) {
			p.next = append(p.next, r.change(slices.ContainsFunc(p.next, func(c int) bool { return slices.Contains(r.keyed, c) })))
		}
		commits := r.rnd.IntN(4) > 0
		r.begin(p.actor, func(ctx context.Context) { r.produce(ctx, p, db, commits) })
	}
	recorded := 0
	p.passed = func(statement string, _ verdict) {
		r.produced(p, statement, &recorded)
	}
	p.actor.ended = func() {
		if !p.ended {
			r.step(fmt.Sprintf("producer %d: ROLLBACK", number), "true", fmt.Sprintf("rollback(%d); absent[%[1]d] = NOWHERE", number))
		}
		p.ended, recorded = false, 0
	}
}

// change makes another change, whose task may have the key.
func (r *replay) change(plain bool) (c int) {
	c = r.changes
	r.changes++
	for _, set := range []*[]int{&r.mortal, &r.delayed} {
		if r.rnd.IntN(3) == 0 {
			*set = append(*set, c)
		}
	}
	if !plain && r.rnd.IntN(2) == 0 {
		r.keyed = append(r.keyed, c)
	} else if r.rnd.IntN(2) == 0 {
		r.followed = append(r.followed, c)
	}
	return c
}

// subjectOf is whom the task of a change without the key is about.
func subjectOf(change int) member.ID { return member.ID(100 + change) }

func (r *replay) produce(ctx context.Context, p *producer, db *sql.DB, commits bool) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback() }()
	for _, c := range p.next {
		var expires, due any
		n := tasks.NewUpload(1)
		if slices.Contains(r.mortal, c) {
			n.Life, expires = time.Hour, time.Now().Add(time.Hour).UnixMilli()
		}
		if slices.Contains(r.delayed, c) {
			n.Delay, due = time.Hour, time.Now().Add(time.Hour).UnixMilli()
		}
		if slices.Contains(r.keyed, c) {
			ids, err := r.q.EnqueueTx(ctx, tx, n)
			if err != nil {
				return
			}
			p.ids = append(p.ids, ids...)
			continue
		}
		res, err := tx.ExecContext(ctx, "INSERT INTO tasks (type, subject, expires_at, due_at) VALUES ('upload', ?, ?, ?)", subjectOf(c), expires, due)
		if err != nil {
			return
		}
		id, _ := res.LastInsertId()
		p.ids = append(p.ids, uint64(id))
	}
	if commits {
		_ = tx.Commit()
	}
}

// produced records a statement of a producer.
func (r *replay) produced(p *producer, statement string, recorded *int) {
	who := fmt.Sprintf("producer %d: ", p.number)
	keyed := func(what, guard string) {
		c := p.next[*recorded]
		call := map[string]string{"NOWHERE": "look(%d, %d)", "TASKS": "lookOn(%d, %d)", "BOTH": "insertKeyed(%d, %d)"}[p.absent]
		can := map[string]string{"NOWHERE": "canLook(%d)", "TASKS": "canLookOn(%d, %d)", "BOTH": "canInsert(%d)"}[p.absent]
		args := []any{p.number, c}
		r.step(who+what, fmt.Sprintf(can, args[:strings.Count(can, "%")]...)+" && "+guard, fmt.Sprintf(call, args...))
	}
	for ; *recorded < len(p.ids); *recorded++ {
		c, id := p.next[*recorded], p.ids[*recorded]
		row, known := r.row[id]
		if !known {
			row = len(r.row)
			r.row[id] = row
		}
		switch {
		case !slices.Contains(r.keyed, c):
			r.step(fmt.Sprintf("%sINSERT of change %d as task %d", who, c, row), fmt.Sprintf("next == %d", row), fmt.Sprintf("insert(%d, %d)", p.number, c))
		case !known:
			keyed(fmt.Sprintf("INSERT of change %d as task %d, with the key", c, row), fmt.Sprintf("next == %d && holder == NONE", row))
		case p.absent == "TASKS":
			keyed(fmt.Sprintf("parked task %d absorbs change %d", row, c), fmt.Sprintf("parkedHolder == %d", row))
		default:
			keyed(fmt.Sprintf("task %d absorbs change %d", row, c), fmt.Sprintf("holder == %d", row))
		}
		p.absent = "NOWHERE"
	}
	looks := strings.HasPrefix(p.at, "SELECT dedupe_key, id, queue")
	switch {
	case statement == "COMMIT":
		p.ended = true
		r.step(who+statement, "true", fmt.Sprintf("commit(%d)", p.number))
	case looks && strings.Contains(p.at, "FROM parked_tasks"):
		keyed("no task has the key", "holder == NONE")
		p.absent = "TASKS"
	case looks && p.absent == "TASKS":
		keyed("the task that was parked cannot come back with the key", "parkedHolder != NONE && holder != NONE")
		p.absent = "NOWHERE"
	case looks && p.absent == "BOTH":
		keyed("INSERT refused: another has the key", "holder != NONE")
		p.absent = "NOWHERE"
	case strings.HasPrefix(p.at, "INSERT INTO tasks (queue") && p.absent == "TASKS":
		keyed("no parked task has the key", "parkedHolder == NONE")
		p.absent = "BOTH"
	}
}

// worker claims and finishes.
type worker struct {
	*actor
	r      *replay
	number int

	held    []queue.Task
	asked   []queue.Result // of a finish whose answer was lost
	locking int            // the step at which the claim under way locked its rows
}

func (r *replay) newWorker(number int) *worker {
	w := &worker{actor: r.newActor(), r: r, number: number}
	w.idle = func() {
		keyed := func(t queue.Task) bool { return t.Key == 1 }
		switch {
		case len(w.asked) > 0 && r.rnd.IntN(4) > 0:
			w.finishAsked()
		case len(w.held) == 0:
			w.claim(1 + r.rnd.IntN(3))
		case r.rnd.IntN(8) == 0 && r.orphans() == 0:
			r.step(fmt.Sprintf("worker %d dies", number), "true", fmt.Sprintf("forget(%d)", number))
			w.held, w.asked = nil, nil
		case len(w.asked) == 0 && r.rnd.IntN(2) == 0 && slices.ContainsFunc(w.held, keyed):
			w.absorb(w.held[slices.IndexFunc(w.held, keyed)])
		case len(w.asked) == 0:
			some := slices.Clone(w.held)
			r.rnd.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
			w.finish(some[:1+r.rnd.IntN(len(some))], func() error {
				return []error{nil, nil, errors.New("failed"), queue.Later(0, errors.New("handed back"))}[r.rnd.IntN(4)]
			})
		}
	}
	return w
}

// orphans are the leases of workers that died.
func (r *replay) orphans() (n int) {
	for token := range r.seen.leases {
		if !slices.ContainsFunc(r.workers, func(w *worker) bool { return len(w.held) > 0 && w.held[0].Lease == token }) {
			n++
		}
	}
	return n
}

func (w *worker) claim(n int) {
	r, recorded := w.r, false
	w.passed = func(statement string, v verdict) {
		switch {
		case strings.Contains(statement, "FORCE INDEX (claim)") && v == goOn:
			w.locking = len(r.steps)
			r.steps = append(r.steps, "")
		case statement == "COMMIT":
			recorded = r.claimed(w)
		}
	}
	var list []queue.Task
	w.ended = func() {
		if recorded {
			w.held = list
		}
	}
	r.begin(w.actor, func(ctx context.Context) { list, _ = r.q.Claim(ctx, queue.DefaultQueue, n, time.Hour) })
}

// claimed records a claim's commit.
func (r *replay) claimed(w *worker) (some bool) {
	now := r.read()
	for token, list := range now.leases {
		if _, known := r.seen.leases[token]; known {
			continue
		}
		some = true
		rows := set(list)
		r.steps[w.locking] = r.stepText(fmt.Sprintf("worker %d: SELECT of tasks %v", w.number, list),
			fmt.Sprintf("canClaim(%d, %s)", w.number, rows), fmt.Sprintf("locked[%d] = %s", w.number, rows))
		r.step(fmt.Sprintf("worker %d: DELETE of these, INSERT of a lease, COMMIT", w.number), fmt.Sprintf("locked[%d] != 0", w.number),
			fmt.Sprintf("commitClaim(%d); name[%d] = token[%[1]d]", w.number, len(r.lease)))
		r.lease[token] = len(r.lease)
		break
	}
	for _, row := range r.seen.ready {
		taken := slices.ContainsFunc(slices.Collect(maps.Values(now.leases)), func(list []int) bool { return slices.Contains(list, row) })
		switch {
		case slices.Contains(now.ready, row) || taken:
		case slices.Contains(now.parked, row):
			r.rowStep("a claim parks task %d", row, "canPark(%d)", "park(%d)")
		default:
			r.rowStep("a claim drops task %d", row, "canExpire(%d)", "expire(%d)")
		}
	}
	r.seen = now
	return some
}

func (r *replay) rowStep(what string, row int, guard, effect string) {
	r.step(fmt.Sprintf(what, row), fmt.Sprintf(guard, row), fmt.Sprintf(effect, row))
}

func (w *worker) finish(list []queue.Task, result func() error) {
	w.asked = nil
	for _, t := range list {
		one := queue.Result{Task: t, Err: result()}
		if c := int(t.Key) - 100; slices.Contains(w.r.followed, c) {
			one.Next = []queue.New{tasks.NewFanOut(subjectOf(c), 0)}
			one.Next[0].DedupeKey = ""
		}
		w.asked = append(w.asked, one)
	}
	w.finishAsked()
}

func (w *worker) finishAsked() {
	r, asked, committed := w.r, w.asked, false
	var err error
	var done, failed, back []int
	var all []string
	for _, one := range asked {
		row := r.row[one.Task.ID]
		into := &done
		switch v := queue.Judge(one); v.State {
		case queue.Waiting:
			into = &back
		case queue.Scheduled, queue.Dead:
			into = &failed
		case queue.Done, queue.Running:
		}
		*into = append(*into, row)
		all = append(all, fmt.Sprint(row))
	}
	sets := fmt.Sprintf("asDone[%d] = %s; asFailed[%[1]d] = %[3]s; asBack[%[1]d] = %[4]s", w.number, set(done), set(failed), set(back))
	w.passed = func(statement string, _ verdict) {
		_, holds := r.seen.leases[asked[0].Task.Lease]
		_, still := r.read().leases[asked[0].Task.Lease]
		if statement != "COMMIT" && (statement != atOnce || !holds || still) {
			return
		}
		committed = true
		if !holds {
			w.held = nil
		}
		r.step(fmt.Sprintf("worker %d: finish of tasks %s: done %v, failed %v, back %v", w.number, strings.Join(all, " "), done, failed, back),
			fmt.Sprintf("token[%d] != NONE", w.number), sets+fmt.Sprintf("; finish(%d)", w.number))
		r.seen = r.read()
	}
	w.ended = func() {
		switch {
		case err == nil:
			r.step(fmt.Sprintf("worker %d: has its answer", w.number), "true", fmt.Sprintf("answered(%d)", w.number))
			w.held = slices.DeleteFunc(slices.Clone(w.held), func(t queue.Task) bool {
				return slices.ContainsFunc(asked, func(one queue.Result) bool { return one.Task.ID == t.ID })
			})
			w.asked = nil
		case !committed: // it may do something else
			w.asked = nil
		}
	}
	r.begin(w.actor, func(ctx context.Context) { _, err = r.q.Finish(ctx, asked) })
}

// absorb lets held tasks absorb; of them, one that has the key.
func (w *worker) absorb(with queue.Task) {
	r, held := w.r, w.held
	w.passed = func(statement string, _ verdict) {
		if statement != "COMMIT" {
			return
		}
		now := r.read()
		for _, row := range append(slices.Clone(r.seen.ready), r.seen.parked...) {
			if !slices.Contains(now.ready, row) && !slices.Contains(now.parked, row) {
				args := []any{w.number, r.row[with.ID], row}
				r.step(fmt.Sprintf("worker %d: task %d absorbs task %d", args...), fmt.Sprintf("canMerge(%d, %d, %d)", args...), fmt.Sprintf("merge(%d, %d, %d)", args...))
			}
		}
		r.seen = now
	}
	w.ended = func() {}
	r.begin(w.actor, func(ctx context.Context) { _, _ = r.q.Absorb(ctx, held) })
}

// swept records a commit of the sweep.
func (r *replay) swept() {
	now := r.read()
	for token, list := range r.seen.leases {
		if _, still := now.leases[token]; !still {
			l := fmt.Sprintf("name[%d]", r.lease[token])
			r.step(fmt.Sprintf("the sweep ends the lease of tasks %v", list), fmt.Sprintf("lease[%s].is", l),
				fmt.Sprintf("takeBack(%s, lease[%[1]s].content & ~lease[%[1]s].done)", l))
		}
	}
	for _, row := range r.seen.parked {
		if slices.Contains(now.ready, row) {
			r.rowStep("the sweep wakes task %d", row, "canUnpark(%d)", "unpark(%d)")
		}
	}
	r.seen = now
}

// read reads what is committed.
func (r *replay) read() tables {
	now := tables{leases: make(map[string][]int)}
	rowsOf := func(query string) (rows []int) {
		ids, err := mysql.Select(r.t.Context(), r.db, mysql.Column[uint64], query)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, id := range ids {
			rows = append(rows, r.rowOf(id))
		}
		return rows
	}
	now.ready = rowsOf("SELECT id FROM tasks WHERE type = 'upload' ORDER BY id")
	now.parked = rowsOf("SELECT id FROM parked_tasks WHERE state = 'scheduled' ORDER BY id")
	now.dead = rowsOf("SELECT id FROM parked_tasks WHERE state = 'dead' ORDER BY id")
	list, err := queue.NewQueue(r.db, queue.Options{Kinds: tasks.Kinds()}).List(r.t.Context(), queue.Filter{}, 1000)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, record := range list {
		switch {
		case record.Kind == tasks.FanOut:
			now.follow = append(now.follow, int(record.Key)-100)
		case record.State == queue.Running:
			now.leases[record.LeaseOwner] = append(now.leases[record.LeaseOwner], r.rowOf(record.ID))
		}
	}
	slices.Sort(now.follow)
	return now
}

func (r *replay) rowOf(id uint64) int {
	row, known := r.row[id]
	if !known {
		r.t.Fatalf("task %d is in a table, and was not enqueued", id)
	}
	return row
}

// compare requires that the tables are those of the model.
func (r *replay) compare() {
	r.seen = r.read()
	var want strings.Builder
	fmt.Fprintf(&want, "assert(ready == %s && parked == %s && (gone & %s) == %[3]s && lease[0].is + lease[1].is + lease[2].is == %d)",
		set(r.seen.ready), set(r.seen.parked), set(r.seen.dead), len(r.seen.leases))
	for token, rows := range r.seen.leases {
		fmt.Fprintf(&want, "; assert((lease[name[%d]].content & ~lease[name[%[1]d]].done) == %[2]s)", r.lease[token], set(rows))
	}
	fmt.Fprintf(&want, "; assert(followed == %s)", set(r.seen.follow))
	if len(slices.Compact(slices.Clone(r.seen.follow))) < len(r.seen.follow) {
		r.t.Errorf("follow-up tasks of changes %v: one came twice", r.seen.follow)
	}
	if text := want.String(); len(r.steps) > 0 && r.steps[len(r.steps)-1] != text {
		r.steps = append(r.steps, text)
	}
}

// step adds a step of the model, which must be possible.
func (r *replay) step(what, guard, effect string) {
	r.steps = append(r.steps, r.stepText(what, guard, effect))
}

func (*replay) stepText(what, guard, effect string) string {
	return fmt.Sprintf("printf(\"%s\\n\");\n\td_step { (%s) -> %s; tidy() }", what, guard, effect)
}

// set is a set of Promela.
func set(members []int) string {
	n := 0
	for _, m := range members {
		n |= 1 << m
	}
	return fmt.Sprint(n)
}

// check has SPIN run the model along the steps.
func (r *replay) check() {
	model, err := filepath.Abs("../model/queue.pml")
	if err != nil {
		r.t.Fatal(err)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "#define REPLAY\n#define SET int\n#define ROWS %d\n#define PRODUCERS 2\n#define WORKERS 2\n#define LEASES 3\n#define MAX %d\n", replayChanges+1, replayAttempts)
	fmt.Fprintf(&text, "#define KEYED %s\n#define MORTAL %s\n#define DELAYED %s\n#define FOLLOWED %s\n", set(r.keyed), set(r.mortal), set(r.delayed), set(r.followed))
	fmt.Fprintf(&text, "#include \"%s\"\nbyte name[%d];\nactive proctype Replay() {\n", model, len(r.lease)+1)
	for _, s := range r.steps {
		if s != "" {
			text.WriteString("\t" + s + ";\n")
		}
	}
	text.WriteString("\tprintf(\"accepted\\n\")\n}\n")
	file := filepath.Join(r.t.TempDir(), "replay.pml")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
	cmd := osexec.CommandContext(r.t.Context(), "spin", "-T", file)
	cmd.Dir = filepath.Dir(file)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\naccepted\n") {
		r.t.Errorf("the model does not accept the last of these steps, or the tables after it: %v\n%s", err, out)
	}
	r.t.Logf("%d steps", strings.Count(text.String(), "printf"))
}
