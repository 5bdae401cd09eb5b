package queue_test

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// workVariable makes this program a process that works on keys, on the database that it names.
const workVariable = "ACTIVITYD_QUEUE_WORKER"

// workOnKeys is the process. The first word says how it works: "pool"; "careless", a pool that ignores keys; or "http", a worker that
// does not know the kind. Jobs write that they begin, if the lease still holds, and that they end.
func workOnKeys(how string) error {
	how, dsn, _ := strings.Cut(how, " ")
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	db, err := queue.OpenDB(dsn)
	if err != nil {
		return err
	}
	work := func(ctx context.Context, t queue.Task, _ struct{}) error {
		n, err := mysql.Affected(db.ExecContext(ctx, "INSERT INTO spans (subject, task, what) SELECT subject, id, 'begin' FROM tasks WHERE id = ? AND lease = ?", t.ID, t.Lease))
		if err != nil || n == 0 { // the process stood still for longer than the lease
			return cmp.Or(err, queue.ErrLeaseLost)
		}
		_ = retry.Sleep(ctx, rand.N(4*time.Millisecond))
		_, err = db.ExecContext(ctx, "INSERT INTO spans (subject, task, what) VALUES (?, ?, 'end')", t.Key, t.ID)
		return err
	}
	if how != "http" {
		q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "job", Ordered: how == "pool"}}, Owner: how})
		return queue.NewPool(q, map[string]queue.Handler{"job": queue.Handle(work)}, queue.PoolOptions{
			Log: slog.New(slog.DiscardHandler), Lease: 2 * time.Second, Poll: 20 * time.Millisecond, Sweep: 50 * time.Millisecond,
			Workers: []queue.Workers{{Count: 4, Batch: 2}},
		}).Run(ctx)
	}
	q := queue.NewQueue(db, queue.Options{})
	for ctx.Err() == nil {
		list, err := q.ClaimAs(ctx, "http", queue.DefaultQueue, 3, 2*time.Second)
		if err != nil {
			return err
		}
		for _, t := range list {
			err := work(ctx, t, struct{}{})
			if err == nil {
				_, err = q.FinishLease(ctx, queue.DefaultQueue, t.Lease, []queue.Result{{Task: t}})
			}
			if err != nil && !errors.Is(err, queue.ErrLeaseLost) {
				return err
			}
		}
		if len(list) == 0 {
			_, _ = q.Sweep(ctx)
			_ = retry.Sleep(ctx, 10*time.Millisecond)
		}
	}
	return nil
}

// TestConflictingJobsNeverMeet: four processes, pools and workers by HTTP, work on eight keys, and are killed. Of a key no
// two jobs run at a time, and they begin in the order of their ids. ACTIVITYD_JOBS says how many.
func TestConflictingJobsNeverMeet(t *testing.T) {
	t.Parallel()
	jobs, err := strconv.Atoi(cmp.Or(os.Getenv("ACTIVITYD_JOBS"), "400"))
	if err != nil {
		t.Fatal(err)
	}
	overlaps, early, runs := runOnKeys(t, jobs, "pool", "http", "pool", "http")
	t.Logf("%d runs", runs)
	if overlaps+early > 0 || runs < jobs {
		t.Errorf("%d jobs began while another of their key ran, %d before an earlier one; %d runs of %d jobs", overlaps, early, runs, jobs)
	}
}

// Workers that ignore keys are noticed.
func TestConflictingJobsWouldMeet(t *testing.T) {
	t.Parallel()
	if overlaps, early, runs := runOnKeys(t, 200, "careless", "careless"); overlaps == 0 || early == 0 {
		t.Errorf("workers that ignore keys: %d overlaps, %d before an earlier one, in %d runs", overlaps, early, runs)
	}
}

