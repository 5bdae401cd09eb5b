package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
)

// openMySQL makes a pool of connections to the site's database. It does not
// connect.
func openMySQL(c *config) (*sql.DB, error) {
	db, err := mysql.Open(c.mysqlDSN, mysql.WithMaxOpen(c.mysqlConnections))
	if err != nil {
		return nil, fmt.Errorf("--mysql-dsn (%s): %w", environmentName("mysql-dsn"), err)
	}
	return db, nil
}

// errRedisURL leaves the reason out, which would quote the URL and with it a
// password.
var errRedisURL = errors.New("--redis-url (ACTIVITYD_REDIS_URL): cannot be read: want redis://user:password@host:6379/0, rediss://, " +
	"unix:///path/to/socket, redis+sentinel://host:26379/0?master_name=name or redis+cluster://host:6379?addr=host:6379")

// openRedis makes a client for one server, Sentinel or Cluster. It does not
// connect.
func openRedis(address string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(address, "://")
	switch kind, mode, _ := strings.Cut(scheme, "+"); mode {
	case "":
		return openSingle(address)
	case "sentinel":
		return openSentinel(kind + "://" + rest)
	case "cluster":
		return openCluster(kind + "://" + rest)
	}
	return nil, errRedisURL
}

// errClusterDatabase: go-redis would take database 0 whatever the URL says.
var errClusterDatabase = errors.New("--redis-url (ACTIVITYD_REDIS_URL): names a database after the host, and a cluster has database 0 only: leave it out")

// namedRedis names the flag in an error of the index for which it is to blame.
func namedRedis(err error) error {
	if errors.Is(err, index.ErrNoDatabase) {
		return fmt.Errorf("--redis-url (%s): %w: want a number that the server has, as in redis://host:6379/0", environmentName("redis-url"), err)
	}
	return err
}

// Commands are tried once more, for the connections that a restarted server has
// left in the pool; beyond that the callers know better what to do than the
// client. Dialling is not repeated at all, so that a read falls back at once.
const (
	redisRetries     = 1
	redisDialRetries = 1
)

func openSingle(address string) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(address)
	if err != nil || o.DB < 0 {
		return nil, errRedisURL
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDialRetries
	return redis.NewClient(o), nil
}

func openSentinel(address string) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(address)
	if err != nil || o.MasterName == "" || o.DB < 0 {
		return nil, errRedisURL
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDialRetries
	return redis.NewFailoverClient(o), nil
}

func openCluster(address string) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(address)
	if err != nil {
		return nil, errRedisURL
	}
	if u, err := url.Parse(address); err == nil && strings.Trim(u.Path, "/") != "" && u.Path != "/0" {
		return nil, errClusterDatabase
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDialRetries
	return redis.NewClusterClient(o), nil
}

// newIndex makes the index that the configuration describes.
func newIndex(c *config, client redis.UniversalClient) (*index.Index, error) {
	options, err := c.indexOptions()
	if err != nil {
		return nil, err
	}
	return index.New(client, options), nil
}

// newLogger returns the process' logger, and silences the Redis client, whose
// errors come back from its methods anyway.
func newLogger(c *config, w io.Writer) *slog.Logger {
	redis.SetLogger(silent{})
	options := &slog.HandlerOptions{Level: c.level()}
	if c.logFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// closeAll closes resources in the reverse order of their opening.
func closeAll(closers []io.Closer) error {
	var errs []error
	for _, closer := range slices.Backward(closers) {
		if err := closer.Close(); err != nil {
			errs = append(errs, fmt.Errorf("close: %w", err))
		}
	}
	return errors.Join(errs...)
}
