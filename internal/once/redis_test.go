package once_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/once"
	"github.com/activityd/activityd/internal/once/oncetest"
)

// counter returns a counter of epochs, which outlives all Redis servers.
func counter() func(context.Context) (uint64, error) {
	var n atomic.Uint64
	return func(context.Context) (uint64, error) { return n.Add(1), nil }
}

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
		ctx, key := context.Background(), once.StateKey(name)
		ttl, err := client.PTTL(ctx, key).Result()
		if err != nil || ttl < 0 {
			return err
		}
		return client.PExpire(ctx, key, ttl-d).Err()
	}}
}

func TestRedis(t *testing.T) {
	t.Parallel()
	client := connect(t, servertest.Redis(t))
	store := once.NewRedis(client, counter())
	oncetest.TestStore(t, func(*testing.T) oncetest.Harness { return harness(client, store) })
}

func TestRedisCluster(t *testing.T) {
	t.Parallel()
	client := servertest.RedisCluster(t)
	store := once.NewRedis(client, counter())
	oncetest.TestStore(t, func(*testing.T) oncetest.Harness { return harness(client, store) })
}