// runOnKeys runs jobs in processes, and returns their breaches and runs.
func runOnKeys(t *testing.T, jobs int, processes ...string) (overlaps, early, runs int) {
	t.Helper()
	const keys = 8
	dsn := servertest.MySQLDSN(t)
	db := open(t, dsn)
	exec(t, db, "CREATE TABLE spans (n BIGINT AUTO_INCREMENT PRIMARY KEY, subject BIGINT NOT NULL, task BIGINT NOT NULL, what VARCHAR(5) NOT NULL)")
	fleet := make([]*osexec.Cmd, len(processes))
	for i, how := range processes {
		fleet[i] = startProcess(t, workVariable, how+" "+dsn)
	}
	q := queue.NewQueue(db, queue.Options{})
	for n := 0; n < jobs; {
		var batch []queue.New
		for range rand.IntN(20) + 1 {
			batch = append(batch, queue.New{Kind: "job", Key: 1 + rand.Uint64N(keys)})
		}
		enqueue(t, q, batch...)
		n += len(batch)
		if rand.IntN(8) == 0 {
			i := rand.IntN(len(fleet))
			_ = fleet[i].Process.Kill()
			_ = fleet[i].Wait()
			fleet[i] = startProcess(t, workVariable, processes[i]+" "+dsn)
		}
		_ = retry.Sleep(t.Context(), rand.N(30*time.Millisecond))
	}
	servertest.EventuallyWithin(t, 2*time.Minute, "all jobs are done", func() bool {
		n, err := queuetest.Count(t.Context(), q)
		return err == nil && n == queuetest.Counts{}
	})
	for _, p := range fleet {
		_ = p.Process.Kill()
	}
	return judgeSpans(t, db)
}

// judgeSpans counts the jobs that began while another job of their key ran, and the jobs that began after a later job of the key. A
// process that was killed ends nothing: its job ran until it begins again.
func judgeSpans(t *testing.T, db *sql.DB) (overlaps, early, runs int) {
	t.Helper()
	type span struct {
		subject, task uint64
		what          string
	}
	list, err := mysql.Select(t.Context(), db, func(rows *sql.Rows) (s span, err error) {
		err = rows.Scan(&s.subject, &s.task, &s.what)
		return s, err
	}, "SELECT subject, task, what FROM spans ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	open, last := make(map[uint64]uint64), make(map[uint64]uint64)
	for _, s := range list {
		if s.what == "end" {
			delete(open, s.subject)
			continue
		}
		runs++
		if other := open[s.subject]; other != 0 && other != s.task {
			overlaps++
		}
		if s.task < last[s.subject] {
			early++
		}
		open[s.subject], last[s.subject] = s.task, max(last[s.subject], s.task)
	}
	return overlaps, early, runs
}

// A key with a hundred thousand tasks does not slow the queue: claims read few rows, once the tasks are behind the first.
func TestAHotKeySlowsNoOther(t *testing.T) {
	t.Parallel()
	dsn := servertest.MySQLDSN(t)
	db, one := open(t, dsn), open(t, dsn, mysql.WithMaxOpen(1))
	q, counted := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), queue.NewQueue(one, queue.Options{Kinds: tasks.Kinds()})
	const hot = 100_000
	exec(t, db, "INSERT INTO tasks (type, subject) WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"+
		" SELECT 'add_contact', 7 FROM n a JOIN n b ON b.i <= ?", hot/1000)
	first := claim(t, q, 1)
	if len(first) != 1 {
		t.Fatalf("claimed %+v", first)
	}
	enqueue(t, q, tasks.NewAddContact(8, 1), tasks.NewUpload(9))
	if list := claim(t, q, 10); len(list) != 2 {
		t.Fatalf("claimed %+v of others", list)
	}
	if n := value(t, db, "SELECT COUNT(*) FROM tasks WHERE state = 'behind'"); n != hot-1 {
		t.Fatalf("%d tasks are behind", n)
	}
	for round := range 5 {
		enqueue(t, q, tasks.NewUpload(id(100+round)))
		before := rowsRead(t, one)
		list := claim(t, counted, 1)
		if len(list) != 1 || list[0].Kind != tasks.Upload {
			t.Fatalf("claimed %+v", list)
		}
		finish(t, counted, nil, list...)
		finish(t, counted, nil, first...) // the next of the hot key
		first = claim(t, counted, 1)
		if len(first) != 1 || first[0].Key != 7 {
			t.Fatalf("claimed %+v, want the next of the hot key", first)
		}
		if n := rowsRead(t, one) - before; n > 60 {
			t.Errorf("round %d read %d rows", round, n)
		}
	}
}

