//go:build unix

package endtoend_test

import (
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/site"
)

// TestAStoppedTransactionHoldsUpNobody: a worker stops for good in the middle of
// a transaction, as one does whose machine is gone without a word: its locks stay.
// What others have to do goes on meanwhile, and the task that is locked is done
// when the server has given the connection up.
func TestAStoppedTransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, begin := range map[string]func(*testing.T, *duel){
		"while it claims": func(t *testing.T, d *duel) {
			t.Helper()
			must(t, d.site.SetContact(t.Context(), follower, followed, site.Grant{}))
		},
		"while it holds a lease": func(t *testing.T, d *duel) {
			t.Helper()
			d.begin(t)
			letGo(d.toFirst)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDuel(t)
			const delay = 200 * time.Millisecond // leaves the time to stop it
			d.mysqlToFirst.Delay(delay)
			begin(t, d)
			eventually(t, "the first worker has locked its task", func() bool { return d.isLocked(t) })
			must(t, d.first.freeze())
			stopped := d.now(t)
			// A claim that was on its way could lock the tasks that are inserted below.
			eventually(t, "what the first worker said has arrived", func() bool {
				return time.Duration(d.now(t)-stopped)*time.Millisecond > 2*delay
			})
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

// isLocked reports whether a transaction has locked the only task.
func (d *duel) isLocked(t *testing.T) bool {
	t.Helper()
	return d.ledger.number(t, "SELECT COUNT(*) FROM tasks") == 1 &&
		d.ledger.number(t, "SELECT COUNT(*) FROM (SELECT id FROM tasks FOR UPDATE SKIP LOCKED) free") == 0
}

func (d *duel) isLeased(t *testing.T) bool {
	t.Helper()
	return d.ledger.number(t, "SELECT COUNT(*) FROM tasks WHERE state = 'running' AND due_at > "+clock) > 0
}

// checkOthers: tasks that wait, that become due, and that another worker left
// behind are done as ever.
func (d *duel) checkOthers(t *testing.T) {
	t.Helper()
	const other = member.ID(7)
	for _, set := range []string{
		"state = 'waiting'",
		"state = 'scheduled', due_at = 1",
		"state = 'running', due_at = 1, attempts = 1, lease_owner = 'nobody'",
	} {
		began := time.Now()
		d.exec(t, "INSERT INTO tasks SET type = 'refill', queue = 'refill', subject = ?, "+set, uint64(other))
		eventually(t, "a task is done with "+set, func() bool {
			return d.ledger.number(t, "SELECT COUNT(*) FROM tasks WHERE subject = ?", uint64(other)) == 0
		})
		if took := time.Since(began); took > queue.DefaultSweep+slack {
			t.Errorf("a task with %s was done after %v, want at most %v", set, took, queue.DefaultSweep+slack)
		}
	}
}
