package oncehistory_test

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// inMemory is a stage in memory, for a bubble of synctest: all of a history comes from its
// seed there.
func inMemory(b broken) *stage {
	v := newVault(b)
	return &stage{
		monotonic: true, clients: []once.Store{v}, age: v.age, pause: 2 * time.Millisecond, latency: time.Millisecond,
	}
}

// openMySQL opens a store that is closed when t ends.
func openMySQL(t testing.TB, dsn string) once.Store {
	t.Helper()
	db, err := mysql.Open(dsn, mysql.WithMaxOpen(64))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() }) // its server may be gone
	return once.NewMySQL(db)
}

// openRedis opens a store that is closed when t ends. Its client does not repeat a command by
// itself: then a history would have two operations for a single note. (Players repeat their
// own.)
func openRedis(t testing.TB, url string) once.Store {
	t.Helper()
	o, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	o.MaxRetries, o.ContextTimeoutEnabled, o.PoolSize, o.DialerRetries = -1, true, manyConns, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute, time.Minute
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() }) // its server may be gone
	return once.NewRedis(client)
}

// manyConns is a size of a pool that is not reached. When so many dials have failed, go-redis
// dials only once a second.
const manyConns = 100_000

// cut is an event that cuts all connections through a proxy.
func cut(p *servertest.Proxy) event {
	return func(context.Context, *rand.Rand) error { p.Cut(); return nil }
}

// kill returns an event that kills a server, waits until all operations in flight have failed,
// and starts the server again.
func (s *stage) kill(server *localserver.Redis) event {
	return func(ctx context.Context, _ *rand.Rand) error {
		s.down.Store(true)
		defer s.down.Store(false)
		if err := server.Kill(); err != nil {
			return err
		}
		s.dead.Store(true)
		for s.inFlight.Load() > 0 {
			if err := retry.Sleep(ctx, time.Millisecond); err != nil {
				return err
			}
		}
		s.dead.Store(false)
		return server.Restart(ctx)
	}
}

// tester wraps an error of a request of the tester to a server that may be away.
func tester(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return nil
}

// onMySQL is a stage on a MySQL of its own. It is not killed: InnoDB shows a commit before its log is written.
func onMySQL(t testing.TB, size int) *stage {
	t.Helper()
	m := servertest.OwnMySQL(t)
	dsn := m.DSN(servertest.Database)
	proxy := servertest.NewProxy(t, m.Addr())
	clients := []once.Store{openMySQL(t, dsn), openMySQL(t, proxy.MySQLDSN(dsn))}
	return &stage{
		clients: clients, size: size, pause: time.Millisecond, age: ageMySQL(t, dsn),
		events: []event{cut(proxy), cut(proxy), churn(clients[0])},
	}
}

// churn is an event that uses many names once, so that rows are purged.
func churn(store once.Store) event {
	return func(ctx context.Context, _ *rand.Rand) error {
		for range 60 {
			op := once.Operation{Action: once.Acquire, Owner: "churn", Terms: once.Terms{Lease: once.MinLease, Keep: once.MinKeep}}
			if _, err := store.Apply(ctx, fmt.Sprintf("churn%d", played.Add(1)), op); err != nil && !errors.Is(err, once.ErrUnavailable) {
				return err
			}
		}
		return nil
	}
}

// ageMySQL returns a function that moves the times of a state back.
func ageMySQL(t testing.TB, dsn string) func(context.Context, string, time.Duration) error {
	t.Helper()
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return func(ctx context.Context, name string, d time.Duration) error {
		_, err := db.ExecContext(ctx, "UPDATE once_keys SET lease_ends = IF(lease_ends = 0, 0, lease_ends - ?), forget_at = forget_at - ?, changes = changes + 1 WHERE name = ? AND forget_at > 1000000000",
			d.Milliseconds(), d.Milliseconds(), name)
		return tester(err)
	}
}

// onRedis is a stage on a Redis of its own that keeps its data, and is killed.
func onRedis(t testing.TB, size int) *stage {
	t.Helper()
	r := servertest.Redis(t, localserver.AOF...)
	proxy := servertest.NewProxy(t, r.Addr())
	admin := redis.NewClient(&redis.Options{
		Network: "unix", Addr: r.Addr(), MaxRetries: -1, PoolSize: manyConns, DialerRetries: 1, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = admin.Close() })
	s := &stage{
		measured: true, monotonic: true, clients: []once.Store{openRedis(t, r.URL()), openRedis(t, proxy.RedisURL())}, size: size, pause: time.Millisecond,
		age: func(ctx context.Context, name string, d time.Duration) error {
			return tester(ageScript.Eval(ctx, admin, []string{redisKey(name)}, d.Milliseconds()).Err())
		},
	}
	s.events = []event{cut(proxy), s.kill(r)}
	return s
}

// buckets is the number of buckets that package once must keep for ever.
const buckets = 64

// redisKey is the key of the state of a name.
func redisKey(name string) string {
	return fmt.Sprintf("activityd_once_{%d}_%s", crc32.ChecksumIEEE([]byte(name))%buckets, name)
}

// ageScript moves the times of a state back: the expiry of its key. It sets the time of expiry,
// and not the time to live, which becomes less while the script runs, in Redis before 7.2.
var ageScript = redis.NewScript(`
local at = redis.call('PEXPIRETIME', KEYS[1])
if at >= 0 then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', at - ARGV[1])) end
return at
`)
