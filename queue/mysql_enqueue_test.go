package queue_test

import (
	"database/sql"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// While a batch waits for a key, producers insert a further key of it and tasks of their own. On MariaDB, an
// INSERT ... ON DUPLICATE KEY UPDATE of many rows then goes on from ids that are taken by now.
func TestABatchThatWaitsForAKeyLosesNoTask(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	first := begin(t, db)
	if _, err := q.EnqueueTx(t.Context(), first, tasks.NewRefill(1)); err != nil {
		t.Fatal(err)
	}
	batch := []queue.New{tasks.NewRefill(1), tasks.NewRefill(2), tasks.NewRefill(3), tasks.NewRefill(4)}
	var ids []uint64
	enqueued := make(chan error, 1)
	go func() {
		var err error
		ids, err = q.Enqueue(t.Context(), batch)
		enqueued <- err
	}()
	awaitLockWait(t, db, "refill:4")
	others := []uint64{
		enqueue(t, q, tasks.NewRefill(2))[0],
		enqueue(t, q, tasks.NewUpload(1))[0],
		enqueue(t, q, tasks.NewUpload(2))[0],
	}
	if err := first.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-enqueued; err != nil {
		t.Fatal(err)
	}
	if ids[1] != others[0] || slices.Contains(others, ids[2]) || slices.Contains(others, ids[3]) || ids[2] == ids[3] {
		t.Errorf("ids %v beside %v", ids, others)
	}
	counts(t, q, queuetest.Counts{Waiting: 6})
}

// awaitLockWait waits until a statement with the given text waits for a lock.
// InnoDB shows the same picture again to whoever asks sooner than after 0.1 s.
func awaitLockWait(t *testing.T, db *sql.DB, text string) {
	t.Helper()
	tick := time.NewTicker(150 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
		var n int
		err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'"+
			" AND INSTR(trx_query, ?) > 0", text).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
	t.Fatalf("no statement with %q waited for a lock within 20 s", text)
}

// An INSERT of the site waits for no claim and no enqueuing, and loses no deadlock to them.
func TestEnqueuingAndClaimingLeaveTheSitesInsertsAlone(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	var working, inserting sync.WaitGroup
	var stop atomic.Bool
	for range 4 {
		working.Go(func() {
			for range 80 {
				enqueueAndClaim(t, q)
			}
		})
	}
	for range 3 {
		inserting.Go(func() {
			for n := 0; !stop.Load(); n++ {
				if _, err := db.ExecContext(t.Context(), "INSERT INTO tasks (type, subject) VALUES ('upload', 1)"); err != nil {
					t.Errorf("insert %d: %v", n, err)
				}
			}
		})
	}
	working.Wait()
	stop.Store(true)
	inserting.Wait()
}

// enqueueAndClaim enqueues tasks of few keys, so that many are absorbed, and
// claims some, so that not all are.
func enqueueAndClaim(t *testing.T, q queuetest.Queue) {
	var batch []queue.New
	for range 1 + rand.N(20) {
		batch = append(batch, tasks.NewRefill(member.ID(1+rand.N(60))))
	}
	if _, err := q.Enqueue(t.Context(), batch); err != nil {
		t.Error(err)
	}
	if _, err := q.Claim(t.Context(), tasks.QueueRefill, 4, time.Minute); err != nil {
		t.Error(err)
	}
}

// While a backup holds a snapshot, InnoDB purges nothing, and claims begin at a front. A task that another process releases before the
// front, or makes more urgent, is found nevertheless.
func TestATaskThatComesBackElsewhereIsFound(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	other := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "other"})
	snapshot, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = snapshot.Rollback() }()
	var n int
	if err := snapshot.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM tasks").Scan(&n); err != nil {
		t.Fatal(err)
	}
	var batch []queue.New
	for i := range member.ID(3000) {
		batch = append(batch, tasks.NewUpload(i+1))
	}
	enqueue(t, q, batch...)
	held := claim(t, other, 1)
	for range 20 {
		finish(t, q, nil, claim(t, q, 100)...)
	}
	if lost := tryFinish(t, other, queue.Later(0, errors.New("stopped")), held...); lost > 0 {
		t.Fatalf("lost %d", lost)
	}
	urgent := tasks.NewUpload(9999)
	urgent.Priority = queue.Urgent
	want := []uint64{enqueue(t, other, urgent)[0], held[0].ID}
	eventually(t, "both are claimed", func() bool {
		list := claim(t, q, 10)
		want = slices.DeleteFunc(want, func(id uint64) bool {
			return slices.ContainsFunc(list, func(task queue.Task) bool { return task.ID == id })
		})
		return len(want) == 0
	})
}

// Tasks without keys are enqueued whole or not at all, by however many statements; a single task gets its id.
func TestEnqueueWithoutKeys(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	task := queue.New{Kind: "mail", Payload: []byte(`{}`)}
	ids := enqueue(t, q, task)
	list := claim(t, q, 10)
	if len(ids) != 1 || len(list) != 1 || list[0].ID != ids[0] || list[0].Kind != "mail" {
		t.Errorf("enqueued as %v, claimed as %+v", ids, list)
	}
	if ids := enqueue(t, q, task, task); !slices.Equal(ids, []uint64{0, 0}) {
		t.Errorf("two are enqueued as %v, want ids that are not known", ids)
	}
	counts(t, q, queuetest.Counts{Waiting: 2, Running: 1})
	refused := task
	refused.Key = 1_000_000
	exec(t, db, "ALTER TABLE tasks ADD CONSTRAINT refuse CHECK (subject <> 1000000)")
	for _, n := range []int{3, 1500} {
		if ids, err := q.Enqueue(t.Context(), append(slices.Repeat([]queue.New{task}, n-1), refused)); err == nil {
			t.Errorf("%d tasks, of which the table refuses one, are enqueued as %v", n, ids)
		}
		counts(t, q, queuetest.Counts{Waiting: 2, Running: 1})
	}
}
