package localserver_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
)

func startRedis(t *testing.T, args ...string) (*localserver.Redis, *redis.Client) {
	t.Helper()
	r, err := localserver.StartRedis(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	parsed, err := redis.ParseURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	parsed.ContextTimeoutEnabled = true
	client := redis.NewClient(parsed)
	t.Cleanup(func() { _ = client.Close() })
	return r, client
}

// That nothing answers at the master's address does not matter.
func TestSentinelKnowsItsMaster(t *testing.T) {
	t.Parallel()
	s, err := localserver.StartSentinel(t.Context(), "sentinel monitor index 127.0.0.1 1 1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // it keeps its configuration
		sentinel := redis.NewSentinelClient(&redis.Options{Network: "unix", Addr: s.Addr()})
		addr, err := sentinel.GetMasterAddrByName(t.Context(), "index").Result()
		if err != nil || !slices.Equal(addr, []string{"127.0.0.1", "1"}) {
			t.Errorf("the master is at %v, %v", addr, err)
		}
		if err := errors.Join(sentinel.Close(), s.Restart(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRedisForgetsOrKeepsItsDataThroughAKill(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want int64
	}{
		"without persistence": {nil, 0},
		"with AOF":            {localserver.AOF, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, client := startRedis(t, test.args...)
			if err := client.Set(t.Context(), "key", "value", 0).Err(); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(r.Kill(), r.Restart(t.Context())); err != nil {
				t.Fatal(err)
			}
			if n, err := client.Exists(t.Context(), "key").Result(); err != nil || n != test.want {
				t.Errorf("%d keys after the restart, %v; want %d", n, err, test.want)
			}
		})
	}
}

func TestRedisKillEndsIt(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t)
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(r.Kill(), r.Kill()); err != nil { // a dead server can be killed again
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err == nil {
		t.Error("a killed server answers")
	}
	if err := errors.Join(r.Pause(), r.Resume()); err != nil {
		t.Errorf("a dead server is paused in vain, not in error: %v", err)
	}
}

func TestRedisPauseAndResume(t *testing.T) {
	t.Parallel()
	r, client := startRedis(t)
	if err := errors.Join(r.Pause(), r.Resume(), r.Pause(), r.Pause()); err != nil {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := client.Ping(short).Err(); err == nil {
		t.Error("a paused server answers")
	}
	if err := r.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("a resumed server: %v", err)
	}
}

func TestRedisOutlivesTheContextOfItsStart(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := localserver.StartRedis(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	cancel()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: r.Addr()})
	defer func() { _ = client.Close() }()
	if err := client.Ping(t.Context()).Err(); err != nil {
		t.Errorf("after its start's context ended: %v", err)
	}
}

func TestRedisCloseRemovesTheFolder(t *testing.T) {
	t.Parallel()
	r, _ := startRedis(t)
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Dir(r.Addr())); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	for name, call := range map[string]func() error{"Kill": r.Kill, "Pause": r.Pause, "Resume": r.Resume} {
		if call() == nil {
			t.Errorf("%s of a closed server succeeded", name)
		}
	}
}

func TestRedisStartFailureShowsTheLog(t *testing.T) {
	temporary := ownTempDir(t)
	_, err := localserver.StartRedis(t.Context(), "--maxmemory", "rather-much")
	if err == nil || !strings.Contains(err.Error(), "rather-much") {
		t.Errorf("error %v does not show what the server complained of", err)
	}
	assertEmpty(t, temporary)
}
