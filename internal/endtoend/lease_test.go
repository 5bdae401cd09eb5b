//go:build unix

package endtoend_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// duel is a pair of workers: the first loses a task to the second. A proxy can hold the second up in the middle of its
// work, and the first in the middle of a transaction.
type duel struct {
	*ground
	ledger        ledger
	first, second *program
	toSecond      *servertest.Proxy // Redis, as the second sees it
	mysqlToFirst  *servertest.Proxy
}

const (
	duelLease = time.Second
	follower  = member.ID(1)
	followed  = member.ID(2)
)

// newDuel starts both workers and holds the second up before its first task. The server gives up a connection of the
// first that is idle for so long.
func newDuel(t *testing.T, idle time.Duration) *duel {
	t.Helper()
	g := newGround(t, 10)
	must(t, g.site.LoadMembers(t.Context(), []site.Member{{ID: follower, Username: "follower"}, {ID: followed, Username: "followed"}}))
	must(t, g.site.LoadPhotos(t.Context(), []site.Photo{{Owner: followed, Visibility: "public", DateUpload: start}}))
	cfg, err := mysql.ParseDSN(g.dsn)
	must(t, err)
	cfg.Params = map[string]string{"wait_timeout": fmt.Sprint(idle.Seconds())}
	d := &duel{
		ground: g, ledger: ledger{g},
		toSecond: servertest.NewProxy(t, g.redis.Addr()), mysqlToFirst: servertest.NewProxy(t, cfg.Addr),
	}
	d.ledger.open(t)
	worker := func(name, dsn, redisURL string) *program {
		return serving(t, name, dsn, redisURL, "--role=workers", fmt.Sprint("--task-lease=", duelLease), "--poll=50ms").mustStart(t)
	}
	d.first = worker("first", d.mysqlToFirst.MySQLDSN(cfg.FormatDSN()), d.redis.URL())
	d.second = worker("second", d.dsn, d.toSecond.RedisURL())
	must(t, d.second.freeze())
	return d
}

// stopAtWork gives the first worker a task, and stops it in the middle, at a read that waits for a lock.
func (d *duel) stopAtWork(t *testing.T) {
	t.Helper()
	conn, err := d.db.Conn(t.Context())
	must(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), "LOCK TABLES users WRITE, photos WRITE")
	must(t, err)
	must(t, d.site.SetContact(t.Context(), follower, followed, site.Grant{}))
	eventually(t, "the first worker reads what it needs for the task", func() bool {
		return d.number(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock%'") > 0 && d.isHolder(t, d.first)
	})
	must(t, d.first.freeze())
	if !d.isHolder(t, d.first) {
		t.Fatal("the first worker has put the task off")
	}
	_, err = conn.ExecContext(t.Context(), "UNLOCK TABLES")
	must(t, err)
}

func (d *duel) isHolder(t *testing.T, p *program) bool {
	t.Helper()
	running, err := d.queue.List(t.Context(), queue.Filter{States: []queue.State{queue.Running}}, 10)
	must(t, err)
	return len(running) == 1 && strings.HasPrefix(running[0].LeaseOwner, ownerOf(p))
}

// ownerOf returns the prefix of an owner: the number of the process.
func ownerOf(p *program) string { return fmt.Sprint(p.latest().Group, "@") }

// did counts the events of a worker and the only task.
func (d *duel) did(t *testing.T, p *program, event string) int {
	t.Helper()
	return d.number(t, "SELECT COUNT(*) FROM task_events WHERE type = 'add_contact' AND event = ? AND owner LIKE ?", event, ownerOf(p)+"%")
}

// checkEnd: the task was finished once, by the second worker, and is right.
func (d *duel) checkEnd(t *testing.T) {
	t.Helper()
	d.awaitIdle(t)
	d.ledger.check(t)
	if d.did(t, d.second, "finished") != 1 {
		t.Error("the task was not finished by the second worker")
	}
	if set := d.sets(t)[follower.String()]; len(set) != 1 || set[0].Member != followed.String() || set[0].Score != start {
		t.Errorf("the set is %v", set)
	}
	d.second.finish(t)
}

