//go:build unix

package endtoend_test

import (
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// TestAStoppedTransactionHoldsUpNobody stops a worker for good in the middle of a transaction, like a machine
// that is gone without a word: the worker's locks stay. Other workers go on meanwhile. The locked task is
// done when the server has given the connection up.
func TestAStoppedTransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *duel){
		"while it claims": func(t *testing.T, d *duel) {
			t.Helper()
			d.mysqlToFirst.Delay(stopDelay)
			must(t, d.site.SetContact(t.Context(), follower, followed, site.Grant{}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDuel(t)
			stopped := d.stopInTransaction(t, begin)
			eventually(t, "its lease, if it has one, has run out", func() bool { return !d.isLeased(t) })
			must(t, d.second.thaw())
			d.checkOthers(t)
			d.checkEnd(t)
			most := max(duelIdle, duelLease) + queue.DefaultSweep + slack
			if took := d.since(t, stopped, "finished"); took > most {
				t.Errorf("the task was done %v after its worker stopped, want at most %v", took, most)
			}
			d.second.finish(t)
		})
	}
}

// stopDelay is that of each piece of data between the first worker and MySQL. It leaves the
// time to stop the worker.
const stopDelay = 200 * time.Millisecond

// stopInTransaction stops the first worker in a transaction that has locked the only task, and returns the
// time of the stop in unix milliseconds. On a slow machine the transaction may be over by then: the worker
// finishes the task, and begin makes a new task.
func (d *duel) stopInTransaction(t *testing.T, begin func(*testing.T, *duel)) (stopped int) {
	t.Helper()
	for range 10 {
		begin(t, d)
		eventually(t, "the first worker has locked its task, or done it", func() bool { return d.isLocked(t) || d.count(t).Open() == 0 })
		must(t, d.first.freeze())
		stopped = d.now(t)
		// Its commit ends the lock. A claim could lock the tasks that are inserted later.
		eventually(t, "what the first worker said has arrived", func() bool {
			return time.Duration(d.now(t)-stopped)*time.Millisecond > 4*stopDelay
		})
		if d.isLocked(t) {
			return stopped
		}
		t.Log("the first worker was stopped too late")
		d.mysqlToFirst.Delay(0)
		must(t, d.first.thaw())
		d.awaitIdle(t)
		d.exec(t, "DELETE FROM task_events")
	}
	t.Fatal("the first worker was stopped too late each time")
	return 0
}

// isLocked reports whether a transaction has locked the only task.
func (d *duel) isLocked(t *testing.T) bool {
	t.Helper()
	return d.ledger.number(t, "SELECT COUNT(*) FROM tasks")-d.ledger.number(t, "SELECT COUNT(*) FROM (SELECT * FROM tasks FOR UPDATE SKIP LOCKED) free") == 1
}

func (d *duel) isLeased(t *testing.T) bool {
	t.Helper()
	return d.ledger.number(t, "SELECT COUNT(*) FROM tasks WHERE state = 'running' AND run_at > "+clock) > 0
}

// checkOthers: tasks that wait, that become due, and that another worker left
// behind are done as ever, while the first worker's task is locked.
func (d *duel) checkOthers(t *testing.T) {
	t.Helper()
	const other, insert = member.ID(7), "INSERT INTO tasks (queue, type, subject, state, run_at, lease) VALUES ('refill', 'refill', 7, "
	for what, statement := range map[string]string{
		"waits":         insert + "'waiting', 0, '')",
		"becomes due":   insert + "'scheduled', 1, '')",
		"was left over": insert + "'running', " + clock + ", 'nobody')",
	} {
		d.exec(t, statement)
		eventually(t, "a task is done that "+what, func() bool {
			list, err := d.queue.List(t.Context(), queue.Filter{Key: uint64(other)}, 1)
			must(t, err)
			return len(list) == 0
		})
	}
	if !d.isLocked(t) {
		t.Error("the others were done when the task was not locked any more")
	}
}
