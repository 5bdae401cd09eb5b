package queue_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// insertLent inserts tasks of the queue mail with the keys, in turn.
func insertLent(t *testing.T, db *sql.DB, keys ...uint64) {
	t.Helper()
	for i, key := range keys {
		exec(t, db, "INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'letter', ?, ?)", key, fmt.Sprintf(`{"n":%d}`, i+1))
	}
}

func lend(t *testing.T, q *queue.Queue, n int) []queue.Task {
	t.Helper()
	lent, err := q.Lend(t.Context(), "mail", "test", n, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return lent
}

// giveEnds returns tasks of one lease with the same end.
func giveEnds(t *testing.T, q *queue.Queue, end queue.End, list ...queue.Task) (open int) {
	t.Helper()
	var ends []queue.End
	for _, one := range list {
		end.ID = one.ID
		ends = append(ends, end)
	}
	open, err := q.Return(t.Context(), "mail", list[0].Lease, ends)
	if err != nil {
		t.Fatal(err)
	}
	return open
}

// numbers are the places in which tasks were inserted.
func numbers(list []queue.Task) string {
	var all []string
	for _, one := range list {
		all = append(all, strings.Trim(string(one.Payload), `{}"n: `))
	}
	return strings.Join(all, " ")
}

func expectLent(t *testing.T, list []queue.Task, want string) {
	t.Helper()
	if got := numbers(list); got != want {
		t.Fatalf("lent %q, want %q", got, want)
	}
}

// A key is in one lease at a time; within it, and from one to the next, its tasks come in order. Key 0 is none.
func TestLendInOrderOfKeys(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertLent(t, db, 1, 1, 2, 0, 0, 1)
	first := lend(t, q, 1)
	expectLent(t, first, "1")
	if one := first[0]; one.Kind != "letter" || one.Key != 1 || one.Attempts != 1 || one.Created.IsZero() || !strings.HasPrefix(one.Lease, "test/") || len(one.Lease) < 26 {
		t.Errorf("lent %+v", one)
	}
	second := lend(t, q, 10)
	expectLent(t, second, "3 4 5")
	expectLent(t, lend(t, q, 10), "")
	if open := giveEnds(t, q, queue.End{}, second[0]); open != 2 {
		t.Errorf("%d are open", open)
	}
	if open := giveEnds(t, q, queue.End{}, first...); open != 0 {
		t.Errorf("%d are open", open)
	}
	expectLent(t, lend(t, q, 10), "2 6")
}

// A task that failed holds up no later one of its key, and comes before those that are left when it is due.
func TestAFailedTaskIsOvertaken(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertLent(t, db, 1, 1, 1)
	giveEnds(t, q, queue.End{Err: errors.New("no post"), After: time.Hour}, lend(t, q, 1)...)
	list, err := q.List(t.Context(), queue.Filter{States: []queue.State{queue.Scheduled}}, 10)
	if err != nil || len(list) != 1 || list[0].Attempts != 1 || list[0].LastError != "no post" || time.Until(list[0].RunAt) < 50*time.Minute {
		t.Fatalf("%+v, %v", list, err)
	}
	second := lend(t, q, 1)
	expectLent(t, second, "2")
	exec(t, db, "UPDATE parked_tasks SET due_at = 1")
	if _, err := q.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectLent(t, lend(t, q, 1), "")
	giveEnds(t, q, queue.End{}, second...)
	again := lend(t, q, 10)
	expectLent(t, again, "1 3")
	if again[0].Attempts != 2 {
		t.Errorf("attempt %d", again[0].Attempts)
	}
	giveEnds(t, q, queue.End{Err: queue.Permanent(errors.New("no such street"))}, again[0])
	if dead, err := q.List(t.Context(), queue.Filter{States: []queue.State{queue.Dead}}, 10); err != nil || len(dead) != 1 || dead[0].LastError != "no such street" {
		t.Errorf("%+v, %v", dead, err)
	}
}

// The last attempt is the last one whatever pause is asked for.
func TestAttemptsEnd(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	exec(t, db, "INSERT INTO tasks (queue, type, subject, attempts) VALUES ('mail', 'letter', 0, 24)")
	giveEnds(t, q, queue.End{Err: errors.New("no post"), After: time.Second}, lend(t, q, 1)...)
	if dead, err := q.List(t.Context(), queue.Filter{States: []queue.State{queue.Dead}}, 10); err != nil || len(dead) != 1 {
		t.Errorf("%+v, %v", dead, err)
	}
}

// What is locked by a transaction that is under way, such as one that absorbs, holds up its key and nothing else.
func TestALockedTaskHoldsUpItsKey(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertLent(t, db, 1, 2, 1, 0)
	tx := begin(t, db)
	if _, err := tx.ExecContext(t.Context(), "SELECT id FROM tasks WHERE subject = 1 ORDER BY id LIMIT 1 FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	expectLent(t, lend(t, q, 1), "2") // where the first that it chooses is the locked one
	expectLent(t, lend(t, q, 1), "4")
	expectLent(t, lend(t, q, 1), "")
	expectLent(t, lend(t, q, 4), "")
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	expectLent(t, lend(t, q, 3), "1 3")
}

// lendThrough lends all of the queue, with do before each statement.
func lendThrough(t *testing.T, db *sql.DB, do func(statement string) verdict) (lent []queue.Task, err error) {
	t.Helper()
	through := gated(db)
	defer func() { _ = through.Close() }()
	g := &gate{arrived: make(chan string), pass: make(chan verdict)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		lent, err = queue.NewQueue(through, queue.Options{}).Lend(context.WithValue(t.Context(), gateKey{}, g), "mail", "gated", 10, time.Minute)
	}()
	for {
		select {
		case statement := <-g.arrived:
			g.pass <- do(statement)
		case <-done:
			return lent, err
		}
	}
}

// Between the look at the leases and the choice a lease may run out: its tasks, and what comes after
// them, wait for the next look.
func TestTasksThatComeBackWhileOthersAreLent(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertLent(t, db, 1, 1)
	expectLent(t, lend(t, q, 1), "1")
	exec(t, db, "UPDATE task_leases SET ends_at = 1")
	list, err := lendThrough(t, db, func(statement string) verdict {
		if strings.Contains(statement, "LENGTH(args) >") { // after the look at the leases
			if swept, err := q.Sweep(t.Context()); err != nil || swept.TookOver != 1 {
				t.Errorf("%+v, %v", swept, err)
			}
		}
		return goOn
	})
	if err != nil {
		t.Error(err)
	}
	expectLent(t, list, "")
	expectLent(t, lend(t, q, 10), "1 2")
}

// A claim that is given up before its commit lends nothing; one whose answer from the database is lost gives
// back what it lent, with its attempts.
func TestNothingIsLentToNobody(t *testing.T) {
	t.Parallel()
	for _, end := range []verdict{refuse, lose} {
		db, q := openDB(t)
		insertLent(t, db, 1, 0)
		commits := 0
		list, err := lendThrough(t, db, func(statement string) verdict {
			if statement == "COMMIT" {
				commits++
				if commits == 1 {
					return end
				}
			}
			return goOn
		})
		if !errors.Is(err, errGate) || len(list) > 0 {
			t.Errorf("lent %v, %v", list, err)
		}
		list = lend(t, q, 10)
		expectLent(t, list, "1 2")
		if list[0].Attempts != 1 {
			t.Errorf("%d attempts", list[0].Attempts)
		}
	}
}

// What is of no lease, of another queue's, or of one that ran out, changes nothing.
func TestReturnAndRenewRefuse(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertLent(t, db, 1, 2, 3)
	list := lend(t, q, 2)
	token, done := list[0].Lease, []queue.End{{ID: list[0].ID}}
	until, err := q.Renew(t.Context(), "mail", token, time.Hour)
	if left := time.Until(until); err != nil || left < 50*time.Minute || left > time.Hour+time.Minute {
		t.Fatalf("until %v, %v", until, err)
	}
	refused := func(why, name, token string, ends []queue.End) {
		t.Helper()
		_, err := q.Return(t.Context(), name, token, ends)
		var notLent *queue.NotLentError
		if !errors.Is(err, queue.ErrLeaseLost) && !errors.As(err, &notLent) {
			t.Errorf("return: %s: %v", why, err)
		}
		if notLent != nil {
			return
		}
		if _, err := q.Renew(t.Context(), name, token, time.Minute); !errors.Is(err, queue.ErrLeaseLost) {
			t.Errorf("renew: %s: %v", why, err)
		}
	}
	refused("another queue's", "male", token, done)
	refused("no lease", "mail", token+"x", done)
	refused("one that is not lent", "mail", token, append(done, queue.End{ID: list[1].ID + 1}))
	if records, err := q.List(t.Context(), queue.Filter{States: []queue.State{queue.Running}}, 10); err != nil || len(records) != 2 {
		t.Fatalf("%+v, %v", records, err)
	}
	if open := giveEnds(t, q, queue.End{}, list[0]); open != 1 {
		t.Errorf("%d are open", open)
	}
	// It ended: another end comes too late.
	if open := giveEnds(t, q, queue.End{Err: errors.New("x")}, list[0]); open != 1 {
		t.Errorf("%d are open", open)
	}
	exec(t, db, "UPDATE task_leases SET ends_at = 1")
	refused("one that ran out", "mail", token, []queue.End{{ID: list[1].ID}})
	if swept, err := q.Sweep(t.Context()); err != nil || swept.TookOver != 1 {
		t.Errorf("%+v, %v", swept, err)
	}
	refused("one that is gone", "mail", token, []queue.End{{ID: list[1].ID}})
	expectLent(t, lend(t, q, 10), "2 3")
}

// Paused queues lend nothing; what expired is dropped; what is for later is parked; what has too many arguments is dead with
// the reason. None of these hides what is behind it.
func TestWhatIsNotLent(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertMany(t, db, 3000, "tasks", "queue, type, subject, expires_at", "'mail', 'old', i, 1")
	exec(t, db, "INSERT INTO tasks (queue, type, subject, due_at) VALUES ('mail', 'later', 1, 99999999999999)")
	exec(t, db, "INSERT INTO tasks (queue, type, subject, args) VALUES ('mail', 'long', 1, JSON_OBJECT('text', REPEAT('x', 33000)))")
	insertLent(t, db, 1)
	if _, err := q.Pause(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	expectLent(t, lend(t, q, 10), "")
	if _, err := q.Resume(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	expectLent(t, lend(t, q, 10), "1")
	records, err := q.List(t.Context(), queue.Filter{Queues: []string{"mail"}}, 10)
	if err != nil || len(records) != 3 {
		t.Fatalf("%+v, %v", records, err)
	}
	for _, r := range records {
		switch r.Kind {
		case "later":
			if r.State != queue.Scheduled {
				t.Errorf("%+v", r)
			}
		case "long":
			if r.State != queue.Dead || !strings.Contains(r.LastError, "33012 bytes of args: at most 32768 are read") {
				t.Errorf("%+v", r)
			}
		}
	}
	if !slices.ContainsFunc(records, func(r queue.Record) bool { return r.Kind == "letter" && r.State == queue.Running }) {
		t.Errorf("%+v", records)
	}
}

// A task whose worker dies again and again is lent alone, and then buried.
func TestALentPoisonTaskEndsDead(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertLent(t, db, 0, 0)
	exec(t, db, "UPDATE tasks SET max_attempts = 4 WHERE subject = 0 ORDER BY id LIMIT 1")
	var sizes []int
	for len(sizes) < 10 {
		list := lend(t, q, 10)
		if len(list) == 0 {
			break
		}
		sizes = append(sizes, len(list))
		if numbers(list) == "2" {
			giveEnds(t, q, queue.End{}, list...)
			continue
		}
		exec(t, db, "UPDATE task_leases SET ends_at = 1")
		if _, err := q.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int{2, 2, 1, 1, 1}; !slices.Equal(sizes, want) {
		t.Errorf("claims of %v tasks, want %v", sizes, want)
	}
	if dead, err := q.List(t.Context(), queue.Filter{}, 10); err != nil || len(dead) != 1 || dead[0].State != queue.Dead || !strings.Contains(dead[0].LastError, "ran out") {
		t.Errorf("%+v, %v", dead, err)
	}
}

// However workers of two processes mix, and leases run out: no key is in two leases at once, and where no task fails
// the tasks of a key are done in their order.
func TestLendFromTwoProcesses(t *testing.T) {
	t.Parallel()
	const keys, each = 12, 40
	dsn := servertest.MySQLDSN(t)
	var queues []*queue.Queue
	var dbs []*sql.DB
	for range 2 {
		db, err := mysql.Open(dsn)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		dbs, queues = append(dbs, db), append(queues, queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}))
	}
	random := rand.New(rand.NewPCG(1, 2))
	var order []uint64
	for range each {
		for key := range uint64(keys) {
			order = append(order, key+1)
		}
	}
	random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
	insertLent(t, dbs[0], order...)

	var mu sync.Mutex
	holders, done, broken := map[uint64]string{}, map[uint64][]uint64{}, 0
	ended := func() (n int) {
		for list := range maps.Values(done) {
			n += len(list)
		}
		return n
	}
	var workers sync.WaitGroup
	for i := range 6 {
		q, db := queues[i%2], dbs[i%2]
		random := rand.New(rand.NewPCG(7, uint64(i)))
		workers.Go(func() {
			for t.Context().Err() == nil {
				lent, err := q.Lend(t.Context(), "mail", "w", 1+random.IntN(6), time.Minute)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				for _, one := range lent {
					if other := holders[one.Key]; other != "" && other != one.Lease {
						broken++
						t.Errorf("key %d is in two leases", one.Key)
					}
					holders[one.Key] = one.Lease
				}
				over := ended() == len(order) || broken > 0
				mu.Unlock()
				if over {
					return
				}
				if len(lent) == 0 {
					continue
				}
				finish := func(list, rest []queue.Task) {
					mu.Lock() // with what it is about, so that the lists are in the order of the ends
					defer mu.Unlock()
					var ends []queue.End
					for _, one := range list {
						ends = append(ends, queue.End{ID: one.ID})
						done[one.Key] = append(done[one.Key], one.ID)
						if !slices.ContainsFunc(rest, func(r queue.Task) bool { return r.Key == one.Key }) {
							delete(holders, one.Key)
						}
					}
					if _, err := q.Return(t.Context(), "mail", lent[0].Lease, ends); err != nil {
						t.Error(err)
					}
				}
				if part := random.IntN(len(lent)); part > 0 {
					finish(lent[:part], lent[part:])
					lent = lent[part:]
				}
				if random.IntN(10) > 0 {
					finish(lent, nil)
					continue
				}
				mu.Lock() // the worker dies
				for _, one := range lent {
					delete(holders, one.Key)
				}
				exec(t, db, "UPDATE task_leases SET ends_at = 1 WHERE token = ?", lent[0].Lease)
				mu.Unlock()
				if _, err := q.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	workers.Wait()
	for key, list := range done {
		if len(list) != each || !slices.IsSorted(list) {
			t.Errorf("of key %d, %d were done, as %v", key, len(list), list)
		}
	}
	if len(done) != keys {
		t.Errorf("%d keys", len(done))
	}
}

// A process that was stopped in the middle of a claim holds up the claims of its queue, for no longer than their callers want,
// and no others.
func TestAStoppedClaimHoldsUpItsQueueAlone(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	insertLent(t, db, 0)
	exec(t, db, "INSERT INTO tasks (queue, type, subject) VALUES ('other', 'letter', 0)")
	expectLent(t, lend(t, q, 1), "1") // makes the turn row
	insertLent(t, db, 0)
	tx := begin(t, db)
	if _, err := tx.ExecContext(t.Context(), "SELECT key_hash FROM task_keys FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if list, err := q.Lend(ctx, "mail", "test", 1, time.Minute); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("lent %v, %v", list, err)
	}
	if list, err := q.Lend(t.Context(), "other", "test", 1, time.Minute); err != nil || len(list) != 1 {
		t.Errorf("of another queue: %v, %v", list, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	expectLent(t, lend(t, q, 1), "1")
}
