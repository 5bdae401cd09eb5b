package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// two are two servers without replication, and the address that leads to one of them.
type two struct {
	a, b    *servertest.Replicated
	address *servertest.Proxy
	dsn     string
}

func newTwo(t *testing.T) *two {
	t.Helper()
	var s two
	s.a = servertest.NewPrimary(t)
	s.b = servertest.NewPrimary(t)
	s.b.Do(t, "SET GLOBAL server_id = 2")
	s.address = servertest.NewProxy(t, s.a.Addr())
	s.dsn = s.address.MySQLDSN(s.a.SiteDSN())
	return &s
}

// hold makes n connections, which are in use until they are closed.
func hold(t *testing.T, db *sql.DB, n int) []*sql.Conn {
	t.Helper()
	all := make([]*sql.Conn, n)
	for i := range all {
		var err error
		if all[i], err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// closeAll makes connections idle.
func closeAll(t *testing.T, all []*sql.Conn) {
	t.Helper()
	for _, conn := range all {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// fill makes n connections, which are idle afterwards.
func fill(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	closeAll(t, hold(t, db, n))
}

func serverOf(ctx context.Context, db *sql.DB) (id int, err error) {
	err = db.QueryRowContext(ctx, "SELECT @@server_id").Scan(&id)
	return id, mysql.Translate(ctx, "asking", err)
}

func TestThePoolFollowsTheAddress(t *testing.T) {
	t.Parallel()
	s := newTwo(t)
	s.checkPlanned(t)
	s.checkOneServer(t)
	s.checkOpenTransaction(t)
	s.checkAsked(t)
	s.checkMoved(t)
}

// checkPlanned: the old primary becomes read-only, and its connections stay open. Prepared reads and transactions go
// over to the new primary; all errors are ErrUnavailable; and no connection to the old primary is left.
func (s *two) checkPlanned(t *testing.T) {
	t.Helper()
	db := openWith(t, s.dsn, "")
	prepared := mysql.NewPrepared(db)
	ways := map[string]func() (int, error){
		"a prepared read": func() (id int, err error) {
			ids, err := mysql.Select(t.Context(), prepared, mysql.Column[int], "SELECT @@server_id FROM DUAL WHERE ? = 1", 1)
			if err != nil {
				return 0, mysql.Translate(t.Context(), "asking", err)
			}
			return ids[0], nil
		},
		"a transaction": func() (id int, err error) {
			err = mysql.Transact(t.Context(), db, "writing", func(tx *sql.Tx) error {
				if _, err := tx.ExecContext(t.Context(), "UPDATE users SET username = 'x' WHERE id = 2"); err != nil {
					return err
				}
				return tx.QueryRowContext(t.Context(), "SELECT @@server_id").Scan(&id)
			})
			return id, err
		},
	}
	var ending atomic.Bool
	var at sync.Map // from way to the server that it used last; 0: none
	var running sync.WaitGroup
	for name, way := range ways {
		for range 6 {
			running.Go(func() {
				for !ending.Load() && t.Context().Err() == nil {
					id, err := way()
					if err != nil && !errors.Is(err, mysql.ErrUnavailable) {
						t.Errorf("%s: %v", name, err)
						return
					}
					at.Store(name, id)
				}
			})
		}
	}
	defer running.Wait()
	defer ending.Store(true)
	allUse := func(want int) {
		t.Helper()
		servertest.Eventually(t, fmt.Sprintf("all use server %d", want), func() bool {
			for name := range ways {
				if id, _ := at.Load(name); id != want {
					return false
				}
			}
			return true
		})
	}
	allUse(1)
	s.a.SetReadOnly(t)
	allUse(0) // a read-only server is used for nothing
	s.b.SetReadOnly(t)
	s.address.Move(s.b.Addr())
	s.b.SetWritable(t)
	allUse(2)
	servertest.Eventually(t, "no connection to the first server is left", func() bool { return s.a.SiteConnections(t) == 0 })
	ending.Store(true)
	running.Wait()
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// checkOneServer: the old primary is writable still, and its connections are open. The first
// connection that leads to another server ends the others.
func (s *two) checkOneServer(t *testing.T) {
	t.Helper()
	s.a.SetWritable(t)
	db := openWith(t, s.dsn, "")
	servertest.Eventually(t, "the pool has all connections to the second server", func() bool {
		fill(t, db, 5)
		return s.b.SiteConnections(t) == 5
	})
	s.address.Move(s.a.Addr())
	fill(t, db, 6)
	fill(t, db, 6)
	for range 20 {
		if id, err := serverOf(t.Context(), db); err != nil || id != 1 {
			t.Fatalf("server %d, %v, want 1", id, err)
		}
	}
	servertest.Eventually(t, "no connection to the second server is left", func() bool { return s.b.SiteConnections(t) == 0 })
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// checkOpenTransaction: a transaction that is open when the pool goes over to another server is not committed
// on the server before, which takes writes still.
func (s *two) checkOpenTransaction(t *testing.T) {
	t.Helper()
	db := openWith(t, s.dsn, "")
	err := mysql.Transact(t.Context(), db, "writing", func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(t.Context(), "INSERT INTO users (id, username) VALUES (1, 'x')"); err != nil {
			return err
		}
		s.address.Move(s.b.Addr())
		if id, err := serverOf(t.Context(), db); err != nil || id != 2 {
			t.Errorf("server %d, %v, want 2", id, err)
		}
		return nil
	})
	if !errors.Is(err, mysql.ErrUnavailable) {
		t.Errorf("a commit on the server before: %v, want ErrUnavailable", err)
	}
	checkUsers(t, s.a, 0)
	checkUsers(t, s.b, 0)
	fill(t, db, 2)
	servertest.Eventually(t, "no connection to the first server is left", func() bool { return s.a.SiteConnections(t) == 0 })
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// checkAsked: the old primary hangs while it is asked whether it is the primary. The pool goes over to
// another server, and the old primary wakes up and says yes. Nothing is written there.
func (s *two) checkAsked(t *testing.T) {
	t.Helper()
	db := openWith(t, s.dsn, "")
	conns := hold(t, db, 1)
	if err := mysql.AskAgain(conns[0]); err != nil {
		t.Fatal(err)
	}
	closeAll(t, conns)
	if err := s.b.Pause(); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(t.Context(), "INSERT INTO users (id, username) VALUES (2, 'x')")
		written <- err
	}()
	servertest.Eventually(t, "the server is asked", func() bool { return db.Stats().InUse == 1 })
	s.address.Move(s.a.Addr())
	if id, err := serverOf(t.Context(), db); err != nil || id != 1 {
		t.Errorf("server %d, %v, want 1", id, err)
	}
	if err := s.b.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Errorf("a write that goes over: %v", err)
	}
	checkUsers(t, s.b, 0)
	checkUsers(t, s.a, 1)
}

// checkMoved: a proxy moves an open connection to another server, and its session is new there. The connection is given
// up, and new connections are opened at once.
func (s *two) checkMoved(t *testing.T) {
	t.Helper()
	db := openWith(t, s.dsn, "")
	conns := hold(t, db, 1)
	if _, err := conns[0].ExecContext(t.Context(), "SET max_sort_length = 64"); err != nil {
		t.Fatal(err)
	}
	s.a.Do(t, "SET GLOBAL server_id = 3") // a server is enough to look like another
	if err := mysql.AskAgain(conns[0]); err != nil {
		t.Fatal(err)
	}
	closeAll(t, conns)
	if id, err := serverOf(t.Context(), db); err != nil || id != 3 {
		t.Errorf("server %d, %v, want 3", id, err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

func checkUsers(t *testing.T, server *servertest.Replicated, want int) {
	t.Helper()
	if n := server.Number(t, "SELECT COUNT(*) FROM "+servertest.Database+".users"); n != want {
		t.Errorf("%d rows on server %d, want %d", n, server.Number(t, "SELECT @@server_id"), want)
	}
}

func TestAReadOnlyServer(t *testing.T) {
	t.Parallel()
	server := servertest.NewPrimary(t)
	checkRefused(t, server)
	checkTransactions(t, server)
}

// checkRefused: a replica is refused for reads, too, even to a user who may write to it.
func checkRefused(t *testing.T, replica *servertest.Replicated) {
	t.Helper()
	replica.SetReadOnly(t)
	for _, dsn := range []string{replica.SiteDSN(), replica.DSN(servertest.Database)} {
		db := openWith(t, dsn, "")
		if _, err := serverOf(t.Context(), db); !errors.Is(err, mysql.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("a read of a read-only server: %v, want ErrUnavailable and the reason", err)
		}
		if n := db.Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections are left", n)
		}
	}
	replica.SetWritable(t)
	db := openWith(t, replica.SiteDSN(), "")
	if _, err := serverOf(t.Context(), db); err != nil {
		t.Errorf("a read of the server that was promoted: %v", err)
	}
}

// checkTransactions: a transaction on a server that becomes read-only is not committed, and its error says
// that it may be tried again.
func checkTransactions(t *testing.T, server *servertest.Replicated) {
	t.Helper()
	db := openWith(t, server.SiteDSN(), "")
	write := func(tx *sql.Tx, id int) error {
		_, err := tx.ExecContext(t.Context(), "INSERT INTO users (id, username) VALUES (?, 'x')", id)
		return err
	}
	for id, when := range []string{"before the statement", "before the commit"} {
		err := mysql.Transact(t.Context(), db, "writing", func(tx *sql.Tx) error {
			if id == 1 {
				if err := write(tx, id); err != nil {
					return err
				}
			}
			server.SetReadOnly(t)
			if id == 1 {
				return nil
			}
			return write(tx, id)
		})
		if !errors.Is(err, mysql.ErrUnavailable) {
			t.Errorf("read-only %s: %v, want ErrUnavailable", when, err)
		}
		if n := db.Stats().OpenConnections; n != 0 {
			t.Errorf("read-only %s: the connection is kept", when)
		}
		server.SetWritable(t)
	}
	checkUsers(t, server, 0)
}

// A commit that waits for a replica that does not answer, with semi-synchronous replication, ends with its context.
func TestCommitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	primary := servertest.NewPrimary(t)
	replica := primary.NewReplica(t)
	db := openWith(t, primary.SiteDSN(), "")
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := mysql.Transact(ctx, db, "writing", func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO users (id, username) VALUES (1, 'x')")
		return err
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a commit that no replica answers: %v, want the end of the context", err)
	}
	servertest.Eventually(t, "the connection is given up", func() bool { return db.Stats().OpenConnections == 0 })
	if err := replica.Resume(); err != nil {
		t.Fatal(err)
	}
}

// TestConnectionsAreCountedByServer, so that it is seen when there are two.
func TestConnectionsAreCountedByServer(t *testing.T) {
	server := servertest.NewPrimary(t)
	server.Do(t, "CREATE DATABASE counted")
	wantCount := func(id string, want float64) {
		t.Helper()
		if got := metricstest.Gather(t, mysql.Connections)[`activityd_mysql_connections{database="counted",server_id="`+id+`"}`]; got != want {
			t.Errorf("%v connections to server %s, want %v", got, id, want)
		}
	}
	for id, n := range map[string]int{"71": 2, "72": 3} { // a server is enough to look like two
		server.Do(t, "SET GLOBAL server_id = "+id)
		db := openWith(t, server.DSN("counted"), "")
		held := hold(t, db, n)
		wantCount(id, float64(n))
		closeAll(t, held)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		wantCount(id, 0)
	}
}
