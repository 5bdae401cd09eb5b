package once_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/DATA-DOG/go-sqlmock"
	driver "github.com/go-sql-driver/mysql"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// refused is an error that the server sends.
func refused(number uint16) error { return &driver.MySQLError{Number: number, Message: "no"} }

// TestMySQLErrors: an operation translates errors of the server, whichever statement meets them.
func TestMySQLErrors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err   error
		want  []error
		words string
		took  time.Duration // at least
	}{
		"read-only":          {refused(1290), []error{once.ErrUnavailable, mysql.ErrUnavailable}, "acquire a: ", 0},
		"read-only mode":     {refused(1836), []error{once.ErrUnavailable, mysql.ErrUnavailable}, "", 0},
		"too many":           {refused(1040), []error{once.ErrUnavailable, mysql.ErrUnavailable}, "", 0},
		"gone":               {driver.ErrInvalidConn, []error{once.ErrUnavailable, mysql.ErrUnavailable}, "", 0},
		"no table":           {refused(1146), nil, "create the missing tables with `activityd schema --apply`", 0},
		"no column":          {refused(1054), nil, "`activityd schema --check` says what differs", 0},
		"no right":           {refused(1142), nil, "acquire a: Error 1142: no: grant the user of the DSN the right to do so", 0},
		"deadlocks":          {refused(1213), []error{once.ErrUnavailable}, "no answer within 10s: Error 1213", 10 * time.Second},
		"locks":              {refused(1205), []error{once.ErrUnavailable}, "no answer within 10s: Error 1205", 10 * time.Second},
		"always a duplicate": {refused(1062), []error{once.ErrUnavailable}, "no answer within 10s: Error 1062", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				db, mock, err := sqlmock.New()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = db.Close() }()
				for range 10_000 {
					mock.ExpectQuery("SELECT").WillReturnError(test.err)
				}
				begin := time.Now()
				r, err := once.NewMySQL(db).Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "me", Terms: anyTerms})
				if err == nil || r != (once.Reply{}) || !strings.Contains(err.Error(), test.words) || errors.Is(err, once.ErrUnavailable) != (len(test.want) > 0) {
					t.Errorf("%+v, %v", r, err)
				}
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("%v is not %v", err, want)
					}
				}
				if took := time.Since(begin); took < test.took || took > test.took+time.Second {
					t.Errorf("took %v, want %v", took, test.took)
				}
			})
		})
	}
}

// A server that does not answer is given up after a while, and a context that ends before
// that is the error.
func TestMySQLThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	for timeout, away := range map[time.Duration]bool{time.Hour: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			db, mock, err := sqlmock.New()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			mock.ExpectQuery("SELECT").WithArgs("a").WillDelayFor(2 * time.Hour).WillReturnRows(sqlmock.NewRows(nil))
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			_, err = once.NewMySQL(db).Apply(ctx, "a", once.Operation{Action: once.Finish, Owner: "me"})
			if errors.Is(err, once.ErrUnavailable) != away || errors.Is(err, context.DeadlineExceeded) == away {
				t.Errorf("after %v at most: %v", timeout, err)
			}
		})
	}
}

// The answer to a change gets lost on the way, and the operation is sent again.
func TestMySQLLostAnswers(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	direct := openMySQL(t, dsn)
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	proxy := servertest.NewProxy(t, cfg.Addr)
	store := once.NewMySQL(openMySQL(t, proxy.MySQLDSN(dsn)+"&innodb_lock_wait_timeout=60", mysql.WithMaxOpen(1)))
	acquire(t, store, "another", "so that there is a floor")
	changed := func() (n int) {
		if err := direct.QueryRowContext(t.Context(), "SELECT COALESCE(SUM(1 + changes), 0) FROM once_keys WHERE name = 'a'").Scan(&n); err != nil {
			t.Error(err)
		}
		return n
	}
	changing := func() bool { return inserting(t, direct) || updating(t, direct) }
	fence := once.Fence(0)
	for i, op := range []once.Operation{
		{Action: once.Acquire, Owner: "me", Terms: anyTerms},
		{Action: once.Extend, Owner: "me"},
		{Action: once.Fail, Owner: "me", Reason: "no luck"},
		{Action: once.Acquire, Owner: "me again", Terms: anyTerms},
		{Action: once.Release, Owner: "me again"},
		{Action: once.Acquire, Owner: "the last one", Terms: anyTerms},
		{Action: once.Finish, Owner: "the last one"},
	} {
		lost := make(chan error, 1)
		eventually(t, "the changes before are over", func() bool { return !changing() }) // they are answered sooner
		// The change waits for a row, and the connection is cut.
		tx, err := direct.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback() })
		if _, err := tx.ExecContext(t.Context(), "SELECT name FROM once_keys WHERE name IN (' floor', 'a') FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := store.Apply(t.Context(), "a", op)
			lost <- err
		}()
		eventually(t, "the change is under way", changing)
		proxy.Cut()
		if err := <-lost; !errors.Is(err, once.ErrUnavailable) {
			t.Errorf("%s: %v, want that the answer was lost", op.Action, err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it was applied", func() bool { return changed() == i+1 })
		r, err := store.Apply(t.Context(), "a", op)
		if err != nil || r.Outcome != once.OK || r.State.Attempt != []int{1, 1, 1, 2, 1, 2, 2}[i] {
			t.Errorf("%s again: %+v, %v", op.Action, r, err)
		}
		if begins := op.Action == once.Acquire; (r.State.Fence > fence) != begins {
			t.Errorf("%s again: fence %v after %v", op.Action, r.State.Fence, fence)
		}
		fence = r.State.Fence
		ageMySQL(t, direct, "a", time.Minute)                                        // so that an extension in the same millisecond is a change
		execMySQL(t, direct, "UPDATE once_keys SET changes = ? WHERE name = 'a'", i) // the repetition may be a change, too
	}
}

