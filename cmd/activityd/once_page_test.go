package main

import (
	"database/sql"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// The resource of docs/once.md refuses a write with a lower token than it has seen, and lets an attempt write more than
// once.
func TestTheFencesOfThePageByTheLetter(t *testing.T) {
	t.Parallel()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	page := pageSQL(t, "docs/once.md")
	execOn(t, db, []string{"CREATE TABLE digests (id INT PRIMARY KEY, body TEXT NOT NULL)", "INSERT INTO digests VALUES (1, '')"})
	execOn(t, db, page["fence_column"])
	execOn(t, db, page["fence_table"])
	row, transaction := page["fence_row"], page["fence_transaction"]
	if len(row) != 2 || len(transaction) != 4 {
		t.Fatalf("the page has %q and %q", row, transaction)
	}
	const body = "SELECT body FROM digests WHERE id = 1"
	for _, step := range []struct {
		fence uint64
		body  string
		want  string // the body afterwards
	}{
		{7, "by 7", "by 7"},
		{7, "by 7", "by 7"},       // MySQL says that no row was changed
		{7, "7 again", "7 again"}, // of the same attempt
		{9, "by 9", "by 9"},
		{8, "too late", "by 9"},
		{1<<63 - 1, "by the last", "by the last"},
		{9, "too late", "by the last"},
	} {
		_, err := db.ExecContext(t.Context(), row[0], step.body, step.fence, 1, step.fence)
		must(t, err)
		seen := seenFence(t, db.QueryRowContext(t.Context(), row[1], 1))
		if got := firstColumn(t, db, body)[0]; got != step.want || (seen == step.fence) != (got == step.body) {
			t.Errorf("the row after %+v: %q, and the fence %d", step, got, seen)
		}
	}
	for _, step := range []struct {
		fence uint64
		late  bool
	}{{7, false}, {7, false}, {9, false}, {8, true}, {1<<63 - 1, false}, {9, true}} {
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		_, err = tx.ExecContext(t.Context(), transaction[1], step.fence, step.fence)
		must(t, err)
		seen := seenFence(t, tx.QueryRowContext(t.Context(), transaction[2]))
		must(t, tx.Commit())
		if seen != step.fence != step.late {
			t.Errorf("the transaction of %+v: the fence is %d", step, seen)
		}
	}
}

func seenFence(t *testing.T, row *sql.Row) (fence uint64) {
	t.Helper()
	must(t, row.Scan(&fence))
	return fence
}

// The statement of docs/operate.md for a MySQL whose clock is behind raises all fences by a day, of known names and new
// names, and leaves the id of the database.
func TestTheFencesAreRaisedByTheLetter(t *testing.T) {
	t.Parallel()
	db, err := mysql.Open(servertest.MySQLDSN(t))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	store := once.NewMySQL(db)
	acquire := func(name, owner string) uint64 {
		t.Helper()
		r, err := store.Apply(t.Context(), name, once.Operation{
			Action: once.Acquire, Owner: owner, Terms: once.Terms{Lease: time.Minute, Keep: time.Minute},
		})
		must(t, err)
		return uint64(r.State.Fence)
	}
	id, err := schema.DatabaseID(t.Context(), db)
	must(t, err)
	name := acquire("here", "a")
	execOn(t, db, pageSQL(t, "docs/once.md")["raise_fences"])
	if r, err := store.Apply(t.Context(), "here", once.Operation{Action: once.Fail, Owner: "a"}); err != nil || r.Outcome != once.OK {
		t.Errorf("the end of the attempt that was under way: %v, %v", r.Outcome, err)
	}
	const day = 24 * time.Hour
	for what, fence := range map[string]struct{ before, after uint64 }{
		"of a name that is there": {name, acquire("here", "b")},
		"of another name":         {name / 1000 * 1000, acquire("there", "c")}, // the page has whole seconds
	} {
		if fence.after < fence.before+uint64(day.Milliseconds()) {
			t.Errorf("the fence %s is %d, and was %d before", what, fence.after, fence.before)
		}
	}
	if after, err := schema.DatabaseID(t.Context(), db); err != nil || after != id {
		t.Errorf("the id of the database is %s, %v, and was %s", after, err, id)
	}
}
