package queue_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// The tests of this file play the ways to an error that SPIN finds in variants of
// model/queue.pml, which they are named after.

// V_DELETE_RANGE, V_NO_LOOK_AT_FRONT: 2 commits after a claim has read 1 and 3.
func TestATaskThatCommitsLateIsNotPassedOver(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	first := enqueue(t, q, tasks.NewUpload(1))[0]
	late := begin(t, db)
	second, err := q.EnqueueTx(t.Context(), late, tasks.NewUpload(2))
	if err != nil {
		t.Fatal(err)
	}
	third := enqueue(t, q, tasks.NewUpload(3))[0]
	claimed := claim(t, q, 3)
	if len(claimed) != 2 || claimed[0].ID != first || claimed[1].ID != third {
		t.Fatalf("claimed %v, want tasks %d and %d", claimed, first, third)
	}
	if err := late.Commit(); err != nil {
		t.Fatal(err)
	}
	if again := claim(t, q, 3); len(again) != 1 || again[0].ID != second[0] {
		t.Errorf("claimed %v, want task %d", again, second[0])
	}
	counts(t, q, queuetest.Counts{Running: 3})
}

// V_KEY_KEPT, V_KEY_BACK: a change after the start has a task of its own, and the first one comes
// back beside it.
func TestAChangeAfterTheStartIsNotAbsorbed(t *testing.T) {
	t.Parallel()
	_, q := openDB(t)
	first := enqueue(t, q, tasks.NewUpload(1))[0]
	claimed := claim(t, q, 1)
	second := enqueue(t, q, tasks.NewUpload(1))[0]
	if first == second {
		t.Error("the task that runs absorbed a change")
	}
	finish(t, q, queue.Later(0, queue.ErrLeaseLost), claimed...)
	var ids []uint64
	for _, task := range claim(t, q, 2) {
		ids = append(ids, task.ID)
	}
	if !slices.Equal(ids, []uint64{first, second}) {
		t.Errorf("claimed %v, want %d and %d", ids, first, second)
	}
}

// V_FINISH_WITHOUT_LEASE, V_FINISH_WITHOUT_DONE, V_SWEEP_WITHOUT_LOCK: one of two tasks is finished, twice; the
// lease ends; its owner goes on.
func TestAFinishAfterTheLeaseIsWithoutEffect(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2))
	claimed := claimFor(t, q, queue.DefaultQueue, 2, time.Minute)
	finish(t, q, nil, claimed[0])
	if lost := tryFinish(t, q, nil, claimed[0]); lost != 1 {
		t.Errorf("the second finish of a task: %d lost", lost)
	}
	exec(t, db, "UPDATE task_leases SET ends_at = 1")
	if _, err := q.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts(t, q, queuetest.Counts{Waiting: 1})
	again := claim(t, q, 2)
	if len(again) != 1 || again[0].ID != claimed[1].ID {
		t.Fatalf("claimed %v, want task %d", again, claimed[1].ID)
	}
	if lost := tryFinish(t, q, nil, claimed...); lost != 2 {
		t.Errorf("%d lost, want 2: another has the lease", lost)
	}
	counts(t, q, queuetest.Counts{Running: 1})
	finish(t, q, nil, again...)
	counts(t, q, queuetest.Counts{})
}

// V_NO_ABSORB_LOCK: a task does not start while a transaction that it absorbed is open.
func TestATaskWaitsForTheChangeThatItAbsorbed(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	first := enqueue(t, q, tasks.NewUpload(1))[0]
	open := begin(t, db)
	absorbed, err := q.EnqueueTx(t.Context(), open, tasks.NewUpload(1))
	if err != nil || absorbed[0] != first {
		t.Fatalf("task %v, %v, want that of %d", absorbed, err, first)
	}
	if early := claim(t, q, 1); len(early) != 0 {
		t.Errorf("claimed %v before the change committed", early)
	}
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	if late := claim(t, q, 1); len(late) != 1 || late[0].ID != first {
		t.Errorf("claimed %v, want task %d", late, first)
	}
}

// V_ABSORB_WITHOUT_LEASE: a task whose lease was lost absorbs nothing.
func TestATaskWithoutItsLeaseAbsorbsNothing(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, tasks.NewUpload(1))
	lost := claim(t, q, 1)
	exec(t, db, "UPDATE task_leases SET ends_at = 1")
	if _, err := q.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	finish(t, q, nil, claim(t, q, 1)...)
	enqueue(t, q, tasks.NewUpload(1))
	if n, err := q.Absorb(t.Context(), lost); n != 0 || err != nil {
		t.Errorf("absorbed %d, %v", n, err)
	}
	counts(t, q, queuetest.Counts{Waiting: 1})
}

// V_ABSORB_STILL_EXPIRES: a task that absorbed one that must not expire loses its lease, and does not
// expire.
func TestATaskThatAbsorbedLivesOn(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	mortal := tasks.NewUpload(1)
	mortal.Life = time.Hour
	first := enqueue(t, q, mortal)[0]
	held := claim(t, q, 1)
	enqueue(t, q, tasks.NewUpload(1))
	if n, err := q.Absorb(t.Context(), held); n != 1 || err != nil {
		t.Fatalf("absorbed %d, %v", n, err)
	}
	exec(t, db, "UPDATE task_leases SET ends_at = 1")
	if _, err := q.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	exec(t, db, "UPDATE tasks SET expires_at = 1 WHERE expires_at IS NOT NULL")
	if again := claim(t, q, 1); len(again) != 1 || again[0].ID != first {
		t.Errorf("claimed %v, want task %d", again, first)
	}
}

// V_UNPARK_KEEPS_KEY: between an enqueuing's looks and its INSERT another task gets the key and is parked, so
// that both have it, in two tables. Both are done.
func TestAKeyInBothTablesHoldsUpNoTask(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	behind := gated(db)
	t.Cleanup(func() { _ = behind.Close() })
	g := &gate{arrived: make(chan string), pass: make(chan verdict)}
	ctx := context.WithValue(t.Context(), gateKey{}, g)
	enqueued := make(chan error, 1)
	go func() {
		_, err := queue.NewQueue(behind, queue.Options{Kinds: tasks.Kinds()}).Enqueue(ctx, []queue.New{tasks.NewUpload(1)})
		enqueued <- err
		g.arrived <- ""
	}()
	at := <-g.arrived
	for ; !strings.HasPrefix(at, "INSERT INTO tasks"); at = <-g.arrived {
		g.pass <- goOn
	}
	later := tasks.NewUpload(1)
	later.Delay = time.Hour
	enqueue(t, q, later)
	if early := claim(t, q, 1); len(early) != 0 {
		t.Fatalf("claimed %v", early)
	}
	for ; at != ""; at = <-g.arrived {
		g.pass <- goOn
	}
	if err := <-enqueued; err != nil {
		t.Fatal(err)
	}
	counts(t, q, queuetest.Counts{Waiting: 1, Scheduled: 1})
	exec(t, db, "UPDATE parked_tasks SET due_at = 1")
	if swept, err := q.Sweep(t.Context()); swept.Due != 1 || err != nil {
		t.Errorf("swept %+v, %v", swept, err)
	}
	if list := claim(t, q, 3); len(list) != 2 {
		t.Errorf("claimed %v, want both", list)
	}
}