// A server that was made read-only, as after a failover, is not the primary any more, and is asked for
// nothing.
func TestMySQLReadOnly(t *testing.T) {
	t.Parallel()
	server := servertest.OwnMySQL(t)
	admin, err := sql.Open("mysql", server.DSN(servertest.Database))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = admin.Close() }()
	execMySQL(t, admin, "CREATE USER once@localhost")
	execMySQL(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+servertest.Database+".once_keys TO once@localhost")
	store := once.NewMySQL(openMySQL(t, asUser(t, server.DSN(servertest.Database), "once")))
	acquire(t, store, "a", "me")
	execMySQL(t, admin, "SET GLOBAL read_only = ON")
	for action, name := range map[once.Action]string{once.Acquire: "b", once.Finish: "a"} { // an acquisition of a at the same moment changes nothing
		if r, err := store.Apply(t.Context(), name, once.Operation{Action: action, Owner: "me", Terms: anyTerms}); !errors.Is(err, once.ErrUnavailable) {
			t.Errorf("%s: %+v, %v", action, r, err)
		}
	}
	if r, err := store.Get(t.Context(), "a"); !errors.Is(err, once.ErrUnavailable) {
		t.Errorf("get: %+v, %v", r, err)
	}
	execMySQL(t, admin, "SET GLOBAL read_only = OFF")
	if r, err := store.Get(t.Context(), "a"); err != nil || r.State.Owner != "me" {
		t.Errorf("get, afterwards: %+v, %v", r, err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Apply(t.Context(), "a", once.Operation{Action: once.Finish, Owner: "me"}); !errors.Is(err, once.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
}

// asUser is dsn for another user.
func asUser(t *testing.T, dsn, user string) string {
	t.Helper()
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	cfg.User, cfg.Passwd = user, ""
	return cfg.FormatDSN()
}

// A database of before there was the table, and a user without rights to it.
func TestMySQLWithoutTheTable(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	admin := openMySQL(t, dsn)
	var database string
	if err := admin.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	execMySQL(t, admin, "CREATE USER poor@localhost")
	t.Cleanup(func() { _, _ = admin.ExecContext(context.Background(), "DROP USER poor@localhost") })
	execMySQL(t, admin, "GRANT SELECT ON "+database+".once_keys TO poor@localhost")
	poor := once.NewMySQL(openMySQL(t, asUser(t, dsn, "poor")))
	_, err := poor.Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "me", Terms: anyTerms})
	if err == nil || errors.Is(err, once.ErrUnavailable) || !strings.Contains(err.Error(), "INSERT command denied") || !strings.Contains(err.Error(), "grant the user of the DSN the right") {
		t.Errorf("without the right: %v", err)
	}
	execMySQL(t, admin, "DROP TABLE once_keys")
	store := once.NewMySQL(admin)
	_, err = store.Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "me", Terms: anyTerms})
	if err == nil || errors.Is(err, once.ErrUnavailable) || !strings.Contains(err.Error(), "acquire a: ") || !strings.Contains(err.Error(), "activityd schema --apply") {
		t.Errorf("without the table: %v", err)
	}
	if _, err := store.Exhausted(t.Context()); err == nil {
		t.Error("counted without the table")
	}
}

// The store works on a server whose defaults are all set against it.
func TestMySQLHostile(t *testing.T) {
	t.Parallel()
	db := openMySQL(t, servertest.HostileMySQL(t))
	if err := schema.Apply(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	oncetest.TestStore(t, func(t *testing.T) oncetest.Harness {
		return oncetest.Harness{Store: once.NewMySQL(db), Age: func(name string, d time.Duration) error {
			ageMySQL(t, db, name, d)
			return nil
		}}
	})
}

// A store refuses an owner that the table could not hold, and keeps any other owner unchanged.
func TestMySQLOwners(t *testing.T) {
	t.Parallel()
	store, _ := newMySQL(t)
	if _, err := store.Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "\xff", Terms: anyTerms}); !errors.Is(err, once.ErrInvalid) {
		t.Errorf("invalid UTF-8: %v", err)
	}
	for i, owner := range []string{strings.Repeat("ä", once.MaxOwner/2), " a ", "𝄞"} {
		name := string(rune('a' + i))
		if s := acquire(t, store, name, owner); s.Owner != owner {
			t.Errorf("%q became %q", owner, s.Owner)
		}
		if s := acquire(t, store, name, owner); s.Owner != owner || s.Attempt != 1 {
			t.Errorf("again: %q: %+v", owner, s)
		}
	}
}
