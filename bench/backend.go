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
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/testing/localserver"
)

// The settings of the servers, as the report tells them: MySQL durable, as in
// production, and with room for a million tasks.
const (
	mysqlSettings = "innodb_flush_log_at_trx_commit=1, innodb_buffer_pool_size=1G, innodb_log_file_size=256M, skip-log-bin"
	redisSettings = "no persistence; in batches, throughput, wake and push: appendonly yes, appendfsync everysec, or as named"
)

const database = "bench"

// backend is private servers with the tables, a pool of connections and a client.
// All contenders use the same ones.
type backend struct {
	mysql   *localserver.MySQL
	redis   *localserver.Redis
	db      *sql.DB
	client  *redis.Client
	index   *index.Index
	log     *slog.Logger
	closers []io.Closer
}

// newBackend starts the servers and creates the tables. The caller closes it.
func newBackend(ctx context.Context) (b *backend, err error) {
	b = &backend{log: slog.New(slog.DiscardHandler)}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	b.mysql, err = localserver.StartMySQL(ctx, "--innodb-flush-log-at-trx-commit=1", "--innodb-buffer-pool-size=1073741824",
		"--loose-innodb-log-file-size=268435456")
	if err != nil {
		return b, err
	}
	b.closers = append(b.closers, b.mysql)
	b.redis, err = localserver.StartRedis(ctx, patientScripts()...)
	if err != nil {
		return b, err
	}
	b.closers = append(b.closers, b.redis)
	if err := b.mysql.CreateDatabase(ctx, database); err != nil {
		return b, err
	}
	if b.db, err = b.openDB(); err != nil {
		return b, err
	}
	if b.client, err = b.openRedis(); err != nil {
		return b, err
	}
	if b.index, err = newIndex(b.client); err != nil {
		return b, err
	}
	return b, schema.Apply(ctx, b.db)
}

// patientScripts are arguments that keep Redis from refusing commands when the machine
// stalls in the middle of a script.
func patientScripts() []string { return []string{"--lua-time-limit", "600000"} }

// newIndex makes an index with the settings of a service.
func newIndex(client redis.UniversalClient) (*index.Index, error) {
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		return nil, err
	}
	return index.New(client, index.Options{Settings: settings}), nil
}

// appendOnly turns the append-only file of Redis on, synced every second, or off.
func (b *backend) appendOnly(ctx context.Context, on bool) error {
	if err := b.client.ConfigSet(ctx, "appendfsync", "everysec").Err(); err != nil {
		return err
	}
	if !on {
		return b.client.ConfigSet(ctx, "appendonly", "no").Err()
	}
	if err := b.client.ConfigSet(ctx, "appendonly", "yes").Err(); err != nil {
		return err
	}
	for _, field := range []string{"aof_rewrite_scheduled", "aof_rewrite_in_progress"} { // of what Redis holds already
		if err := awaitZero(ctx, b.client, field); err != nil {
			return err
		}
	}
	return nil
}

// awaitZero waits until a field of INFO persistence is 0.
func awaitZero(ctx context.Context, client *redis.Client, field string) error {
	for {
		value, err := infoField(ctx, client, "persistence", field)
		if err != nil || value == "0" {
			return err
		}
		if err := retry.Sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// openDB opens a pool of connections as the service does. It is closed with the
// backend.
func (b *backend) openDB(opts ...func(*sql.DB)) (*sql.DB, error) {
	return b.openDBAt(b.mysql.Addr(), opts...)
}

// openDBAt is openDB through another socket.
func (b *backend) openDBAt(socket string, opts ...func(*sql.DB)) (*sql.DB, error) {
	db, err := mysql.Open(strings.Replace(b.mysql.DSN(database), b.mysql.Addr(), socket, 1), opts...)
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, db)
	return db, nil
}

// openRedis makes a client as the service does. It is closed with the backend.
func (b *backend) openRedis() (*redis.Client, error) { return b.openRedisAt(b.redis.URL()) }

// openRedisAt is openRedis for another server, or through another socket.
func (b *backend) openRedisAt(url string) (*redis.Client, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of the private Redis: %w", err)
	}
	o.ContextTimeoutEnabled = true
	client := redis.NewClient(o)
	b.closers = append(b.closers, client)
	return client, nil
}

// Close closes everything that was opened, the last first.
func (b *backend) Close() error {
	var errs []error
	for _, c := range slices.Backward(b.closers) {
		errs = append(errs, c.Close())
	}
	b.closers = nil
	return errors.Join(errs...)
}