// rowsRead is how many rows and entries the session of a pool's only connection has read.
func rowsRead(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	list, err := mysql.Select(t.Context(), db, func(rows *sql.Rows) (n int, err error) {
		var name string
		err = rows.Scan(&name, &n)
		return n, err
	}, "SHOW SESSION STATUS LIKE 'Handler_read%'")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range list {
		n += one
	}
	return n
}

// The task that holds a key may vanish in any way: the next task of the key runs.
func TestAKeyIsNotHeldForEver(t *testing.T) {
	t.Parallel()
	for name, vanish := range map[string]func(t *testing.T, db *sql.DB, q *queue.Queue, holder queue.Task){
		"done": func(t *testing.T, _ *sql.DB, q *queue.Queue, holder queue.Task) { finish(t, q, nil, holder) },
		"failed": func(t *testing.T, _ *sql.DB, q *queue.Queue, holder queue.Task) {
			finish(t, q, fmt.Errorf("no"), holder)
		},
		"dead": func(t *testing.T, _ *sql.DB, q *queue.Queue, holder queue.Task) {
			finish(t, q, queue.Permanent(fmt.Errorf("no")), holder)
		},
		"lease lost, dead": func(t *testing.T, db *sql.DB, _ *queue.Queue, holder queue.Task) {
			exec(t, db, "UPDATE tasks SET run_at = 1, attempts = 99 WHERE id = ?", holder.ID)
		},
		"deleted by hand": func(t *testing.T, db *sql.DB, _ *queue.Queue, holder queue.Task) {
			exec(t, db, "DELETE FROM tasks WHERE id = ?", holder.ID)
		},
		"scheduled by hand": func(t *testing.T, db *sql.DB, _ *queue.Queue, holder queue.Task) {
			exec(t, db, "UPDATE tasks SET state = 'scheduled', run_at = 99999999999999 WHERE id = ?", holder.ID)
		},
		"next is discarded": func(t *testing.T, _ *sql.DB, q *queue.Queue, holder queue.Task) {
			finish(t, q, nil, holder)
			if n, err := q.Cancel(t.Context(), queue.Filter{IDs: []uint64{holder.ID + 1}}); err != nil || n != 1 {
				t.Errorf("cancelled %d, %v", n, err)
			}
		},
		"next expires": func(t *testing.T, db *sql.DB, q *queue.Queue, holder queue.Task) {
			exec(t, db, "UPDATE tasks SET expires_at = 1 WHERE id = ?", holder.ID+1)
			finish(t, q, nil, holder)
		},
		"next is locked": func(t *testing.T, db *sql.DB, q *queue.Queue, holder queue.Task) {
			tx := begin(t, db)
			if _, err := tx.ExecContext(t.Context(), "SELECT id FROM tasks WHERE id = ? FOR UPDATE", holder.ID+1); err != nil {
				t.Fatal(err)
			}
			finish(t, q, nil, holder)
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := openDB(t)
			enqueue(t, q, tasks.NewAddContact(7, 1))
			enqueue(t, q, tasks.NewAddContact(7, 2))
			enqueue(t, q, tasks.NewAddContact(7, 3))
			holder := claim(t, q, 10)
			if len(holder) != 1 {
				t.Fatalf("claimed %+v", holder)
			}
			if list := claim(t, q, 10); len(list) != 0 {
				t.Fatalf("claimed %+v beside another of the key", list)
			}
			vanish(t, db, q, holder[0])
			q.SweepAll()
			list := claim(t, q, 10)
			if withoutSweep := slices.Contains([]string{"done", "failed", "dead", "next expires"}, name); withoutSweep != (len(list) > 0) {
				t.Errorf("claimed %+v before a sweep", list)
			}
			eventually(t, "the next of the key is claimed", func() bool {
				if len(list) == 0 {
					sweep(t, q)
					list = claim(t, q, 10)
				}
				return len(list) > 0
			})
			if len(list) != 1 || list[0].ID <= holder[0].ID {
				t.Errorf("claimed %+v after %d", list, holder[0].ID)
			}
		})
	}
}

