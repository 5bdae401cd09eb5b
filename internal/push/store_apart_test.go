package push_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// pageApart is a page whose task is in a database of its own, and whose receipts cannot be
// written yet, as another transaction is about to write one of them.
type pageApart struct {
	db, queueDB *sql.DB // the test's own connections
	store       *push.MySQL
	other       *sql.Tx // holds the receipt
	held        []queue.Task
	receipts    []push.Receipt
}

func newPageApart(t *testing.T) *pageApart {
	t.Helper()
	queueDSN := servertest.MySQLDSN(t)
	open := func() *sql.DB {
		db, err := mysql.Open(queueDSN)
		must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	p := &pageApart{db: openDB(t), queueDB: open(), receipts: []push.Receipt{{Event: 7, Member: 2, Device: 20, State: push.StatePending}}}
	p.store = push.NewMySQL(p.db)
	p.store.Queue = open()
	exec(t, p.queueDB, "INSERT INTO tasks (queue, type, subject) VALUES ('notify', 'notify', 1)")
	var err error
	p.held, err = queue.NewMySQLQueue(p.queueDB, queue.Options{Kinds: tasks.Kinds()}).Claim(t.Context(), push.QueueNotify, 10, time.Minute)
	must(t, err)
	p.other, err = p.db.BeginTx(t.Context(), nil)
	must(t, err)
	t.Cleanup(func() { _ = p.other.Rollback() })
	_, err = p.other.ExecContext(t.Context(), "INSERT INTO push_receipts (event_number, member_id, device_id, state, at) VALUES (7, 2, 20, 'pending', 1)")
	must(t, err)
	return p
}

// write begins to write the page, and returns when its leases are held.
func (p *pageApart) write(t *testing.T) (ended chan error) {
	t.Helper()
	ended = make(chan error, 1)
	ctx := context.WithoutCancel(t.Context())
	go func() { ended <- p.store.WritePage(ctx, p.held, p.receipts) }()
	servertest.Eventually(t, "the leases are held", func() bool { return !p.free(t) })
	return ended
}

// free reports whether another process could have the task, were its lease over.
func (p *pageApart) free(t *testing.T) bool {
	t.Helper()
	tx, err := p.queueDB.BeginTx(t.Context(), nil)
	must(t, err)
	defer func() { _ = tx.Rollback() }()
	ids, err := mysql.Select(t.Context(), tx, mysql.Column[uint64], "SELECT id FROM tasks FORCE INDEX (PRIMARY) WHERE id > 0 FOR UPDATE SKIP LOCKED")
	must(t, err)
	return len(ids) > 0
}

func (p *pageApart) written(t *testing.T) (n int) {
	t.Helper()
	must(t, p.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM push_receipts").Scan(&n))
	return n
}

// TestAPageApartHoldsItsLeases until its receipts are committed, and not longer.
func TestAPageApartHoldsItsLeases(t *testing.T) {
	t.Parallel()
	p := newPageApart(t)
	ended := p.write(t)
	must(t, p.other.Rollback())
	must(t, <-ended)
	if n := p.written(t); n != 1 || !p.free(t) {
		t.Errorf("%d receipts, free %t", n, p.free(t))
	}
}

// TestAPageApartWithoutItsLeases: the connection that held them is gone when the receipts are
// written, and another process may have the task.
func TestAPageApartWithoutItsLeases(t *testing.T) {
	t.Parallel()
	p := newPageApart(t)
	ended := p.write(t)
	processes, err := servertest.Processes(t.Context(), p.queueDB)
	must(t, err)
	for _, process := range processes {
		if _, err := p.queueDB.ExecContext(t.Context(), "KILL ?", process.ID); err != nil {
			t.Logf("%+v: %v", process, err) // one of the test's own, that has ended
		}
	}
	servertest.Eventually(t, "the task is free", func() bool { return p.free(t) })
	must(t, p.other.Rollback())
	if err := <-ended; !errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("error %v, want that the queue's database went away", err)
	}
	if n := p.written(t); n != 0 {
		t.Errorf("%d receipts were written without the leases", n)
	}
	must(t, p.store.WritePage(t.Context(), p.held, p.receipts))
	if n := p.written(t); n != 1 {
		t.Errorf("%d receipts", n)
	}
}

// TestAPageApartWhoseCommitIsLate: it takes effect when another process has the page, which waits
// for it and finds the receipts. So may a commit whose answer was cut short, as it waited for
// a replica.
func TestAPageApartWhoseCommitIsLate(t *testing.T) {
	t.Parallel()
	p := newPageApart(t)
	found := make(chan []push.Receipt, 1)
	go func() {
		list, err := p.store.PendingWithin(t.Context(), []push.MemberRange{{Event: 7, After: 1, Last: 3}})
		if err != nil {
			t.Errorf("what is pending: %v", err)
		}
		found <- list
	}()
	servertest.Eventually(t, "the other process waits, or is through", func() bool {
		processes, err := servertest.Processes(t.Context(), p.db)
		must(t, err)
		return len(found) > 0 || slices.ContainsFunc(processes, func(process servertest.Process) bool {
			return strings.Contains(process.Info, "push_receipts") && strings.HasSuffix(process.Info, "LOCK IN SHARE MODE")
		})
	})
	must(t, p.other.Commit())
	if list := <-found; len(list) != 1 || list[0].Device != 20 {
		t.Errorf("found %+v, want the receipt that was committed", list)
	}
}
