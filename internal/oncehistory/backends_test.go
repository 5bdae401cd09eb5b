package oncehistory_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/once"
)

// quiet keeps go-redis from logging: its errors come back from its methods.
func quiet() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// inMemory is a stage in memory, for a bubble of synctest: all of a history comes from its
// seed there.
func inMemory(b broken) *stage {
	v := newVault(b)
	return &stage{
		monotonic: true, clients: []once.Store{v}, age: v.age, drop: v.drop, pause: 2 * time.Millisecond, latency: time.Millisecond,
		events: []event{{effect: save, happen: v.save, next: &event{effect: restart, happen: v.restart}}, {effect: flush, happen: v.flush}, {effect: restart, happen: v.restart}},
	}
}

// address is where the store of a process is, as JSON.
type address struct {
	Redis string // URL; "": the store is MySQL
	MySQL string // DSN
}

// open opens a store. Its clients do not repeat a command by themselves, as some do: then
// a history would have two operations where it notes one. (Players repeat theirs.)
func (a address) open(hooks ...redis.Hook) (store once.Store, closeAll func() error, err error) {
	db, err := mysql.Open(a.MySQL, mysql.WithMaxOpen(64))
	if err != nil {
		return nil, nil, err
	}
	epochs := once.NewMySQL(db)
	if a.Redis == "" {
		return epochs, db.Close, nil
	}
	o, err := redis.ParseURL(a.Redis)
	if err != nil {
		return nil, nil, errors.Join(err, db.Close())
	}
	o.MaxRetries, o.ContextTimeoutEnabled, o.PoolSize, o.DialerRetries = -1, true, manyConns, 1
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Minute, time.Minute, time.Minute // a SAVE waits for the disk
	client := redis.NewClient(o)
	for _, hook := range hooks {
		client.AddHook(hook)
	}
	return once.NewRedis(client, epochs.NextEpoch), func() error { return errors.Join(client.Close(), db.Close()) }, nil
}

// manyConns is a size of a pool that is not reached. When so many dials have failed, go-redis
// dials only once a second.
const manyConns = 100_000

// connect opens the store of a process, and the database.
func connect(text string) (once.Store, *sql.DB, error) {
	var a address
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return nil, nil, err
	}
	store, _, err := a.open()
	if err != nil {
		return nil, nil, err
	}
	db, err := mysql.Open(a.MySQL)
	return store, db, err
}

func (a address) String() string {
	text, err := json.Marshal(a)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// mustOpen opens a store that is closed when t ends.
func (a address) mustOpen(t testing.TB, hooks ...redis.Hook) once.Store {
	t.Helper()
	store, closeAll, err := a.open(hooks...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = closeAll() }) // its server may be gone
	return store
}

// cut is an event that cuts all connections through a proxy.
func cut(p *servertest.Proxy) event {
	return event{happen: func(context.Context, *rand.Rand) error { p.Cut(); return nil }}
}

// server is one that is killed.
type server interface {
	Kill() error
	Restart(ctx context.Context) error
}

// kill returns what kills a server, waits until all operations that were in flight have
// failed, and starts it again.
func (s *stage) kill(server server) func(context.Context, *rand.Rand) error {
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

// tester wraps what the tester asks of a server that may be away.
func tester(err error) error {
	if err != nil {
		return fmt.Errorf("%w: %w", errCut, err)
	}
	return nil
}

// onMySQL is a stage on a MySQL of its own, which is killed now and then.
func onMySQL(t testing.TB, size int) *stage {
	t.Helper()
	// Killing it loses nothing that was answered, whatever this is.
	m := servertest.OwnMySQL(t, "--innodb-flush-log-at-trx-commit=2")
	dsn := m.DSN(servertest.Database)
	proxy := servertest.NewProxy(t, m.Addr())
	direct, proxied := address{MySQL: dsn}, address{MySQL: proxy.MySQLDSN(dsn)}
	s := &stage{
		early: true, clients: []once.Store{direct.mustOpen(t), proxied.mustOpen(t)}, size: size, pause: time.Millisecond,
		age:     ageMySQL(t, dsn),
		process: processes(t, direct.String(), 2),
	}
	s.events = []event{cut(proxy), cut(proxy), churn(s.clients[0]), {happen: rarely(10, s.kill(m))}}
	return s
}

// churn is an event that uses many names once, so that rows are purged.
func churn(store once.Store) event {
	return event{happen: func(ctx context.Context, _ *rand.Rand) error {
		for range 60 {
			op := once.Operation{Action: once.Acquire, Owner: "churn", Terms: once.Terms{Lease: once.MinLease, Keep: once.MinKeep}}
			if _, err := store.Apply(ctx, fmt.Sprintf("churn%d", played.Add(1)), op); err != nil && !errors.Is(err, once.ErrUnavailable) {
				return err
			}
		}
		return nil
	}}
}

// rarely does something one time in n.
func rarely(n int, do func(context.Context, *rand.Rand) error) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, choices *rand.Rand) error {
		if choices.IntN(n) > 0 {
			return nil
		}
		return do(ctx, choices)
	}
}