// Tasks that a claim puts aside pass their key on at once.
func TestAKeyOutlivesWhatIsPutAside(t *testing.T) {
	t.Parallel()
	for name, aside := range map[string]string{
		"expired":  "expires_at = 1",
		"too long": "args = JSON_OBJECT('text', REPEAT('x', 40000))",
		"later":    "run_at = UNIX_TIMESTAMP() * 1000 + 3600000", // the clock was set back
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, q := openDB(t)
			enqueue(t, q, slices.Repeat([]queue.New{{Kind: "ordered", Key: 7}}, 30)...)
			holder := claim(t, q, 1)
			if list := claim(t, q, 1); len(list) != 0 {
				t.Fatalf("claimed %+v beside another of the key", list)
			}
			last := value(t, db, "SELECT MAX(id) FROM tasks")
			exec(t, db, "UPDATE tasks SET "+aside+" WHERE state = 'behind' AND id < ?", last)
			finish(t, q, nil, holder...)
			if list := claim(t, q, 1); len(list) != 1 || list[0].ID != uint64(last) {
				t.Errorf("claimed %+v, want the last task %d", list, last)
			}
		})
	}
}

// After the clock was set back, tasks behind a key are scheduled, and come when they are due.
func TestWhatIsBehindIsToComeLater(t *testing.T) {
	t.Parallel()
	db, q := openDB(t)
	enqueue(t, q, slices.Repeat([]queue.New{{Kind: "ordered", Key: 7}}, 2)...)
	holder := claim(t, q, 1)
	claim(t, q, 1)
	exec(t, db, "UPDATE tasks SET run_at = UNIX_TIMESTAMP() * 1000 + 3600000 WHERE state = 'behind'")
	finish(t, q, nil, holder...)
	if list := claim(t, q, 1); len(list) != 0 {
		t.Errorf("claimed %+v before its time", list)
	}
	counts(t, q, queuetest.Counts{Scheduled: 1})
	exec(t, db, "UPDATE tasks SET run_at = 1")
	sweep(t, q)
	if list := claim(t, q, 1); len(list) != 1 {
		t.Errorf("claimed %+v when it is due", list)
	}
}

// A task of an unordered kind never holds a key, though its subject is the same and it comes first.
func TestAnUnorderedTaskHoldsNoKey(t *testing.T) {
	t.Parallel()
	db, _ := openDB(t)
	q := queue.NewQueue(db, queue.Options{Kinds: queue.Kinds{{Name: "ordered", Ordered: true}, {Name: "free"}}})
	claimBoth := func(when string) (ordered, free queue.Task) {
		t.Helper()
		list := claim(t, q, 10)
		if len(list) != 2 || list[0].Kind != "free" || list[1].Kind != "ordered" {
			t.Fatalf("%s: claimed %+v, want a free one and an ordered one", when, list)
		}
		return list[1], list[0]
	}
	urgent := queue.New{Kind: "free", Key: 7, Priority: queue.Urgent}
	enqueue(t, q, queue.New{Kind: "ordered", Key: 7}, urgent)
	ordered, free := claimBoth("no task holds the key")
	finish(t, q, nil, free)
	enqueue(t, q, queue.New{Kind: "ordered", Key: 7})
	if list := claim(t, q, 10); len(list) != 0 {
		t.Fatalf("claimed %+v beside another of the key", list)
	}
	enqueue(t, q, urgent)
	finish(t, q, nil, ordered)
	claimBoth("the key is passed on")
}
