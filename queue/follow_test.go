package queue_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// followed finishes a task with a follow-up and returns how many leases were lost.
func followed(t *testing.T, q queuetest.Queue, task queue.Task, err error, next ...queue.New) (lost int) {
	t.Helper()
	lost, finishErr := q.Finish(t.Context(), []queue.Result{{Task: task, Err: err, Next: next}})
	if finishErr != nil {
		t.Fatal(finishErr)
	}
	return lost
}

// The follow-ups of a task that is done or dead commit with its end. A task that runs again has none, and returns its own then.
func TestFollowUpsAreEnqueuedWithTheOutcome(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		for i, test := range []struct {
			err  error
			next int
		}{
			{nil, 1},
			{queue.Permanent(errors.New("broken")), 1},
			{errors.New("failed"), 0},
			{queue.Later(time.Hour, errors.New("away")), 0},
		} {
			enqueue(t, q, tasks.NewUpload(1))
			if lost := followed(t, q, claim(t, q, 1)[0], test.err, tasks.NewFanOut(id(i+1), 1)); lost != 0 {
				t.Errorf("%v: lost %d", test.err, lost)
			}
			if list := claimFor(t, q, tasks.QueueFanOut, 10, time.Minute); len(list) != test.next || test.next > 0 && list[0].Key != uint64(i+1) {
				t.Errorf("%v: followed by %+v, want %d", test.err, list, test.next)
			}
		}
		counts(t, q, queuetest.Counts{Running: 2, Scheduled: 2, Dead: 1})
	})
}

// A worker that was paused past its lease enqueues nothing; the rest of its batch does.
func TestALostLeaseIsFollowedByNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2))
		list := claim(t, q, 2)
		stale := list[0]
		finish(t, q, queue.Later(0, errors.New("back")), stale)
		if again := claim(t, q, 1); len(again) != 1 {
			t.Fatalf("claimed %+v", again)
		}
		lost, err := q.Finish(t.Context(), []queue.Result{
			{Task: stale, Next: []queue.New{tasks.NewFanOut(1, 1)}},
			{Task: list[1], Next: []queue.New{tasks.NewFanOut(2, 1)}},
		})
		if err != nil || lost != 1 {
			t.Errorf("lost %d, %v, want 1", lost, err)
		}
		if next := claimFor(t, q, tasks.QueueFanOut, 10, time.Minute); len(next) != 1 || next[0].Key != 2 {
			t.Errorf("followed by %+v, want only that of the lease that holds", next)
		}
	})
}

// An invalid follow-up leaves its task as it was.
func TestAnInvalidFollowUpRecordsNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, q queuetest.Queue) {
		enqueue(t, q, tasks.NewUpload(1))
		_, err := q.Finish(t.Context(), []queue.Result{{Task: claim(t, q, 1)[0], Next: []queue.New{{Kind: tasks.Upload, Key: 1, DedupeKey: strings.Repeat("k", 129)}}}})
		if !errors.Is(err, queue.ErrInvalid) {
			t.Errorf("error %v, want ErrInvalid", err)
		}
		counts(t, q, queuetest.Counts{Running: 1})
	})
}

// A task is not finished when its follow-up is refused. A task whose row is refused is followed all the same: its work is done.
func TestOutcomeAndFollowUpsAreOneTransaction(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, `CREATE TRIGGER refuse_insert BEFORE INSERT ON tasks FOR EACH ROW
		BEGIN IF NEW.type = 'fan_out' AND NEW.subject = 13 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF; END`)
	enqueue(t, q, tasks.NewUpload(1), tasks.NewUpload(2))
	list := claim(t, q, 2)
	if _, err := q.Finish(t.Context(), []queue.Result{{Task: list[0], Next: []queue.New{tasks.NewFanOut(13, 1)}}}); !mysql.IsRowRefused(err) {
		t.Fatalf("error %v, want that of the trigger", err)
	}
	counts(t, q, queuetest.Counts{Running: 2})
	if lost := followed(t, q, list[0], nil, tasks.NewFanOut(1, 1)); lost != 0 {
		t.Errorf("lost %d", lost)
	}
	counts(t, q, queuetest.Counts{Waiting: 1, Running: 1})
}

// A finish that lost a deadlock is repeated as a whole: its follow-ups are there once.
func TestADeadlockRepeatsOutcomeAndFollowUps(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	refills := enqueue(t, q, tasks.NewRefill(7))
	enqueue(t, q, tasks.NewUpload(1))
	task := claim(t, q, 1)[0]
	tx := begin(t, db)
	if _, err := tx.ExecContext(t.Context(), "UPDATE tasks SET priority = 1 WHERE id = ?", refills[0]); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { // has the row of the upload, and waits for that of the refill
		lost, err := q.Finish(t.Context(), []queue.Result{{Task: task, Next: []queue.New{tasks.NewRefill(7), tasks.NewFanOut(1, 1)}}})
		if err == nil && lost > 0 {
			err = errors.New("the lease was lost")
		}
		ended <- err
	}()
	awaitLockWait(t, db, "FROM tasks FORCE INDEX (dedupe)")
	// The heavier transaction wins: it is tx, by rows changed.
	for i := range 50 {
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO tasks (type, subject) VALUES ('upload', ?)", 100+i); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := tx.ExecContext(t.Context(), "UPDATE tasks SET lost = 1 WHERE id = ?", task.ID); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if next := claimFor(t, q, tasks.QueueFanOut, 10, time.Minute); len(next) != 1 {
		t.Errorf("followed by %+v", next)
	}
	if next := claimFor(t, q, tasks.QueueRefill, 10, time.Minute); len(next) != 1 || next[0].ID != refills[0] {
		t.Errorf("followed by %+v", next)
	}
}
