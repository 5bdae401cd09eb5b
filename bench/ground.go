package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/mysql"
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

	redisSettings string // as the report quotes them
}

// newGround starts the servers and makes the tables. The caller closes it.
func newGround(ctx context.Context) (*ground, error) {
	return newGroundWith(ctx, redisSettings, "--appendonly", "yes", "--appendfsync", "everysec")
}

// newGroundWith is newGround with arguments for Redis, and what they are called
// in the report.
func newGroundWith(ctx context.Context, settings string, redisArgs ...string) (g *ground, err error) {
	g = &ground{log: slog.New(slog.DiscardHandler), redisSettings: settings}
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
	g.redis, err = localserver.StartRedis(ctx, localserver.WithArgs(append(redisArgs, patientScripts()...)...))
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
	if g.index, err = newIndex(g.client); err != nil {
		return g, err
	}
	return g, schema.Apply(ctx, g.db)
}

// patientScripts keep Redis from calling itself busy when the machine stands still
// in the middle of a script.
func patientScripts() []string { return []string{"--lua-time-limit", "600000"} }

// newIndex makes an index with the settings of a service.
func newIndex(client redis.UniversalClient) (*index.Index, error) {
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		return nil, err
	}
	return index.New(client, index.Options{Settings: settings}), nil
}

// openDB makes a pool of connections as the service does. It is closed with the
// ground.
func (g *ground) openDB(opts ...func(*sql.DB)) (*sql.DB, error) {
	return g.openDBAt(g.mysql.Addr(), opts...)
}

// openDBAt is openDB by way of another socket.
func (g *ground) openDBAt(socket string, opts ...func(*sql.DB)) (*sql.DB, error) {
	db, err := mysql.Open(strings.Replace(g.mysql.DSN(database), g.mysql.Addr(), socket, 1), opts...)
	if err != nil {
		return nil, err
	}
	g.closers = append(g.closers, db)
	return db, nil
}

// openRedis makes a client as the service does. It is closed with the ground.
func (g *ground) openRedis() (*redis.Client, error) { return g.openRedisAt(g.redis.URL()) }

// openRedisAt is openRedis for another server, or by way of another socket.
func (g *ground) openRedisAt(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
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
