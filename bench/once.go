package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/once"
)

// lockBench measures package once beside locks that do less.
type lockBench struct {
	*suite
	lockStores

	names atomic.Int64 // so far
}

// lockStores are both stores of a process.
type lockStores struct {
	redis *once.Redis
	mysql *once.MySQL
}

func newLockStores(db *sql.DB, client *redis.Client) (s lockStores) {
	s.mysql = once.NewMySQL(db)
	s.redis = once.NewRedis(client)
	return s
}

// lock is a way to acquire a name that is new, and to give it back or to say that its work
// is done.
type lock struct {
	name string
	pair func(ctx context.Context, name string) error
}

// lease is that of every lock here.
const lease = 30 * time.Second

func newLockBench(s *suite) *lockBench {
	return &lockBench{suite: s, lockStores: newLockStores(s.db, s.client)}
}

// benchOnce measures the stores, each beside what its server offers by itself, and how soon
// a failed attempt is followed by the next one.
func (s *suite) benchOnce(ctx context.Context) error {
	b := newLockBench(s)
	if err := b.measureRedis(ctx); err != nil {
		return err
	}
	if err := b.measureMySQL(ctx); err != nil {
		return err
	}
	if err := b.countPairs(ctx); err != nil {
		return err
	}
	return b.measureTakeovers(ctx)
}

// newName returns a name that no lock has had.
func (b *lockBench) newName() string { return fmt.Sprintf("bench:%d", b.names.Add(1)) }

// The locks that others are compared with.
const (
	rawRedis    = "SET NX PX, DEL"
	byRedislock = "redislock: Obtain, Release"
	byRedsync   = "redsync: Lock, Unlock"
	byStore     = "activityd: acquire, done"
	byDo        = "activityd: Do, whose work does nothing"
	rawMySQL    = "INSERT, UPDATE"
)

