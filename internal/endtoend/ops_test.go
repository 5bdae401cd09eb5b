package endtoend_test

import (
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// configured returns the path of a file of ops/, and the settings in it as a server reports them.
func configured(t *testing.T, file string) (path string, want map[string]string) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("..", "..", "ops", file))
	must(t, err)
	text, err := os.ReadFile(path)
	must(t, err)
	want = make(map[string]string)
	for line := range strings.Lines(string(text)) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if n, inMegabytes := strings.CutSuffix(value, "mb"); inMegabytes {
			megabytes, err := strconv.Atoi(n)
			must(t, err)
			value = strconv.Itoa(megabytes << 20)
		}
		if found && !strings.HasPrefix(name, "#") {
			want[name] = strings.Trim(value, `"`)
		}
	}
	return path, want
}

func checkConfig(t *testing.T, client *redis.Client, want map[string]string) {
	t.Helper()
	for name, value := range want {
		got, err := client.ConfigGet(t.Context(), name).Result()
		if err != nil || got[name] != value {
			t.Errorf("%s is %q, want %q: %v", name, got[name], value, err)
		}
	}
}

// TestRedisConf: the settings of a server with ops/redis.conf are those of the file.
func TestRedisConf(t *testing.T) {
	t.Parallel()
	path, want := configured(t, "redis.conf")
	checkConfig(t, openRedis(t, servertest.Redis(t, "--include", path)), want)
}

// TestRedisReplicaSavesConf: the nodes of a cluster with ops/redis.conf agree, and a node that also reads
// ops/redis-replica-saves.conf follows its master.
func TestRedisReplicaSavesConf(t *testing.T) {
	t.Parallel()
	path, want := configured(t, "redis.conf")
	other, saves := configured(t, "redis-replica-saves.conf")
	maps.Copy(want, saves)
	c := servertest.NewCluster(t, 1, 1, "--include", path, "--include", other)
	replica := c.Nodes[1].Client
	checkConfig(t, replica, want)
	must(t, c.Nodes[0].Client.Set(t.Context(), "user_1", "x", 0).Err())
	eventually(t, "the replica has what was written", func() bool { return replica.DBSize(t.Context()).Val() == 1 })
}
