package localserver_test

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
)

// server is what tests do to a server of either kind.
type server interface {
	Addr() string
	Kill() error
	Pause() error
	Resume() error
	Restart(ctx context.Context) error
	Close() error
}

// TestStates takes a server of each kind through its states. A server that keeps its data has them after a kill.
func TestStates(t *testing.T) {
	t.Parallel()
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		m, err := localserver.StartMySQL(t.Context())
		must(t, err)
		must(t, m.CreateDatabase(t.Context(), "odd `name`"))
		db, err := sql.Open("mysql", m.DSN("odd `name`"))
		must(t, err)
		t.Cleanup(func() { _ = db.Close() })
		_, err = db.ExecContext(t.Context(), "CREATE TABLE kept (id INT PRIMARY KEY) ENGINE=InnoDB AS SELECT 42 AS id")
		must(t, err)
		goThrough(t, m, func(ctx context.Context) error {
			var id int
			return db.QueryRowContext(ctx, "SELECT id FROM kept").Scan(&id)
		})
	})
	t.Run("Redis", func(t *testing.T) {
		t.Parallel()
		r, err := localserver.StartRedis(t.Context(), localserver.AOF...)
		must(t, err)
		options, err := redis.ParseURL(r.URL())
		must(t, err)
		options.ContextTimeoutEnabled = true
		client := redis.NewClient(options)
		t.Cleanup(func() { _ = client.Close() })
		must(t, client.Set(t.Context(), "kept", 42, 0).Err())
		goThrough(t, r, func(ctx context.Context) error { return client.Get(ctx, "kept").Err() })
	})
}

// goThrough pauses, resumes, kills, restarts and closes a server. ask fails unless the server has its data.
func goThrough(t *testing.T, s server, ask func(context.Context) error) {
	t.Helper()
	must(t, ask(t.Context()))
	must(t, errors.Join(s.Pause(), s.Pause()))
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := ask(short); err == nil {
		t.Error("a paused server answers")
	}
	must(t, s.Resume())
	must(t, ask(t.Context()))
	must(t, errors.Join(s.Kill(), s.Kill(), s.Pause(), s.Resume())) // a dead server is paused in vain
	if err := ask(t.Context()); err == nil {
		t.Error("a killed server answers")
	}
	must(t, s.Restart(t.Context()))
	must(t, ask(t.Context()))
	must(t, errors.Join(s.Pause(), s.Close(), s.Close())) // even a paused server can be closed
	if _, err := os.Stat(filepath.Dir(s.Addr())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	for name, err := range map[string]error{"Kill": s.Kill(), "Pause": s.Pause(), "Restart": s.Restart(t.Context())} {
		if err == nil {
			t.Errorf("%s of a closed server succeeded", name)
		}
	}
}

// TestAStartThatFailsShowsTheLog also checks that nothing is left behind. It is not parallel: it changes TMPDIR.
func TestAStartThatFailsShowsTheLog(t *testing.T) {
	temporary, err := os.MkdirTemp("", "lst") // t.TempDir is too long for a socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(temporary) })
	t.Setenv("TMPDIR", temporary)
	t.Setenv("ACTIVITYD_TEST_FOLDER", "")
	_, mysqlErr := localserver.StartMySQL(t.Context(), "--no-such-thing")
	_, redisErr := localserver.StartRedis(t.Context(), "--maxmemory", "rather-much")
	for said, err := range map[string]error{"no-such-thing": mysqlErr, "rather-much": redisErr} {
		if err == nil || !strings.Contains(err.Error(), said) {
			t.Errorf("error %v does not show %q, the server's complaint", err, said)
		}
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