// redisLocks returns those on Redis, all by one client.
func (b *lockBench) redisLocks() []lock {
	locker, mutexes := redislock.New(b.client), redsync.New(goredis.NewPool(b.client))
	return []lock{
		{rawRedis, b.setAndDelete},
		{"SET NX PX, compare and delete", b.setAndCompare},
		{byRedislock, func(ctx context.Context, name string) error {
			l, err := locker.Obtain(ctx, name, lease, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}},
		{byRedsync, func(ctx context.Context, name string) error {
			m := mutexes.NewMutex(name, redsync.WithExpiry(lease))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			_, err := m.UnlockContext(ctx)
			return err
		}},
		{byStore, byStoreOf(b.redis)},
		{byDo, byDoOf(b.redis)},
	}
}

// mysqlLocks returns those on MySQL, all by one pool of connections.
func (b *lockBench) mysqlLocks() []lock {
	return []lock{
		{rawMySQL, b.insertAndUpdate},
		{"GET_LOCK, RELEASE_LOCK", b.getAndReleaseLock},
		{byStore, byStoreOf(b.mysql)},
		{byDo, byDoOf(b.mysql)},
	}
}

// byStoreOf returns the two operations of an attempt that succeeds.
func byStoreOf(store once.Store) func(context.Context, string) error {
	terms := once.Terms{Lease: lease, Keep: once.DefaultKeep, Attempts: once.DefaultAttempts}
	return func(ctx context.Context, name string) error {
		owner := rand.Text()
		for _, op := range []once.Operation{{Action: once.Acquire, Owner: owner, Terms: terms}, {Action: once.Finish, Owner: owner}} {
			r, err := store.Apply(ctx, name, op)
			if err != nil {
				return err
			}
			if r.Outcome != once.OK {
				return fmt.Errorf("%s %s: %s", op.Action, name, r.Outcome)
			}
		}
		return nil
	}
}

// byDoOf returns all that a process does for an attempt.
func byDoOf(store once.Store) func(context.Context, string) error {
	o := once.New(store, once.Options{})
	return func(ctx context.Context, name string) error {
		did, err := o.Do(ctx, once.Key{Name: name, Lease: lease}, func(context.Context, once.Attempt) error { return nil })
		if err == nil && !did {
			err = fmt.Errorf("%s was done before", name)
		}
		return err
	}
}

// setAndDelete is the least that a lock on Redis can be: without an owner.
func (b *lockBench) setAndDelete(ctx context.Context, name string) error {
	if err := b.setNew(ctx, name, "1"); err != nil {
		return err
	}
	return b.client.Del(ctx, name).Err()
}

// compareAndDelete deletes what is still the owner's.
var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

// setAndCompare is the lock of the Redis documentation.
func (b *lockBench) setAndCompare(ctx context.Context, name string) error {
	token := rand.Text()
	if err := b.setNew(ctx, name, token); err != nil {
		return err
	}
	return compareAndDelete.Run(ctx, b.client, []string{name}, token).Err()
}

func (b *lockBench) setNew(ctx context.Context, name, value string) error {
	return b.client.SetArgs(ctx, name, value, redis.SetArgs{Mode: "NX", TTL: lease}).Err() // redis.Nil if it exists
}

// locksTable is what one would write instead of the store: a row for each name.
const locksTable = "CREATE TABLE IF NOT EXISTS bench_locks (name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY," +
	" owner VARCHAR(100) NOT NULL, until DATETIME(3) NOT NULL, done BOOL NOT NULL) ENGINE=InnoDB"

// insertAndUpdate does in two statements, each its own transaction, what an attempt that
// succeeds leaves behind.
func (b *lockBench) insertAndUpdate(ctx context.Context, name string) error {
	owner := rand.Text()
	if _, err := b.db.ExecContext(ctx, "INSERT INTO bench_locks VALUES (?, ?, NOW(3) + INTERVAL 30 SECOND, FALSE)", name, owner); err != nil {
		return err
	}
	_, err := b.db.ExecContext(ctx, "UPDATE bench_locks SET done = TRUE WHERE name = ? AND owner = ?", name, owner)
	return err
}

// getAndReleaseLock takes a lock of the connection, which is on no disk and ends with it.
func (b *lockBench) getAndReleaseLock(ctx context.Context, name string) (err error) {
	conn, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, statement := range []string{"SELECT GET_LOCK(?, 0)", "SELECT RELEASE_LOCK(?)"} {
		var ok sql.NullBool
		if err := conn.QueryRowContext(ctx, statement, name).Scan(&ok); err != nil {
			return err
		}
		if !ok.Bool {
			return fmt.Errorf("%s of %s: not ok", statement, name)
		}
	}
	return nil
}

// pairs returns a contender that acquires and ends so many names, from some goroutines.
func (b *lockBench) pairs(l lock, goroutines, n int) contender {
	return contender{name: l.name, run: func(ctx context.Context) (int, error) {
		group, ctx := errgroup.WithContext(ctx)
		var begun atomic.Int64
		for range goroutines {
			group.Go(func() error {
				for begun.Add(1) <= int64(n) {
					if err := l.pair(ctx, b.newName()); err != nil {
						return err
					}
				}
				return nil
			})
		}
		return n, group.Wait()
	}}
}

// measureRedis measures pairs on Redis, which is emptied before each run: only package once
// keeps what was done.
func (b *lockBench) measureRedis(ctx context.Context) error {
	locks := b.redisLocks()
	for _, goroutines := range b.options.holders {
		var list []contender
		for _, l := range locks {
			c := b.pairs(l, goroutines, b.options.pairs)
			c.prepare = func(ctx context.Context) error { return b.client.FlushDB(ctx).Err() }
			list = append(list, c)
		}
		all, err := b.runs(ctx, list)
		if err != nil {
			return err
		}
		part := fmt.Sprintf("Acquire and done, or lock and unlock, on Redis: %d at a time", goroutines)
		b.addPairs(part, locks, all, atLeast(0.6))
		for _, against := range []string{byRedislock, byRedsync} {
			b.results.add(figure{Part: part, Name: byStore, Against: against, Ratio: all[byStore].over(all[against], sample.rate), Aim: atLeast(1)})
		}
	}
	return nil
}

// measureMySQL measures pairs on MySQL, a tenth as many: each commits twice.
func (b *lockBench) measureMySQL(ctx context.Context) error {
	if _, err := b.db.ExecContext(ctx, locksTable); err != nil {
		return err
	}
	locks := b.mysqlLocks()
	for _, goroutines := range b.options.holders {
		var list []contender
		for _, l := range locks {
			list = append(list, b.pairs(l, goroutines, max(1, b.options.pairs/10)))
		}
		all, err := b.runs(ctx, list)
		if err != nil {
			return err
		}
		b.addPairs(fmt.Sprintf("Acquire and done on MySQL: %d at a time", goroutines), locks, all, nil)
	}
	return nil
}

// addPairs adds the rates of locks, and their ratios to the first one, with the aim of
// the store.
func (b *lockBench) addPairs(part string, locks []lock, all map[string]samples, a *aim) {
	for i, l := range locks {
		against, goal := "", (*aim)(nil)
		if i > 0 {
			against = locks[0].name
		}
		if l.name == byStore {
			goal = a
		}
		b.results.rates(part, all, l.name, "pairs/s", against, goal)
	}
}

// pairCost is what one pair cost its server.
type pairCost struct {
	counts

	Trips float64
}

// countPairs adds what one pair of each store costs. Nothing here depends on time.
func (b *lockBench) countPairs(ctx context.Context) error {
	onRedis, onMySQL, err := b.costsOfPairs(ctx)
	if err != nil {
		return err
	}
	add := func(name string, value float64, a *aim) {
		b.results.add(figure{Part: "What acquire and done cost on the wire", Exact: true, Name: name, Value: spreadOf(value), Aim: a})
	}
	add("Redis: round trips", onRedis.Trips, atMost(2))
	add("Redis: commands, those of scripts included", onRedis.Commands, nil)
	add("MySQL: round trips", onMySQL.Trips, nil)
	add("MySQL: statements", onMySQL.Statements, nil)
	return nil
}

// costsOfPairs counts one pair of each store.
func (b *lockBench) costsOfPairs(ctx context.Context) (onRedis, onMySQL pairCost, err error) {
	l, err := b.newLines(ctx)
	if err != nil {
		return onRedis, onMySQL, err
	}
	own := newLockStores(l.own.db, l.own.client)
	if err := b.client.FlushDB(ctx).Err(); err != nil {
		return onRedis, onMySQL, err
	}
	if onRedis, err = b.costOfPair(ctx, own.redis, l.redisWire); err != nil {
		return onRedis, onMySQL, err
	}
	onMySQL, err = b.costOfPair(ctx, own.mysql, l.mysqlWire)
	return onRedis, onMySQL, err
}

// costOfPair acquires and ends two names to warm up, and a few to count. The cheapest one did
// not ask for the role of its server: see [lines.costOf].
func (b *lockBench) costOfPair(ctx context.Context, store once.Store, w *wire) (c pairCost, err error) {
	const tries = 3
	pair := func() error { return byStoreOf(store)(ctx, b.newName()) }
	for range 2 {
		if err := pair(); err != nil {
			return c, err
		}
	}
	for try := range tries {
		if err := b.meter.calibrate(ctx); err != nil {
			return c, err
		}
		var one pairCost
		before := w.trips.Load()
		if one.counts, err = b.meter.counted(ctx, pair); err != nil {
			return c, err
		}
		one.Trips = float64(w.trips.Load() - before)
		if try == 0 || one.Trips+one.Statements < c.Trips+c.Statements {
			c = one
		}
	}
	return c, nil
}
