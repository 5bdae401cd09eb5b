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

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
)

// openMySQL makes a pool of connections to the site's database. It does not
// connect.
func openMySQL(c *config) (*sql.DB, error) {
	db, err := contacts.OpenMySQL(c.mysqlDSN, contacts.WithMaxOpen(c.mysqlConnections))
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
func openRedis(url string) (redis.UniversalClient, error) {
	scheme, rest, _ := strings.Cut(url, "://")
	switch kind, mode, _ := strings.Cut(scheme, "+"); mode {
	case "":
		return openSingle(url)
	case "sentinel":
		return openSentinel(kind + "://" + rest)
	case "cluster":
		return openCluster(kind + "://" + rest)
	}
	return nil, errRedisURL
}

// Commands are tried once more, for the connections that a restarted server has
// left in the pool; beyond that the callers know better what to do than the
// client. Dialling is not repeated at all, so that a read falls back at once.
const (
	redisRetries     = 1
	redisDialRetries = 1
)

func openSingle(url string) (redis.UniversalClient, error) {
	o, err := redis.ParseURL(url)
	if err != nil {
		return nil, errRedisURL
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDialRetries
	return redis.NewClient(o), nil
}

func openSentinel(url string) (redis.UniversalClient, error) {
	o, err := redis.ParseFailoverURL(url)
	if err != nil || o.MasterName == "" {
		return nil, errRedisURL
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDialRetries
	return redis.NewFailoverClient(o), nil
}

func openCluster(url string) (redis.UniversalClient, error) {
	o, err := redis.ParseClusterURL(url)
	if err != nil {
		return nil, errRedisURL
	}
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, redisRetries, redisDialRetries
	return redis.NewClusterClient(o), nil
}

// newIndex makes the index that the configuration describes. The observer may be
// nil.
func newIndex(c *config, client redis.UniversalClient, observer index.Observer) (*index.Index, error) {
	options, err := c.indexOptions()
	if err != nil {
		return nil, err
	}
	options.Observer = observer
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
