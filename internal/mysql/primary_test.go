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

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/metrics/metricstest"
	"github.com/activityd/activityd/internal/mysql"
)

// two are two servers, and the address that leads to one of them. No one replicates the other:
// it is of no matter here.
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

func (s *two) open(t *testing.T, opts ...func(*sql.DB)) *sql.DB {
	t.Helper()
	db, err := mysql.Open(s.dsn, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// fill makes n connections, which are idle afterwards.
func fill(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	all := make([]*sql.Conn, n)
	for i := range all {
		var err error
		if all[i], err = db.Conn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, conn := range all {
		if err := conn.Close(); err != nil {
			t.Fatal(err)
		}
	}
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
}

// checkPlanned: the old primary becomes read-only, and its connections stay open. What reads,
// what reads by prepared statements, and what writes go over to the new one; nothing else than
// ErrUnavailable is seen on the way; and no connection to the old one is left.
func (s *two) checkPlanned(t *testing.T) {
	t.Helper()
	readers, mixed := s.open(t), s.open(t)
	prepared := mysql.NewPrepared(readers)
	ways := map[string]func() (int, error){
		"a read": func() (int, error) { return serverOf(t.Context(), readers) },
		"a prepared read": func() (id int, err error) {
			ids, err := mysql.Select(t.Context(), prepared, mysql.Column[int], "SELECT @@server_id FROM DUAL WHERE ? = 1", 1)
			if err != nil {
				return 0, mysql.Translate(t.Context(), "asking", err)
			}
			return ids[0], nil
		},
		"a write": func() (int, error) {
			if _, err := mixed.ExecContext(t.Context(), "UPDATE users SET username = 'x' WHERE id = 1"); err != nil {
				return 0, mysql.Translate(t.Context(), "writing", err)
			}
			return serverOf(t.Context(), mixed)
		},
		"a transaction": func() (id int, err error) {
			err = mysql.Transact(t.Context(), mixed, "writing", func(tx *sql.Tx) error {
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
		for range 3 {
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
	all := func(want int) func() bool {
		return func() bool {
			for name := range ways {
				if id, _ := at.Load(name); id != want {
					return false
				}
			}
			return true
		}
	}
	servertest.Eventually(t, "all use the first server", all(1))
	s.a.SetReadOnly(t)
	servertest.Eventually(t, "a read-only server is used for nothing", all(0))
	s.b.SetReadOnly(t)
	s.address.Move(s.b.Addr())
	s.b.SetWritable(t)
	servertest.Eventually(t, "all use the second server", all(2))
	servertest.Eventually(t, "no connection to the first server is left", func() bool { return s.a.SiteConnections(t) == 0 })
	ending.Store(true)
	running.Wait()
	for _, db := range []*sql.DB{readers, mixed} {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}
}

// checkOneServer: the old primary is writable still, and its connections are open. The first
// connection that leads to another server ends the others.
func (s *two) checkOneServer(t *testing.T) {
	t.Helper()
	s.a.SetWritable(t)
	db := s.open(t)
	fill(t, db, 5)
	if n := s.b.SiteConnections(t); n != 5 {
		t.Fatalf("%d connections, want 5", n)
	}
	s.address.Move(s.a.Addr())
	fill(t, db, 6)
	fill(t, db, 6)
	for range 20 {
		if id, err := serverOf(t.Context(), db); err != nil || id != 1 {
			t.Fatalf("server %d, %v, want 1", id, err)
		}
	}
	servertest.Eventually(t, "no connection to the second server is left", func() bool { return s.b.SiteConnections(t) == 0 })
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
		db, err := mysql.Open(dsn)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := serverOf(t.Context(), db); !errors.Is(err, mysql.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("a read of a read-only server: %v, want ErrUnavailable and the reason", err)
		}
		if n := db.Stats().OpenConnections; n != 0 {
			t.Errorf("%d connections are left", n)
		}
		_ = db.Close()
	}
	replica.SetWritable(t)
	db, err := mysql.Open(replica.SiteDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := serverOf(t.Context(), db); err != nil {
		t.Errorf("a read of the server that was promoted: %v", err)
	}
}

// checkTransactions: one on a server that becomes read-only is not committed, and its error says
// that it may be tried again.
func checkTransactions(t *testing.T, server *servertest.Replicated) {
	t.Helper()
	db, err := mysql.Open(server.SiteDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
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
	if n := server.Number(t, "SELECT COUNT(*) FROM "+servertest.Database+".users"); n != 0 {
		t.Errorf("%d rows were committed", n)
	}
}

// TestACommitEndsWithItsContext: it waits for a replica that does not answer.
func TestACommitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	primary := servertest.NewPrimary(t)
	replica := primary.NewReplica(t)
	db, err := mysql.Open(primary.SiteDSN())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if err := replica.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = mysql.Transact(ctx, db, "writing", func(tx *sql.Tx) error {
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
func TestConnectionsAreCountedByServer(t *testing.T) { //nolint:paralleltest // it reads metrics
	server := servertest.NewPrimary(t)
	server.Do(t, "CREATE DATABASE counted")
	var pools []*sql.DB
	for _, id := range []int{71, 72} { // one server is enough to look like two
		server.Do(t, fmt.Sprint("SET GLOBAL server_id = ", id))
		db, err := mysql.Open(server.DSN("counted"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		fill(t, db, id-69)
		pools = append(pools, db)
	}
	check := func(when string, first, second float64) {
		t.Helper()
		seen := metricstest.Gather(t)
		for id, want := range map[string]float64{"71": first, "72": second} {
			if got := seen[`activityd_mysql_connections{database="counted",server_id="`+id+`"}`]; got != want {
				t.Errorf("%s, %v connections to server %s, want %v", when, got, id, want)
			}
		}
	}
	check("open", 2, 3)
	_ = pools[0].Close()
	check("closed", 0, 3)
}

func TestOutagesByErrorNumber(t *testing.T) {
	t.Parallel()
	for _, number := range []uint16{1040, 1047, 1053, 1290, 1836, 1927, 3032, 3100} {
		if err := mysql.Translate(t.Context(), "work", fmt.Errorf("wrapped: %w", serverError(number))); !errors.Is(err, mysql.ErrUnavailable) {
			t.Errorf("error %d: %v, want ErrUnavailable", number, err)
		}
	}
}
