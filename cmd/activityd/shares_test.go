package main

import (
	"context"
	"net/http"
	"sync"
	"testing"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// The parts of the connections are never more than there are, and none is nothing.
func TestShares(t *testing.T) {
	t.Parallel()
	for connections, want := range map[int][2]int{4: {2, 1}, 8: {6, 1}, 15: {13, 1}, 16: {12, 2}, 32: {24, 4}, 100_000: {75_000, 12_500}} {
		reads, requests := (&serversConfig{mysqlConnections: connections}).shares()
		if got := [2]int{reads, requests}; got != want {
			t.Errorf("of %d connections: %v, want %v", connections, got, want)
		}
	}
}

// blocked counts the statements that wait for a table to be unlocked.
func (r *running) blocked(t *testing.T, table string) (n int) {
	t.Helper()
	must(t, r.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM information_schema.processlist"+
		" WHERE state = 'Waiting for table metadata lock' AND info LIKE CONCAT('%', ?, '%')", table).Scan(&n))
	return n
}

// startHanging starts a server whose statements wait for a locked table for 3 s: not for longer than
// the requests that are waiting for them, so that none is left over.
func startHanging(t *testing.T, flags ...string) *running {
	t.Helper()
	r := startAllWith(t, func(c *config) {
		c.mysqlDSN += "&lock_wait_timeout=3"
		c.auditSweepRate = 0
	}, flags...)
	r.makeSite(t, 3)
	must(t, r.site.SetContact(t.Context(), 1, 101, site.Grant{}))
	r.awaitTasks(t)
	return r
}

// lock locks tables until the function that it returns is called.
func (r *running) lock(t *testing.T, tables string) (unlock func()) {
	t.Helper()
	conn, err := r.db.Conn(t.Context())
	must(t, err)
	_, err = conn.ExecContext(t.Context(), "LOCK TABLES "+tables)
	must(t, err)
	unlock = sync.OnceFunc(func() {
		_, err := conn.ExecContext(context.WithoutCancel(t.Context()), "UNLOCK TABLES")
		must(t, err)
		must(t, conn.Close())
	})
	t.Cleanup(unlock)
	return unlock
}

// many does something at the same time, more often than there are connections, until it is stopped.
func many(t *testing.T, do func()) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			for ctx.Err() == nil {
				do()
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// Reads that hang take no more than their part of the connections: tasks are enqueued and done, and
// /readyz is answered.
func TestReadsThatHangLeaveConnections(t *testing.T) {
	t.Parallel()
	r := startHanging(t, "ACTIVITYD_MYSQL_CONNECTIONS=8")
	unlock := r.lock(t, "photos WRITE")
	stop := many(t, func() { _ = r.read(t, 1).status })
	const reads = 6
	eventually(t, "reads hang", func() bool { return r.blocked(t, "photos") >= 4 }) // the limit begins with four
	for contact := range member.ID(2) {
		must(t, r.site.SetContact(t.Context(), 1, 102+contact, site.Grant{}))
		if status := r.post(t, `{"type":"add_contact","user_id":"1","contact_id":"101"}`); status != http.StatusAccepted {
			t.Errorf("a task is answered %d", status)
		}
		r.awaitTasks(t)
		if n := r.blocked(t, "photos"); n > reads {
			t.Errorf("%d reads at once, want at most %d", n, reads)
		}
		if status, body := page(t, r.url+"/readyz"); status != http.StatusOK {
			t.Errorf("/readyz: %d %s", status, body)
		}
	}
	unlock()
	stop()
	if set := r.set(t, 1); len(set) != 3 {
		t.Errorf("the set %v, want three contacts", set)
	}
}
