package once_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// acquire begins an attempt, with terms that do not matter.
func acquire(t *testing.T, store once.Store, name, owner string) once.State {
	t.Helper()
	r, err := store.Apply(t.Context(), name, once.Operation{Action: once.Acquire, Owner: owner, Terms: anyTerms})
	if err != nil || r.Outcome != once.OK {
		t.Fatalf("acquire %s by %s: %+v, %v", name, owner, r, err)
	}
	return r.State
}

var anyTerms = once.Terms{Lease: time.Hour, Keep: time.Hour}

// rowsMySQL counts the rows of once_keys that are names.
func rowsMySQL(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM once_keys WHERE name NOT LIKE ' %'").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func mustPurge(t *testing.T, store *once.MySQL) {
	t.Helper()
	if err := store.Purge(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// A name has a higher fence each time, whether its row was deleted in between, or the
// floor, or all there is.
func TestMySQLFencesOutliveTheirRows(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	highest := once.Fence(0)
	for round, between := range []func(){
		func() {}, // forgotten
		func() { mustPurge(t, store) },
		func() {
			if _, err := store.Forget(t.Context(), "a", true); err != nil {
				t.Error(err)
			}
			mustPurge(t, store)
		},
		func() { execMySQL(t, db, "DELETE FROM once_keys WHERE name = ' floor'"); mustPurge(t, store) },
		func() { execMySQL(t, db, "UPDATE once_keys SET fence = fence + 1000000"); mustPurge(t, store) }, // ahead of the clock
		func() {
			highest -= 1000000
			clockIsPast(t, highest)
			execMySQL(t, db, "TRUNCATE TABLE once_keys")
		},
		func() {},
	} {
		for i := range 3 {
			s := acquire(t, store, "a", fmt.Sprintf("%d/%d", round, i))
			if s.Fence <= highest {
				t.Errorf("round %d: fence %v after %v", round, s.Fence, highest)
			}
			highest = s.Fence
			ageMySQL(t, db, "a", time.Hour)
		}
		ageMySQL(t, db, "a", 2*time.Hour)
		between()
		if s, err := store.Get(t.Context(), "a"); err != nil || s.State != (once.State{}) {
			t.Errorf("round %d: %+v, %v", round, s, err)
		}
	}
}

// A name has a higher fence than before although the database has lost commits: the table came
// back from a backup, without some rows, or empty.
func TestMySQLFencesRiseAfterALoss(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	next := func(name, owner string) once.Fence {
		ageMySQL(t, db, name, time.Hour)
		return acquire(t, store, name, owner).Fence
	}
	next("old", "before the backup")
	next("gone", "before the backup")
	ageMySQL(t, db, "gone", 2*time.Hour)
	mustPurge(t, store)
	execMySQL(t, db, "CREATE TABLE backup AS SELECT * FROM once_keys")
	for what, lose := range map[string][]string{
		"a backup":            {"DELETE FROM once_keys", "INSERT INTO once_keys SELECT * FROM backup"},
		"one row of a backup": {"REPLACE INTO once_keys SELECT * FROM backup WHERE name = 'old'"},
		"a lost floor":        {"DELETE FROM once_keys WHERE name = ' floor'", "DELETE FROM once_keys WHERE name IN ('gone', 'new')"},
		"nothing":             {"TRUNCATE TABLE once_keys"},
	} {
		lost := make(map[string]once.Fence)
		for _, name := range []string{"old", "gone", "new"} {
			for i := range 3 {
				lost[name] = next(name, fmt.Sprintf("%s/%d", what, i))
			}
		}
		for _, statement := range lose {
			execMySQL(t, db, statement)
		}
		clockIsPast(t, max(lost["old"], lost["gone"], lost["new"]))
		for name, fence := range lost {
			if after := next(name, "after "+what); after <= fence {
				t.Errorf("%s, after %s: fence %v after %v", name, what, after, fence)
			}
		}
	}
}

// clockIsPast waits until the clock is past a fence: it takes a database longer than a
// millisecond to lose data and to come back.
func clockIsPast(t *testing.T, fence once.Fence) {
	t.Helper()
	eventually(t, "the clock is past the fence", func() bool { return time.Now().UnixMilli() > int64(fence) })
}

// An acquisition reads the row, the database loses a later acquisition, and the first then
// writes: it has the higher fence, because it takes the clock at the writing.
func TestMySQLAnAcquisitionThatSleptThroughALoss(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	acquire(t, store, "a", "before")
	ageMySQL(t, db, "a", time.Hour)
	execMySQL(t, db, "CREATE TABLE backup AS SELECT * FROM once_keys")
	var lost once.Fence
	applied, err := store.ApplyLate(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "slow", Terms: anyTerms}, func() {
		lost = acquire(t, store, "a", "another").Fence
		execMySQL(t, db, "REPLACE INTO once_keys SELECT * FROM backup")
		clockIsPast(t, lost)
	})
	r, getErr := store.Get(t.Context(), "a")
	if err != nil || getErr != nil || !applied || r.State.Owner != "slow" || r.State.Fence <= lost {
		t.Errorf("applied: %v; %+v after fence %v was lost; %v, %v", applied, r, lost, err, getErr)
	}
}

// A clock that was set back behind the fences makes no difference: they rise by 1.
func TestMySQLFencesAreCountedAheadOfTheClock(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	acquire(t, store, "a", "so that there is a floor")
	const ahead = 1 << 60
	execMySQL(t, db, "UPDATE once_keys SET fence = ?", ahead)
	want := once.Fence(ahead)
	for i := range 3 {
		want++
		ageMySQL(t, db, "a", time.Hour)
		if s := acquire(t, store, "a", strconv.Itoa(i)); s.Fence != want {
			t.Errorf("of a row: fence %v, want %v", s.Fence, want)
		}
	}
	ageMySQL(t, db, "a", 2*time.Hour)
	mustPurge(t, store)
	for _, name := range []string{"a", "b"} {
		if s := acquire(t, store, name, "me"); s.Fence != want+1 {
			t.Errorf("above the floor: fence %v, want %v", s.Fence, want+1)
		}
	}
}

// Between the reading of a row and its writing another process may change it.
func TestMySQLChangesAreNotOverwritten(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	apply := func(name, owner string, a once.Action) {
		if _, err := store.Apply(t.Context(), name, once.Operation{Action: a, Owner: owner, Terms: anyTerms}); err != nil {
			t.Error(err)
		}
	}
	for what, between := range map[string]func(name string){
		"":         func(string) {},
		"extended": func(name string) { apply(name, "me", once.Extend) },
		"done":     func(name string) { apply(name, "me", once.Finish) },
		"failed":   func(name string) { apply(name, "me", once.Fail) },
		"acquired": func(name string) { ageMySQL(t, db, name, time.Hour); apply(name, "another", once.Acquire) },
		"handed on": func(name string) {
			apply(name, "me", once.Release)
			apply(name, "another", once.Acquire)
			apply(name, "another", once.Release)
		},
		"forgotten": func(name string) {
			if _, err := store.Forget(t.Context(), name, true); err != nil {
				t.Error(err)
			}
		},
		"purged": func(name string) { ageMySQL(t, db, name, 2*time.Hour); mustPurge(t, store) },
		"purged and taken": func(name string) {
			ageMySQL(t, db, name, 2*time.Hour)
			mustPurge(t, store)
			acquire(t, store, name, "another")
		},
	} {
		for _, a := range []once.Action{once.Acquire, once.Extend, once.Finish, once.Fail, once.Release} {
			name := strings.ReplaceAll(what, " ", "-") + "/" + string(a)
			acquire(t, store, name, "me")
			ageMySQL(t, db, name, time.Minute) // so that an extension is a change
			execMySQL(t, db, "UPDATE once_keys SET changes = 0 WHERE name = ?", name)
			var want once.Reply
			applied, err := store.ApplyLate(t.Context(), name, once.Operation{Action: a, Owner: "me", Terms: anyTerms}, func() {
				between(name)
				var err error
				if want, err = store.Get(t.Context(), name); err != nil {
					t.Error(err)
				}
			})
			got, getErr := store.Get(t.Context(), name)
			if err != nil || getErr != nil || applied != (what == "") || !applied && got.State != want.State {
				t.Errorf("%s: applied: %v; it was %+v, and is %+v; %v, %v", name, applied, want.State, got.State, err, getErr)
			}
		}
	}
}

// Between the choice of rows and their deletion some may be acquired, with a fence below that of
// another row, and forgotten again, with a fence beyond the floor.
func TestMySQLPurgeLeavesWhatIsUsedAgain(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	forget := func(name string) { ageMySQL(t, db, name, 3*time.Hour) }
	for _, name := range []string{"gone", "taken", "high"} {
		acquire(t, store, name, "before")
		forget(name)
	}
	execMySQL(t, db, "UPDATE once_keys SET fence = fence + 10 WHERE name = 'high'")
	var taken, gone once.State
	err := store.PurgeLate(t.Context(), func() {
		taken = acquire(t, store, "taken", "me")
		for i := range 20 {
			gone = acquire(t, store, "gone", strconv.Itoa(i))
			forget("gone")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if r, err := store.Get(t.Context(), "taken"); err != nil || r.State != taken {
		t.Errorf("taken: %+v, %v, want %+v", r, err, taken)
	}
	if next := acquire(t, store, "gone", "me"); next.Fence <= gone.Fence {
		t.Errorf("fence %v after %v", next.Fence, gone.Fence)
	}
	forget("gone")
	forget("taken")
	mustPurge(t, store)
	if n := rowsMySQL(t, db); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// A process that acquires many names purges more rows than it inserts. A process that acquires
// few purges some.
func TestMySQLDoesNotGrowForEver(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	for i := range 5 * once.PurgeRows {
		name := strconv.Itoa(i)
		acquire(t, store, name, "me")
		ageMySQL(t, db, name, 3*time.Hour)
		if n := rowsMySQL(t, db); n > once.PurgeRows {
			t.Fatalf("%d rows", n)
		}
	}
	short := 0
	eventually(t, "short processes purge all rows but a few", func() bool {
		short++ // a purge that takes too long ends without an error
		name := fmt.Sprint("short", short)
		acquire(t, once.NewMySQL(db), name, "me")
		ageMySQL(t, db, name, 3*time.Hour)
		return rowsMySQL(t, db) <= 2
	})
	if short > 10 { // a purge deletes as many rows as there are, and more
		t.Errorf("it took %d processes", short)
	}
	held := acquire(t, store, "held", "me")
	ageMySQL(t, db, "held", time.Hour) // expired, and kept
	mustPurge(t, store)
	if r, err := store.Get(t.Context(), "held"); err != nil || r.State.Fence != held.Fence {
		t.Errorf("held: %+v, %v", r, err)
	}
}

// While an insert has read the floor and not added its row, another process inserts the
// same name, uses it often, forgets it, and purges it: that has to wait for the insert.
func TestMySQLAnInsertLocksTheFloor(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	acquire(t, store, "x", "so that there is a floor")
	open := gateMySQL(t, db, "NEW.owner = 'slow'") // between the reading and the adding
	var slow once.Reply
	var inserting errgroup.Group
	inserting.Go(func() (err error) {
		slow, err = store.Apply(t.Context(), "a", once.Operation{Action: once.Acquire, Owner: "slow", Terms: anyTerms})
		return err
	})
	eventually(t, "the insert is at the gate", func() bool { return atGate(t, db) })
	var highest once.Fence
	for i := range 5 {
		highest = acquire(t, store, "a", strconv.Itoa(i)).Fence
		ageMySQL(t, db, "a", time.Hour)
	}
	ageMySQL(t, db, "a", time.Hour)
	var purged atomic.Bool
	var purging errgroup.Group
	purging.Go(func() error {
		defer purged.Store(true)
		return store.Purge(t.Context())
	})
	eventually(t, "the purge waits for the floor", func() bool { return purged.Load() || waitsForRow(t, db) })
	open()
	if err := errors.Join(inserting.Wait(), purging.Wait()); err != nil {
		t.Fatal(err)
	}
	if slow.Outcome != once.OK || slow.State.Fence <= highest {
		t.Errorf("the slow one: %+v, after fence %v", slow, highest)
	}
}

// While a purge is about to raise the floor, the rows are still there.
func TestMySQLAPurgeRaisesTheFloorFirst(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	acquire(t, store, "a", "before")
	ageMySQL(t, db, "a", 2*time.Hour)
	execMySQL(t, db, "UPDATE once_keys SET fence = fence + 3600000 WHERE name = 'a'") // the clock was set back by an hour
	var highest once.Fence
	if err := db.QueryRowContext(t.Context(), "SELECT fence FROM once_keys WHERE name = 'a'").Scan(&highest); err != nil {
		t.Fatal(err)
	}
	open := gateMySQL(t, db, "NEW.name = ' floor'")
	var purging errgroup.Group
	purging.Go(func() error { return store.Purge(t.Context()) })
	eventually(t, "the purge is at the gate", func() bool { return atGate(t, db) })
	held := acquire(t, store, "a", "me")
	open()
	if err := purging.Wait(); err != nil {
		t.Fatal(err)
	}
	if r, err := store.Get(t.Context(), "a"); err != nil || held.Fence <= highest || r.State != held {
		t.Errorf("acquired with fence %v after %v, and then %+v, %v", held.Fence, highest, r, err)
	}
}

// gateMySQL holds up the insert of a row that meets a condition, just before the server adds the
// row, until the caller opens the gate.
func gateMySQL(t *testing.T, db *sql.DB, condition string) (open func()) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	var database string // names the lock, as the server has other databases
	if err := conn.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database); err != nil {
		t.Fatal(err)
	}
	exec("CREATE TRIGGER gate BEFORE INSERT ON once_keys FOR EACH ROW IF " + condition +
		" THEN DO GET_LOCK('" + database + "', 60), RELEASE_LOCK('" + database + "'); END IF")
	exec("DO GET_LOCK('" + database + "', 60)")
	return func() {
		t.Helper()
		exec("DO RELEASE_LOCK('" + database + "')")
	}
}

// atGate reports whether a statement waits at the gate of [gateMySQL].
func atGate(t *testing.T, db *sql.DB) bool {
	return underWay(t, db, func(p servertest.Process) bool { return p.State == "User lock" })
}

// waitsForRow reports whether a statement waits for a row of the table that another statement
// has locked.
func waitsForRow(t *testing.T, db *sql.DB) bool {
	t.Helper()
	var database, kind, name, status string
	if err := errors.Join(
		db.QueryRowContext(t.Context(), "SELECT DATABASE()").Scan(&database),
		db.QueryRowContext(t.Context(), "SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status),
	); err != nil {
		t.Fatal(err)
	}
	waits := regexp.MustCompile("TRX HAS BEEN WAITING .* TO BE GRANTED:\nRECORD LOCKS .* of table `" + database + "`\\.`once_keys`")
	return waits.MatchString(status)
}

// The server goes on with an insert after the client has gone. It is released all the same, if
// it is carried out within a second.
func TestMySQLAnAcquisitionThatIsStoppedIsReleased(t *testing.T) {
	t.Parallel()
	store, db := newMySQL(t)
	acquire(t, store, "x", "so that there is a floor")
	for try := range 10 {
		if stopWhileInserting(t, store, db, fmt.Sprint("a", try)) < time.Second {
			return
		}
	}
	t.Error("each of them took longer than a second")
}

// stopWhileInserting stops an acquisition whose insert waits for a lock, then releases the lock,
// and returns how long the stop took. If it took less than a second, the name must be free.
func stopWhileInserting(t *testing.T, store *once.MySQL, db *sql.DB, name string) time.Duration {
	t.Helper()
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(t.Context(), "UPDATE once_keys SET changes = changes + 1 WHERE name = ' floor'"); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := do(ctx, once.New(store, once.Options{}), once.Key{Name: name}, never(t))
	eventually(t, "the insert waits for the floor", func() bool { return inserting(t, db) })
	begin := time.Now()
	stop()
	var r result
	select {
	case r = <-ended: // it gave up
	case <-time.After(300 * time.Millisecond):
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if r.err == nil {
		r = <-ended
	}
	if r.did || !errors.Is(r.err, context.Canceled) {
		t.Errorf("%v, %v", r.did, r.err)
	}
	took := r.at.Sub(begin)
	if took >= time.Second { // the machine was busy
		return took
	}
	eventually(t, "the insert is over", func() bool { return !inserting(t, db) })
	if r, err := store.Get(t.Context(), name); err != nil || r.State.Phase != once.Free || r.State.Attempt != 0 {
		t.Errorf("%+v, %v", r.State, err)
	}
	return took
}

// inserting reports whether a statement inserts a name.
func inserting(t *testing.T, db *sql.DB) bool {
	return underWay(t, db, func(p servertest.Process) bool { return strings.HasPrefix(p.Info, "INSERT INTO once_keys") })
}

// updating reports whether a statement changes a name.
func updating(t *testing.T, db *sql.DB) bool {
	return underWay(t, db, func(p servertest.Process) bool { return strings.HasPrefix(p.Info, "UPDATE once_keys") })
}

// underWay reports whether a connection to the database of db is in a state.
func underWay(t *testing.T, db *sql.DB, is func(servertest.Process) bool) bool {
	t.Helper()
	processes, err := servertest.Processes(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(processes, is)
}

var eventually = servertest.Eventually
