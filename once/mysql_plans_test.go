package once_test

import (
	"database/sql"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// TestMySQLPlansAndCosts: only the list scans the table, however many names there are, and no
// statement holds a lock for another statement.
func TestMySQLPlansAndCosts(t *testing.T) {
	t.Parallel()
	for _, size := range []int{8, 20_000} {
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			t.Parallel()
			db := openMySQL(t, servertest.MySQLDSN(t), mysql.WithMaxOpen(1))
			store := once.NewMySQL(db)
			acquire(t, store, "first", "me") // so that there is a floor, and no purge is due
			execMySQL(t, db, `INSERT INTO once_keys (name, phase, owner, lease, keep, fence, lease_ends, forget_at)
				WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 200)
				SELECT CONCAT('n', a.i, '/', b.i), ELT(1 + a.i % 4, 'free', 'held', 'done', 'exhausted'), 'owner', 30000, 60000, 1, 99999999999999, 99999999999999
				FROM n AS a JOIN n AS b ORDER BY b.i, a.i LIMIT `+strconv.Itoa(size))
			if _, err := mysql.Select(t.Context(), db, func(*sql.Rows) (int, error) { return 0, nil }, "ANALYZE TABLE once_keys"); err != nil {
				t.Fatal(err)
			}
			for _, p := range plannedMySQL(t, store, db, size) {
				t.Run(p.name, func(t *testing.T) { p.check(t, db) })
			}
		})
	}
}

// planned is something that the store does.
type planned struct {
	name       string
	keys       string // the indexes that its statements may use, sorted
	statements int    // how many there are
	rows       int    // how many rows and index entries they may read, with those of the measuring
	do         func() error
}

func plannedMySQL(t *testing.T, store *once.MySQL, db *sql.DB, size int) []planned {
	const some = 100 // of the measuring
	apply := func(name string, op once.Operation, want once.Outcome) func() error {
		return func() error {
			op.Terms = anyTerms
			r, err := store.Apply(t.Context(), name, op)
			if err == nil && r.Outcome != want {
				t.Errorf("%+v, want %s", r, want)
			}
			return err
		}
	}
	return []planned{
		{"acquire, new", "PRIMARY", 2, some, apply("a", once.Operation{Action: once.Acquire, Owner: "me"}, once.OK)},
		{"acquire, held", "PRIMARY", 1, some, apply("a", once.Operation{Action: once.Acquire, Owner: "another"}, once.Busy)},
		{"extend", "PRIMARY", 2, some, func() error {
			ageMySQL(t, db, "a", time.Minute)
			return apply("a", once.Operation{Action: once.Extend, Owner: "me"}, once.OK)()
		}},
		{"fail", "PRIMARY", 2, some, apply("a", once.Operation{Action: once.Fail, Owner: "me"}, once.OK)},
		{"acquire, free", "PRIMARY", 2, some, apply("a", once.Operation{Action: once.Acquire, Owner: "another"}, once.OK)},
		{"fail, repeated", "PRIMARY", 1, some, apply("a", once.Operation{Action: once.Fail, Owner: "me"}, once.OK)},
		{"release", "PRIMARY", 2, some, apply("a", once.Operation{Action: once.Release, Owner: "another"}, once.OK)},
		{"acquire, late", "PRIMARY", 1, some, apply("a", once.Operation{Action: once.Acquire, Owner: "me"}, once.Lost)},
		{"done by nobody", "PRIMARY", 1, some, apply("b", once.Operation{Action: once.Finish, Owner: "me"}, once.Lost)},
		{"get", "PRIMARY", 1, some, func() error { _, err := store.Get(t.Context(), "a"); return err }},
		{"forget", "PRIMARY", 2, some, func() error { _, err := store.Forget(t.Context(), "a", true); return err }},
		{"purge", "PRIMARY phases", 3, some, func() error { return store.Purge(t.Context()) }},
		{"purge of nothing", "phases", 1, some, func() error { return store.Purge(t.Context()) }},
		{"exhausted", "phases", 1, some + size, func() error { _, err := store.Exhausted(t.Context()); return err }},
		{"list", "PRIMARY", 1, some + size, func() error {
			list, err := store.List(t.Context())
			if len(list) != size+1 {
				t.Errorf("listed %d, want %d", len(list), size+1)
			}
			return err
		}},
	}
}

func (p planned) check(t *testing.T, db *sql.DB) {
	var read int
	statements := servertest.Statements(t, db, func() {
		const rows = "Handler_read%"
		before := servertest.SessionStatus(t, db, rows)
		if err := p.do(); err != nil {
			t.Fatal(err)
		}
		read = servertest.SessionStatus(t, db, rows) - before
	})
	statements = slices.DeleteFunc(statements, func(s string) bool { return strings.Contains(s, "lease_ends = IF(") }) // the test's own
	used := map[string]bool{}
	for _, statement := range statements {
		for _, s := range servertest.Explain(t, db, statement) {
			// The server saw that the row does not exist before it made the plan.
			if s.Table == "" && strings.Contains(s.Extra, "const") {
				used["PRIMARY"] = true
			}
			if !s.Stored() {
				continue
			}
			// A row that is added is not looked for.
			if s.Key == "" && strings.HasPrefix(statement, "INSERT") && !strings.Contains(statement, "SELECT") {
				continue
			}
			used[s.Key] = true
			if s.Scans() || s.Sorts() {
				t.Errorf("%+v in\n%s", s, statement)
			}
		}
		if strings.Contains(statement, "FOR UPDATE") || strings.Contains(statement, "SHARE MODE") && !strings.HasPrefix(statement, "INSERT") {
			t.Errorf("holds a lock until the process goes on: %s", statement)
		}
	}
	if keys := strings.Join(slices.Sorted(maps.Keys(used)), " "); keys != p.keys || len(statements) != p.statements {
		t.Errorf("uses %q in %d statements, want %q in %d:\n%s", keys, len(statements), p.keys, p.statements, strings.Join(statements, "\n"))
	}
	t.Logf("read %d rows", read)
	if read > p.rows {
		t.Errorf("read %d rows, want at most %d", read, p.rows)
	}
}

// Exhausted does not count forgotten names.
func TestMySQLExhausted(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	once1 := once.Terms{Lease: time.Hour, Keep: time.Hour, Attempts: 1}
	for name, end := range map[string]once.Action{"done": once.Finish, "exhausted": once.Fail, "free": once.Release, "forgotten": once.Fail} {
		for _, op := range []once.Operation{{Action: once.Acquire, Owner: "me", Terms: once1}, {Action: end, Owner: "me"}} {
			if _, err := store.Apply(t.Context(), name, op); err != nil {
				t.Fatal(err)
			}
		}
	}
	ageMySQL(t, db, "forgotten", 2*time.Hour)
	if n, err := store.Exhausted(t.Context()); err != nil || n != 1 {
		t.Errorf("%d exhausted names, %v, want 1", n, err)
	}
}
