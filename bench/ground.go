package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/schema"
)

// The settings of the servers, which the report quotes: durable, as in
// production, and with room for a million tasks.
const (
	mysqlSettings = "innodb_flush_log_at_trx_commit=1, innodb_buffer_pool_size=1G, innodb_log_file_size=256M, skip-log-bin"
	redisSettings = "appendonly yes, appendfsync everysec"
)

const database = "bench"

// ground is what both sides stand on: private servers, and a connection pool
// and a client to them. Both sides get the same.
type ground struct {
	mysql   *localserver.MySQL
	redis   *localserver.Redis
	db      *sql.DB
	client  *redis.Client
	index   *index.Index
	log     *slog.Logger
	closers []io.Closer
}

// newGround starts the servers and makes the tables. The caller closes it.
func newGround(ctx context.Context) (g *ground, err error) {
	g = &ground{log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.Close())
		}
	}()
	g.mysql, err = localserver.StartMySQL(ctx, localserver.WithFlushLog(1), localserver.WithBufferPool(1<<30),
		localserver.WithArgs("--loose-innodb-log-file-size=268435456"))
	if err != nil {
		return g, err
	}
	g.closers = append(g.closers, g.mysql)
	g.redis, err = localserver.StartRedis(ctx, localserver.WithArgs("--appendonly", "yes", "--appendfsync", "everysec"))
	if err != nil {
		return g, err
	}
	g.closers = append(g.closers, g.redis)
	if err := g.mysql.CreateDatabase(ctx, database); err != nil {
		return g, err
	}
	if g.db, err = g.openDB(); err != nil {
		return g, err
	}
	if g.client, err = g.openRedis(); err != nil {
		return g, err
	}
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		return g, err
	}
	g.index = index.New(g.client, index.Options{Settings: settings})
	return g, schema.Apply(ctx, g.db)
}

// openDB makes a pool of connections as the service does. It is closed with the
// ground.
func (g *ground) openDB(opts ...contacts.PoolOption) (*sql.DB, error) {
	db, err := contacts.OpenMySQL(g.mysql.DSN(database), opts...)
	if err != nil {
		return nil, err
	}
	g.closers = append(g.closers, db)
	return db, nil
}

// openRedis makes a client as the service does. It is closed with the ground.
func (g *ground) openRedis() (*redis.Client, error) {
	o, err := redis.ParseURL(g.redis.URL())
	if err != nil {
		return nil, fmt.Errorf("the URL of the private Redis: %w", err)
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	g.closers = append(g.closers, client)
	return client, nil
}

// Close ends everything that was opened, the last first.
func (g *ground) Close() error {
	var errs []error
	for _, c := range slices.Backward(g.closers) {
		errs = append(errs, c.Close())
	}
	g.closers = nil
	return errors.Join(errs...)
}