// ageMySQL returns what moves the times of a state back.
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

// onRedis is a stage on a Redis of its own, which loses everything, comes back with its
// last snapshot or with nothing, and loses keys. If args say so, it keeps its data. With
// a mutation there are no processes, which would not have it.
func onRedis(t testing.TB, size int, m *mutation, args ...string) *stage {
	t.Helper()
	r := servertest.Redis(t, args...)
	proxy := servertest.NewProxy(t, r.Addr())
	dsn := servertest.MySQLDSN(t)
	direct, proxied := address{r.URL(), dsn}, address{proxy.RedisURL(), dsn}
	var hooks []redis.Hook
	if m != nil {
		hooks = append(hooks, m)
	}
	admin := redis.NewClient(&redis.Options{
		Network: "unix", Addr: r.Addr(), MaxRetries: -1, PoolSize: manyConns, DialerRetries: 1,
		ReadTimeout: time.Minute, // a SAVE waits for the disk
	})
	t.Cleanup(func() { _ = admin.Close() })
	s := &stage{
		measured: true, monotonic: true, clients: []once.Store{direct.mustOpen(t, hooks...), proxied.mustOpen(t, hooks...)}, size: size, pause: time.Millisecond,
		age: func(ctx context.Context, name string, d time.Duration) error {
			return tester(ageScript.Eval(ctx, admin, []string{redisKey(name)}, d.Milliseconds()).Err())
		},
		drop: func(ctx context.Context, name string) error {
			return tester(admin.Del(ctx, redisKey(name)).Err())
		},
	}
	if m == nil {
		s.process = processes(t, direct.String(), 2)
	}
	ask := func(do func(ctx context.Context) error) func(context.Context, *rand.Rand) error {
		return func(ctx context.Context, _ *rand.Rand) error { return do(ctx) }
	}
	markers := event{happen: ask(func(ctx context.Context) error {
		var all []string
		for n := range buckets {
			all = append(all, fmt.Sprintf("activityd_once_{%d}", n))
		}
		return admin.Del(ctx, all...).Err()
	})}
	if len(args) > 0 { // it keeps its data
		s.events = []event{cut(proxy), markers, {happen: s.kill(r)}}
		return s
	}
	restarts := event{effect: restart, happen: s.kill(r)}
	snapshot := event{effect: save, happen: ask(func(ctx context.Context) error { return admin.Save(ctx).Err() }), next: &restarts}
	s.events = []event{
		cut(proxy), markers, restarts,
		{effect: flush, happen: ask(func(ctx context.Context) error { return admin.FlushAll(ctx).Err() })},
		snapshot, snapshot,
	}
	return s
}

func onVolatileRedis(t testing.TB, size int) *stage {
	t.Helper()
	return onRedis(t, size, nil)
}

func onDurableRedis(t testing.TB, size int) *stage {
	t.Helper()
	return onRedis(t, size, nil, localserver.AOF...)
}

// buckets is what package once has it to be, for ever.
const buckets = 64

// redisKey is the key of the state of a name.
func redisKey(name string) string {
	return fmt.Sprintf("activityd_once_{%d}_%s", crc32.ChecksumIEEE([]byte(name))%buckets, name)
}

// ageScript moves the times of a state back, which is when its key expires. It changes the
// time itself: what is left of it becomes less while the script runs, in Redis before 7.2.
var ageScript = redis.NewScript(`
local at = redis.call('PEXPIRETIME', KEYS[1])
if at >= 0 then redis.call('PEXPIREAT', KEYS[1], string.format('%.0f', at - ARGV[1])) end
return at
`)

var (
	_ server = (*localserver.Redis)(nil)
	_ server = (*localserver.MySQL)(nil)
)

// overTCP is a DSN with another address.
func overTCP(dsn, addr string) string {
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		panic(err)
	}
	cfg.Net, cfg.Addr = "tcp", addr
	return cfg.FormatDSN()
}

// socket is the address in a DSN.
func socket(dsn string) string {
	cfg, err := driver.ParseDSN(dsn)
	if err != nil {
		panic(err)
	}
	return cfg.Addr
}
