package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/once"
)

// lease is that of each lock.
const lease = 30 * time.Second

// lock acquires a name that is new, and gives it back, or says that its work is done.
type lock struct {
	name string
	pair func(ctx context.Context, name string) error
}

// benchOnce compares both stores, each with locks that do less on its server.
func (b *bench) benchOnce(ctx context.Context) error {
	onMySQL := once.NewMySQL(b.db)
	onRedis := once.NewRedis(b.client)
	locker, mutexes := redislock.New(b.client), redsync.New(goredis.NewPool(b.client))
	redisLocks := []lock{
		{"SET NX PX, DEL", func(ctx context.Context, name string) error {
			if err := b.client.SetArgs(ctx, name, 1, redis.SetArgs{Mode: "NX", TTL: lease}).Err(); err != nil {
				return err
			}
			return b.client.Del(ctx, name).Err()
		}},
		{"redislock", func(ctx context.Context, name string) error {
			l, err := locker.Obtain(ctx, name, lease, nil)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}},
		{"redsync", func(ctx context.Context, name string) error {
			m := mutexes.NewMutex(name, redsync.WithExpiry(lease))
			if err := m.LockContext(ctx); err != nil {
				return err
			}
			_, err := m.UnlockContext(ctx)
			return err
		}},
		{byStore, pairOn(onRedis)},
	}
	mysqlLocks := []lock{{"INSERT, UPDATE", b.insertAndUpdate}, {"GET_LOCK, RELEASE_LOCK", b.getAndReleaseLock}, {byStore, pairOn(onMySQL)}}
	if _, err := b.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS bench_locks (name VARCHAR(200) CHARACTER SET ascii COLLATE ascii_bin PRIMARY KEY,"+
		" owner VARCHAR(100) NOT NULL, until DATETIME(3) NOT NULL, done BOOL NOT NULL) ENGINE=InnoDB"); err != nil {
		return err
	}
	if err := b.compareLocks(ctx, "Redis", b.size.pairs, 0.4, redisLocks); err != nil {
		return err
	}
	return b.compareLocks(ctx, "MySQL", b.size.pairs/10, 0.35, mysqlLocks)
}

// byStore is an attempt that succeeds: two operations on a store.
const byStore = "activityd: acquire, done"

func pairOn(store once.Store) func(context.Context, string) error {
	terms := once.Terms{Lease: lease, Keep: once.DefaultKeep, Attempts: once.DefaultAttempts}
	return func(ctx context.Context, name string) error {
		owner := rand.Text()
		for _, op := range []once.Operation{{Action: once.Acquire, Owner: owner, Terms: terms}, {Action: once.Finish, Owner: owner}} {
			r, err := store.Apply(ctx, name, op)
			if err == nil && r.Outcome != once.OK {
				err = fmt.Errorf("%s %s: %s", op.Action, name, r.Outcome)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

// compareLocks runs pairs of each lock, a single pair at a time and 16 at a time.
func (b *bench) compareLocks(ctx context.Context, server string, n int, least float64, locks []lock) error {
	var last atomic.Int64
	for _, holders := range []int{1, 16} {
		var list []contender
		var names []string
		for _, l := range locks {
			names = append(names, l.name)
			list = append(list, contender{name: l.name, run: func(ctx context.Context) (outcome, error) {
				return outcome{ops: n}, parallel(ctx, holders, n, func(ctx context.Context, _, _ int) error {
					return l.pair(ctx, fmt.Sprintf("bench:%d", last.Add(1)))
				})
			}})
		}
		all, err := b.rounds(ctx, list...)
		if err != nil {
			return err
		}
		b.report.rates(fmt.Sprintf("Acquire and done, or lock and unlock, on %s: %d at a time", server, holders), "pairs/s", all, map[string]bound{byStore: atLeast(least)}, names...)
	}
	return nil
}

// insertAndUpdate writes the row of a successful attempt, in two transactions.
func (b *bench) insertAndUpdate(ctx context.Context, name string) error {
	owner := rand.Text()
	if _, err := b.db.ExecContext(ctx, "INSERT INTO bench_locks VALUES (?, ?, NOW(3) + INTERVAL 30 SECOND, FALSE)", name, owner); err != nil {
		return err
	}
	_, err := b.db.ExecContext(ctx, "UPDATE bench_locks SET done = TRUE WHERE name = ? AND owner = ?", name, owner)
	return err
}

// getAndReleaseLock takes a lock of the connection: it is on no disk, and ends with the
// connection.
func (b *bench) getAndReleaseLock(ctx context.Context, name string) (err error) {
	c, err := b.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	for _, statement := range []string{"SELECT GET_LOCK(?, 0)", "SELECT RELEASE_LOCK(?)"} {
		var ok bool
		if err := c.QueryRowContext(ctx, statement, name).Scan(&ok); err != nil || !ok {
			return fmt.Errorf("%s of %s: %t: %w", statement, name, ok, err)
		}
	}
	return nil
}
