package main

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// operator has a queue in MariaDB, and runs commands on it.
type operator struct {
	*queue.Queue

	db  *sql.DB
	dsn string
}

func newOperator(t *testing.T) *operator {
	t.Helper()
	dsn := servertest.MySQLDSN(t)
	db, err := mysql.Open(dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return &operator{queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Owner: "test"}), db, dsn}
}

// tasks runs activityd tasks.
func (o *operator) tasks(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	return command(t, nil, append(append([]string{"tasks"}, args...), "--mysql-dsn="+o.dsn)...)
}

// succeed runs activityd tasks, which must succeed.
func (o *operator) succeed(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code, out, errs := o.tasks(t, args...)
	if code != 0 {
		t.Fatalf("tasks %v: exit code %d: %s", args, code, errs)
	}
	return out, errs
}

// want compares how many tasks there are in each state.
func (o *operator) want(t *testing.T, want queuetest.Counts) {
	t.Helper()
	got, err := queuetest.Count(t.Context(), o)
	must(t, err)
	if got != want {
		t.Errorf("tasks %+v, want %+v", got, want)
	}
}

// enqueueUploads enqueues an upload task for each of members first to last, and
// returns their ids, the lowest first.
func enqueueUploads(t *testing.T, q queuetest.Queue, first, last int) []uint64 {
	t.Helper()
	var batch []queue.New
	for i := first; i <= last; i++ {
		batch = append(batch, tasks.NewUpload(member.ID(i)))
	}
	var ids []uint64
	for part := range slices.Chunk(batch, 1000) {
		some, err := q.Enqueue(t.Context(), part)
		must(t, err)
		ids = append(ids, some...)
	}
	slices.Sort(ids)
	return ids
}

// claimAll claims the waiting tasks of the default queue, up to n. It may be
// called by any goroutine.
func claimAll(t *testing.T, q queuetest.Queue, n int) (list []queue.Task) {
	t.Helper()
	for len(list) < n {
		some, err := q.Claim(t.Context(), tasks.QueueDefault, min(500, n-len(list)), time.Hour)
		if err != nil {
			t.Errorf("claim: %v", err)
		}
		if len(some) == 0 {
			break
		}
		list = append(list, some...)
	}
	return list
}

// finishAll records the same result for all of the tasks. It may be called by any
// goroutine.
func finishAll(t *testing.T, q queuetest.Queue, result error, list ...queue.Task) {
	t.Helper()
	for part := range slices.Chunk(list, 500) {
		var results []queue.Result
		for _, task := range part {
			results = append(results, queue.Result{Task: task, Err: result})
		}
		if lost, err := q.Finish(t.Context(), results); err != nil || lost > 0 {
			t.Errorf("finish: %d lost, %v", lost, err)
		}
	}
}

var errBoom = errors.New("boom")

// makeDead makes n dead upload tasks, of members 1 to n.
func makeDead(t *testing.T, q queuetest.Queue, n int) []uint64 {
	t.Helper()
	ids := enqueueUploads(t, q, 1, n)
	finishAll(t, q, queue.Permanent(errBoom), claimAll(t, q, n)...)
	return ids
}

// everyState is a queue with a task in every state that a task can be seen in.
type everyState struct{ dead, scheduled, running, waiting uint64 }

func makeEveryState(t *testing.T, q queuetest.Queue) everyState {
	t.Helper()
	dead := makeDead(t, q, 1)[0]
	scheduled := enqueueUploads(t, q, 2, 2)[0]
	finishAll(t, q, queue.Later(time.Hour, errBoom), claimAll(t, q, 1)...)
	running := enqueueUploads(t, q, 3, 3)[0]
	claimAll(t, q, 1)
	ids, err := q.Enqueue(t.Context(), []queue.New{tasks.NewAddContact(4, 5)})
	must(t, err)
	return everyState{dead, scheduled, running, ids[0]}
}

// tapped is a queue that tells what is asked of it.
type tapped struct {
	taskAdmin

	before func(match queue.Filter, limit int) // of each change
}

func (q tapped) Retry(ctx context.Context, match queue.Filter, limit int) (int, error) {
	q.before(match, limit)
	return q.taskAdmin.Retry(ctx, match, limit)
}

func (q tapped) Discard(ctx context.Context, match queue.Filter, limit int) (int, error) {
	q.before(match, limit)
	return q.taskAdmin.Discard(ctx, match, limit)
}
