package queue_test

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// killedVariable makes this program a process with workers, on the database that it names.
const killedVariable = "ACTIVITYD_QUEUE_PROCESS"

// The kinds of the processes that are killed. A note is about one change; it is followed by an echo. A sum is
// about all changes of a subject so far, so that a sum may stand for more.
var killedKinds = queue.Kinds{
	{Name: "note", Queue: queue.DefaultQueue, Ordered: true, DedupeKey: func(_ uint64, payload json.RawMessage) (string, error) { return "note:" + string(payload), nil }},
	{Name: "sum", Queue: queue.DefaultQueue, Ordered: true, DedupeKey: func(key uint64, _ json.RawMessage) (string, error) { return sumKey(key), nil }},
	{Name: "echo", Queue: queue.DefaultQueue, DedupeKey: func(_ uint64, payload json.RawMessage) (string, error) { return "echo:" + string(payload), nil }},
}

func sumKey(subject uint64) string { return "sum:" + strconv.FormatUint(subject, 10) }

// killedLease is shorter than a stop may last.
const killedLease = 400 * time.Millisecond

// beKilled is the process: it works until it is killed.
func beKilled(dsn string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	db, err := mysql.Open(dsn)
	if err != nil {
		return err
	}
	notifier := &notify.Notifier{}
	q, w := queue.NewQueue(db, queue.Options{Kinds: killedKinds, Notifier: notifier, Owner: fmt.Sprint(os.Getpid())}), &witness{db}
	handlers := map[string]queue.Handler{"note": w, "sum": w, "echo": w}
	return queue.NewPool(q, handlers, queue.PoolOptions{
		Log: slog.New(slog.DiscardHandler), Lease: killedLease, Poll: 50 * time.Millisecond, Sweep: 50 * time.Millisecond,
		Workers: []queue.Workers{{Queue: queue.DefaultQueue, Count: 3, Batch: 5}},
	}).Run(ctx)
}

// witness is the handler of a process. It writes down its work, and breaches of promises.
type witness struct{ db *sql.DB }

func (w *witness) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	outcomes := make([]queue.Outcome, len(batch))
	for i, t := range batch {
		var others int
		err := w.db.QueryRowContext(ctx, "SELECT COUNT(*) FROM tasks ours JOIN tasks o USING (subject, state)"+
			" WHERE ours.id = ? AND ours.lease = ? AND state = 'running' AND o.type <> 'echo' AND o.id <> ours.id", t.ID, t.Lease).Scan(&others)
		if err == nil && others > 0 && t.Kind != "echo" {
			err = w.write(ctx, "INSERT INTO objections (text) VALUES (?)", fmt.Sprintf("task %d about %d is leased beside %d others", t.ID, t.Key, others))
		}
		if err == nil {
			outcomes[i].Next, err = w.work(ctx, t)
		}
		outcomes[i].Err = err
	}
	return outcomes
}

func (w *witness) work(ctx context.Context, t queue.Task) (next []queue.New, err error) {
	switch t.Kind {
	case "note":
		if err := w.write(ctx, "INSERT IGNORE INTO noted (n, task) VALUES (?, ?)", string(t.Payload), t.ID); err != nil {
			return nil, err
		}
		return []queue.New{{Kind: "echo", Key: t.Key, Payload: t.Payload}}, nil
	case "echo":
		return nil, w.write(ctx, "INSERT IGNORE INTO echoed (n, task) VALUES (?, ?)", string(t.Payload), t.ID)
	}
	var version int
	if err := w.db.QueryRowContext(ctx, "SELECT version FROM sums WHERE subject = ?", t.Key).Scan(&version); err != nil {
		return nil, err
	}
	_ = retry.Sleep(ctx, rand.N(20*time.Millisecond)) // a change from now on needs another task
	return nil, w.write(ctx, "UPDATE sums SET seen = GREATEST(seen, ?) WHERE subject = ?", version, t.Key)
}

func (w *witness) write(ctx context.Context, statement string, args ...any) error {
	_, err := w.db.ExecContext(ctx, statement, args...)
	return err
}

