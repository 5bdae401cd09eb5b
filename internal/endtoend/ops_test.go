package endtoend_test

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// redisConf holds the settings of ops/redis.conf.
var redisConf = map[string]string{
	"save":                            "",
	"appendonly":                      "no",
	"stop-writes-on-bgsave-error":     "no",
	"maxmemory-policy":                "noeviction",
	"lazyfree-lazy-user-del":          "yes",
	"lazyfree-lazy-user-flush":        "yes",
	"lazyfree-lazy-expire":            "yes",
	"lazyfree-lazy-server-del":        "yes",
	"replica-lazy-flush":              "yes",
	"repl-diskless-sync":              "yes",
	"repl-backlog-size":               "67108864",
	"min-replicas-to-write":           "0",
	"cluster-require-full-coverage":   "no",
	"cluster-allow-reads-when-down":   "no",
	"cluster-node-timeout":            "5000",
	"cluster-replica-validity-factor": "0",
}

// replicaSaves holds the settings that ops/redis-replica-saves.conf changes.
var replicaSaves = map[string]string{
	"save":                       "3600 1",
	"rdb-save-incremental-fsync": "yes",
	"replica-priority":           "200",
}

// configured returns arguments that make a server read files of ops/, after everything was
// set to something else.
func configured(t *testing.T, files ...string) (args []string) {
	t.Helper()
	args = []string{
		"--save", "900 1", "--stop-writes-on-bgsave-error", "yes", "--maxmemory-policy", "allkeys-lru",
		"--lazyfree-lazy-user-del", "no", "--lazyfree-lazy-user-flush", "no", "--lazyfree-lazy-expire", "no",
		"--lazyfree-lazy-server-del", "no", "--replica-lazy-flush", "no", "--repl-diskless-sync", "no", "--repl-backlog-size", "1mb",
		"--min-replicas-to-write", "1", "--cluster-require-full-coverage", "yes", "--cluster-allow-reads-when-down", "yes", "--cluster-node-timeout", "15000",
		"--cluster-replica-validity-factor", "10", "--rdb-save-incremental-fsync", "no", "--replica-priority", "100", "--appendonly", "yes",
	}
	for _, file := range files {
		path, err := filepath.Abs(filepath.Join("..", "..", "ops", file))
		must(t, err)
		args = append(args, "--include", path)
	}
	return args
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

// TestRedisConf starts a server with ops/redis.conf. The server's settings are those of the file, and the
// server serves a site.
func TestRedisConf(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, groundOn(t, 10, servertest.MySQLDSN(t), servertest.Redis(t, configured(t, "redis.conf")...)), seed, 50)
	checkConfig(t, tn.client, redisConf)
	tn.warm(t, tn.viewers())
	p := tn.started(t, "a")
	tn.celebrate(t, start+1000)
	tn.awaitIdle(t)
	if from := tn.check(t, p.reader); from[recent.FromIndex] < people/2 {
		t.Errorf("answers from %v", from)
	}
}

// TestRedisReplicaSavesConf: the nodes of a cluster with ops/redis.conf agree, and a node that also reads
// ops/redis-replica-saves.conf follows its master.
func TestRedisReplicaSavesConf(t *testing.T) {
	t.Parallel()
	c := servertest.Cluster(t, 1, 1, configured(t, "redis.conf", "redis-replica-saves.conf")...)
	want := maps.Clone(redisConf)
	maps.Copy(want, replicaSaves)
	replica := c.Nodes[1].Client
	checkConfig(t, replica, want)
	must(t, c.Nodes[0].Client.Set(t.Context(), "user_1", "x", 0).Err())
	eventually(t, "the replica has what was written", func() bool { return replica.DBSize(t.Context()).Val() == 1 })
}
