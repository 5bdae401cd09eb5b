package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver/servertest"
)

// A database that Redis does not have is an error at the start, and nothing to wait
// for.
func TestARedisWithoutTheDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dsn := "--mysql-dsn=" + servertest.MySQLDSN(t)
	plain := servertest.Redis(t).URL()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	_, bus, err := net.SplitHostPort(free.Addr().String())
	must(t, errors.Join(err, free.Close()))
	cluster := servertest.Redis(t, "--bind", "127.0.0.1", "--cluster-enabled", "yes", "--cluster-port", bus).URL()
	for _, url := range []string{plain + "?db=99", cluster + "?db=1"} {
		for _, args := range [][]string{
			{"serve", dsn, "--listen=127.0.0.1:0", "--metrics-listen="},
			{"serve", dsn, "--role=workers", "--metrics-listen="},
			{"backfill", dsn},
			{"verify", dsn},
			{"reset", "--yes"},
		} {
			var out, errs bytes.Buffer
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // else it would wait for ever
			root := newRoot(nil, &out, &errs)
			root.SetArgs(append(args, "--redis-url="+url))
			err := root.ExecuteContext(ctx)
			cancel()
			if !errors.Is(err, index.ErrNoDatabase) || !strings.HasPrefix(err.Error(), "--redis-url (ACTIVITYD_REDIS_URL): ") || exitCode(err) != exitFailed {
				t.Errorf("%v on %s: %v\n%s%s", args, url, err, &out, &errs)
			}
		}
	}
	for _, url := range []string{"redis+cluster://host", "redis+cluster://host/", "redis+cluster://host/0", "redis+cluster://host/0?addr=other:6379"} {
		client, err := openRedis(url)
		must(t, err)
		must(t, client.Close())
	}
}