// TestKilledProcessesLoseNothing: processes with workers are killed, or stopped for longer than their leases and then
// let go on or killed, while producers commit late, and roll back. Every task that was committed is done, and none that
// was not; each is finished once, as its follow-up shows; no work that began before a change stands for it; of each ordering key
// tasks are leased one at a time; and no key stays held.
//
// ACTIVITYD_KILLS=1000 makes it go on for so many kills:
//
//	make chaos-queue KILLS=1000 SEED=1234
func TestKilledProcessesLoseNothing(t *testing.T) {
	t.Parallel()
	kills, err := strconv.Atoi(cmp.Or(os.Getenv("ACTIVITYD_KILLS"), "15"))
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("ACTIVITYD_SEED"), strconv.FormatUint(rand.Uint64(), 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d kills, ACTIVITYD_SEED=%d", kills, seed)
	dsn := servertest.MySQLDSN(t)
	db := open(t, dsn)
	const subjects = 8
	for _, table := range []string{
		"changes (n BIGINT PRIMARY KEY)", "noted (n BIGINT, task BIGINT, PRIMARY KEY (n, task))", "echoed (n BIGINT, task BIGINT, PRIMARY KEY (n, task))",
		"sums (subject BIGINT PRIMARY KEY, version BIGINT NOT NULL DEFAULT 0, seen BIGINT NOT NULL DEFAULT 0)", "objections (text TEXT)",
	} {
		exec(t, db, "CREATE TABLE "+table)
	}
	for subject := range subjects {
		exec(t, db, "INSERT INTO sums (subject) VALUES (?)", subject+1)
	}
	q := queue.NewQueue(db, queue.Options{Kinds: killedKinds})
	ctx, stop := context.WithCancel(t.Context())
	var producers sync.WaitGroup
	for p := range 4 {
		choices := rand.New(rand.NewPCG(seed, uint64(p)))
		producers.Go(func() {
			for n := uint64(p); ctx.Err() == nil; n += 4 {
				for waiting := 500; waiting == 500; { // on a busy machine they are quicker than workers that are killed
					waiting, _ = q.CountWaiting(ctx, 500)
					_ = retry.Sleep(ctx, time.Duration(waiting/500)*50*time.Millisecond)
				}
				if err := produce(ctx, db, q, choices, n, 1+choices.Uint64N(subjects)); err != nil && ctx.Err() == nil && !mysql.IsRetryable(err) {
					t.Errorf("change %d: %v", n, err)
					return
				}
			}
		})
	}
	fleet := make([]*osexec.Cmd, 3)
	for i := range fleet {
		fleet[i] = startProcess(t, killedVariable, dsn)
	}
	disturb(t, rand.New(rand.NewPCG(seed, 100)), dsn, fleet, kills)
	stop()
	producers.Wait()
	servertest.EventuallyWithin(t, time.Minute, "all tasks are done, and no key is held", func() bool {
		c, err := queuetest.Count(t.Context(), q)
		return err == nil && c.Open() == 0 && value(t, db, "SELECT COUNT(*) FROM held_keys") == 0
	})
	for _, p := range fleet {
		_ = p.Process.Kill()
		_ = p.Wait()
	}
	none := func(what, query string) {
		var n int
		if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+query).Scan(&n); err != nil || n > 0 {
			t.Errorf("%d %s, %v", n, what, err)
		}
	}
	none("changes of which no task was done", "changes WHERE n NOT IN (SELECT n FROM noted)")
	none("tasks were done of changes that were rolled back", "noted WHERE n NOT IN (SELECT n FROM changes)")
	none("changes whose task was not finished once", "changes LEFT JOIN (SELECT n, COUNT(*) AS times FROM echoed GROUP BY n) AS e USING (n) WHERE COALESCE(times, 0) <> 1")
	none("sums do not know the last change", "sums WHERE seen <> version")
	none("tasks were leased beside others of their key", "objections")
	none("tasks are left", "tasks")
	var changes int
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM changes").Scan(&changes); err != nil || changes == 0 {
		t.Errorf("%d changes, %v", changes, err)
	}
	t.Logf("%d changes", changes)
}

// produce makes a change of a subject with its tasks, and commits it late, or rolls it back.
func produce(ctx context.Context, db *sql.DB, q *queue.Queue, choices *rand.Rand, n, subject uint64) error {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if choices.IntN(3) == 0 {
		if _, err := tx.ExecContext(ctx, "UPDATE sums SET version = version + 1 WHERE subject = ?", subject); err != nil {
			return err
		}
		if _, err := q.EnqueueTx(ctx, tx, queue.New{Kind: "sum", Key: subject, DedupeKey: sumKey(subject)}); err != nil {
			return err
		}
	} else {
		if _, err := tx.ExecContext(ctx, "INSERT INTO changes (n) VALUES (?)", n); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO tasks (type, subject, args) VALUES ('note', ?, ?)", subject, strconv.FormatUint(n, 10)); err != nil {
			return err
		}
	}
	if choices.IntN(4) == 0 {
		_ = retry.Sleep(ctx, time.Duration(choices.Int64N(int64(300*time.Millisecond))))
	}
	if choices.IntN(5) == 0 {
		return tx.Rollback()
	}
	return tx.Commit()
}

// disturb kills processes, so many times, and starts new ones in their place. Half of them it stops for a while before
// that, and as many it stops without killing them.
func disturb(t *testing.T, choices *rand.Rand, dsn string, fleet []*osexec.Cmd, kills int) {
	t.Helper()
	for kills > 0 {
		_ = retry.Sleep(t.Context(), time.Duration(choices.Int64N(int64(200*time.Millisecond))))
		i := choices.IntN(len(fleet))
		p := fleet[i].Process
		what := choices.IntN(3)
		if what > 0 {
			_ = p.Signal(syscall.SIGSTOP)
			_ = retry.Sleep(t.Context(), killedLease/2+time.Duration(choices.Int64N(int64(killedLease))))
		}
		if what == 2 {
			_ = p.Signal(syscall.SIGCONT)
			continue
		}
		_ = p.Kill()
		exited := new(osexec.ExitError)
		if err := fleet[i].Wait(); !errors.As(err, &exited) || exited.ExitCode() != -1 {
			t.Fatalf("the process is to die of a signal: %v", err)
		}
		fleet[i] = startProcess(t, killedVariable, dsn)
		kills--
	}
}

// startProcess starts a process whose work a variable names.
func startProcess(t *testing.T, variable, dsn string) *osexec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), variable+"="+dsn)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}