// TestALateWriteOfAPausedProcessIsRefused stops a process with SIGSTOP in the middle of a task, past the
// lease, and continues it with SIGCONT when another process has the task. The first process's late write has
// no effect, and the process says so.
func TestALateWriteOfAPausedProcessIsRefused(t *testing.T) {
	t.Parallel()
	d := newDuel(t, 10*time.Second)
	d.stopAtWork(t)
	// The delay makes the second worker hold the task for some round trips, and still when the first worker
	// writes. A probe of Redis must be over in 2 s.
	d.toSecond.Delay(400 * time.Millisecond)
	must(t, d.second.thaw())
	eventually(t, "the second worker has, or had, the task", func() bool { return d.did(t, d.second, "running") > 0 })
	must(t, d.first.thaw())
	// An extension or a finish is refused, whichever comes first.
	eventually(t, "the first worker notices that its lease is lost", func() bool {
		return d.first.sum(t, "lease lost; its tasks are cancelled")+d.first.sum(t, lostLeases) > 0
	})
	if d.isHolder(t, d.first) {
		t.Error("the first worker has the task")
	}
	must(t, d.first.freeze()) // the first worker must not do the task after all
	d.toSecond.Delay(0)
	d.toSecond.Cut() // what is delayed is lost, and the client asks again
	d.checkEnd(t)
	must(t, d.first.thaw())
	d.first.finish(t)
}

// TestAStoppedTransactionHoldsUpNobody stops a worker for good in the middle of a claim, like a machine that is
// gone without a word: the worker's locks stay. Another worker goes on meanwhile. It does the locked task when
// the connection has ended. TestAnAbandonedTransactionEnds shows that the server ends it.
func TestAStoppedTransactionHoldsUpNobody(t *testing.T) {
	t.Parallel()
	const other = member.ID(7)
	d := newDuel(t, time.Hour)
	d.stopInTransaction(t)
	must(t, d.second.thaw())
	d.exec(t, "INSERT INTO tasks (queue, type, subject) VALUES ('refill', 'refill', ?)", other)
	d.exec(t, "INSERT INTO tasks (queue, type, subject, state, run_at, lease) VALUES ('refill', 'refill', ?, 'running', "+clock+", 'nobody')", other)
	eventually(t, "a task that waits is done, and a task that was left behind", func() bool {
		return d.number(t, "SELECT COUNT(*) FROM tasks WHERE subject = ?", other) == 0
	})
	if !d.isLocked(t) {
		t.Error("the others were done when the task was not locked any more")
	}
	must(t, d.first.kill())
	d.mysqlToFirst.Cut() // the server rolls back, as it does after the idle time
	d.checkEnd(t)
}

// stopInTransaction stops the first worker in a transaction that has locked the only task. On a slow machine
// the transaction may be over by then: the worker finishes the task, and gets a new task.
func (d *duel) stopInTransaction(t *testing.T) {
	t.Helper()
	const delay = 200 * time.Millisecond // of each piece of data, which leaves the time to stop the worker
	for range 10 {
		d.mysqlToFirst.Delay(delay)
		must(t, d.site.SetContact(t.Context(), follower, followed, site.Grant{}))
		eventually(t, "the first worker has locked its task, or done it", func() bool { return d.isLocked(t) || d.count(t).Open() == 0 })
		must(t, d.first.freeze())
		d.mysqlToFirst.Delay(time.Hour) // what is not under way yet never arrives
		stopped := time.Now()
		// Its commit ends the lock. A claim could lock the tasks that are inserted later.
		eventually(t, "the first worker's last words have arrived", func() bool { return time.Since(stopped) > 4*delay })
		if d.isLocked(t) {
			return
		}
		t.Log("the first worker was stopped too late")
		d.mysqlToFirst.Delay(0)
		d.mysqlToFirst.Cut()
		must(t, d.first.thaw())
		d.awaitIdle(t)
		d.exec(t, "DELETE FROM task_events")
	}
	t.Fatal("the first worker was stopped too late each time")
}

// isLocked reports whether a transaction has locked the only task.
func (d *duel) isLocked(t *testing.T) bool {
	t.Helper()
	return d.number(t, "SELECT COUNT(*) FROM tasks")-d.number(t, "SELECT COUNT(*) FROM (SELECT * FROM tasks FOR UPDATE SKIP LOCKED) free") == 1
}
