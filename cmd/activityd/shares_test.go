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

// Reads that hang take no more than their part of the connections: tasks are enqueued and done, and
// /readyz is answered.
func TestReadsThatHangLeaveConnections(t *testing.T) {
	t.Parallel()
	r := startAllWith(t, func(c *config) {
		c.mysqlDSN += "&lock_wait_timeout=3" // no longer than the requests that wait, so that no statement is left over
		c.auditSweepRate = 0
	}, "ACTIVITYD_MYSQL_CONNECTIONS=8")
	r.makeSite(t, 3)
	must(t, r.site.SetContact(t.Context(), 1, 101, site.Grant{}))
	r.awaitTasks(t)
	conn, err := r.db.Conn(t.Context())
	must(t, err)
	exec := func(statement string) {
		_, err := conn.ExecContext(context.WithoutCancel(t.Context()), statement)
		must(t, err)
	}
	exec("LOCK TABLES photos WRITE")
	t.Cleanup(func() { must(t, conn.Close()) })
	reading, stop := context.WithCancel(t.Context())
	defer stop()
	var readers sync.WaitGroup
	for range 40 { // more than there are connections
		readers.Go(func() {
			for reading.Err() == nil {
				_ = r.read(t, 1).status
			}
		})
	}
	blocked := func() int {
		return number(t, r.db, "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock' AND info LIKE '%photos%'")
	}
	const reads = 6
	eventually(t, "reads hang", func() bool { return blocked() >= 4 }) // the limit begins with four
	for contact := range member.ID(2) {
		must(t, r.site.SetContact(t.Context(), 1, 102+contact, site.Grant{}))
		if status, text := r.request(t, http.MethodPost, "/v1/tasks", `{"type":"add_contact","user_id":"1","contact_id":"101"}`); status != http.StatusAccepted {
			t.Errorf("a task is answered %d %s", status, text)
		}
		r.awaitTasks(t)
		if n := blocked(); n > reads {
			t.Errorf("%d reads at once, want at most %d", n, reads)
		}
		if status, body := page(t, r.url+"/readyz"); status != http.StatusOK {
			t.Errorf("/readyz: %d %s", status, body)
		}
	}
	exec("UNLOCK TABLES")
	stop()
	readers.Wait()
	if set := r.set(t, 1); len(set) != 3 {
		t.Errorf("the set %v, want three contacts", set)
	}
}
