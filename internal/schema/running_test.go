package schema_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestProcessesWorkWhileTheirTableIsMigrated: a site inserts tasks, and processes of
// the release before and after do them, while a large table gets a column, an index,
// and loses the index again. Each task is done, which its set in Redis shows.
func TestProcessesWorkWhileTheirTableIsMigrated(t *testing.T) {
	t.Parallel()
	const followed, least = 1_000_000, 300
	dsn := servertest.MySQLDSN(t)
	db, server := open(t, dsn), servertest.Redis(t)
	run(t, db, "CREATE TABLE numbers (n INT PRIMARY KEY)",
		"INSERT INTO numbers WITH RECURSIVE numbers AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM numbers WHERE n < 300) SELECT n FROM numbers",
		"INSERT INTO tasks (type, subject, due_at) SELECT 'upload', a.n, 99999999999999 FROM numbers a JOIN numbers b",
		fmt.Sprintf("INSERT INTO users (id, last_upload) VALUES (%d, 5)", followed))
	program := build(t)
	old := []*worker{start(t, program, dsn, server.URL()), start(t, program, dsn, server.URL())}

	var inserted atomic.Int64
	insert := func(columns, values string) error {
		n := inserted.Add(1)
		for _, statement := range []string{
			fmt.Sprintf("INSERT INTO users (id) VALUES (%d)", n),
			fmt.Sprintf("INSERT INTO contacts (user_id, contact_id) VALUES (%d, %d)", n, followed),
			fmt.Sprintf("INSERT INTO tasks (type, queue, subject%s) VALUES ('refill', 'refill', %d%s)", columns, n, values),
		} {
			if _, err := db.ExecContext(context.Background(), statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	}
	var site errgroup.Group
	var closing atomic.Bool
	site.Go(func() (err error) {
		for err == nil && !closing.Load() {
			err = insert("", "")
		}
		return err
	})
	defer func() {
		closing.Store(true)
		_ = site.Wait()
	}()
	servertest.Eventually(t, "the site inserts", func() bool { return inserted.Load() > least })
	apply(t, db, expanded)
	start(t, program, dsn, server.URL()) // what the next release does when it is started beside
	for range least {
		if err := insert(", trace", ", 'new'"); err != nil {
			t.Fatal(err)
		}
	}
	for _, process := range old {
		process.stop(t)
	}
	apply(t, db, shrunk)
	seen := inserted.Load()
	servertest.Eventually(t, "the site still inserts", func() bool { return inserted.Load() > seen })
	closing.Store(true)
	if err := site.Wait(); err != nil {
		t.Fatal(err)
	}

	servertest.Eventually(t, "all tasks are done", func() bool {
		return column(t, db, "SELECT (SELECT COUNT(*) FROM tasks WHERE type = 'refill') + (SELECT COUNT(*) FROM task_leases) + (SELECT COUNT(*) FROM parked_tasks WHERE type = 'refill' AND state <> 'dead')")[0] == "0"
	})
	if left := column(t, db, "SELECT CONCAT_WS(' ', due_at, COUNT(*)) FROM (SELECT due_at FROM tasks UNION ALL SELECT due_at FROM parked_tasks) AS every GROUP BY due_at"); len(left) != 1 || left[0] != "99999999999999 90000" {
		t.Errorf("left: %q, want the scheduled tasks of before", left)
	}
	if missing := withoutSet(t, server.URL(), inserted.Load()); len(missing) > 0 {
		t.Errorf("of %d members, %d have no set: %v", inserted.Load(), len(missing), missing)
	}
	late := exec.CommandContext(t.Context(), program, serve...)
	late.Env = environment(dsn, server.URL())
	if out, err := late.CombinedOutput(); err == nil || !strings.Contains(string(out), "this activityd is older than the schema: run a newer one") {
		t.Errorf("the first release started again: %v: %s", err, out)
	}
}

// withoutSet returns the members up to last that have no set.
func withoutSet(t *testing.T, url string, last int64) (missing []string) {
	t.Helper()
	options, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(options)
	defer func() { _ = client.Close() }()
	for id := int64(1); id <= last; id++ {
		key := "user_" + strconv.FormatInt(id, 10)
		if n, err := client.Exists(t.Context(), key).Result(); err != nil || n == 0 {
			missing = append(missing, key)
		}
	}
	return missing
}

// build returns the path of the program, built from this checkout.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "activityd")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/activityd/activityd/cmd/activityd").CombinedOutput(); err != nil {
		t.Fatalf("build activityd: %v\n%s", err, out)
	}
	return path
}

// worker is a process that does tasks.
type worker struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

var serve = []string{"serve", "--role=workers", "--metrics-listen="}

func environment(dsn, redisURL string) []string {
	return append(os.Environ(), "ACTIVITYD_MYSQL_DSN="+dsn, "ACTIVITYD_REDIS_URL="+redisURL)
}

func start(t *testing.T, program, dsn, redisURL string) *worker {
	t.Helper()
	w := &worker{cmd: exec.Command(program, serve...)}
	w.cmd.Env, w.cmd.Stderr = environment(dsn, redisURL), &w.log
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.stop(t) })
	return w
}

// stop interrupts the process, which must end without an error.
func (w *worker) stop(t *testing.T) {
	t.Helper()
	if w.cmd.ProcessState != nil {
		return
	}
	_ = w.cmd.Process.Signal(os.Interrupt)
	if err := w.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, w.log.String())
	}
}
