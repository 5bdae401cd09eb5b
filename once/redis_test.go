package once_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// connect returns a client of a server.
func connect(t testing.TB, server *localserver.Redis) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// harness is a store in Redis to be tested.
func harness(client redis.UniversalClient, store once.Store) oncetest.Harness {
	return oncetest.Harness{Store: store, Age: func(name string, d time.Duration) error {
		return ageScript.Run(context.Background(), client, []string{once.StateKey(name)}, d.Milliseconds()).Err()
	}}
}

// ageScript moves the times of a state back: when its attempt began, and when its key expires.
var ageScript = redis.NewScript(`
local ttl = redis.call('PTTL', KEYS[1])
if ttl < 0 then return 0 end
local v = string.gsub(redis.call('GET', KEYS[1]), '^([^\n]+\n[^\n]+\n%d+ )(%d+)', function(head, began) return head .. began - ARGV[1] end)
redis.call('SET', KEYS[1], v, 'KEEPTTL')
return redis.call('PEXPIRE', KEYS[1], ttl - ARGV[1])
`)

func TestRedis(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	store := once.NewRedis(client)
	oncetest.TestStore(t, func(*testing.T) oncetest.Harness { return harness(client, store) })
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	client := servertest.RedisCluster(t)
	store := once.NewRedis(client)
	oncetest.TestStore(t, func(*testing.T) oncetest.Harness { return harness(client, store) })
}
