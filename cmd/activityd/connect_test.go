package main

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// A database that Redis does not have is an error at the start, and nothing to wait
// for.
func TestARedisWithoutTheDatabaseIsRefused(t *testing.T) {
	t.Parallel()
	dsn := "--mysql-dsn=" + servertest.MySQLDSN(t)
	plain := servertest.Redis(t).URL()
	host, bus := servertest.FreePort(t)
	cluster := servertest.Redis(t, "--bind", host, "--cluster-enabled", "yes", "--cluster-port", bus).URL()
	for _, url := range []string{plain + "?db=99", cluster + "?db=1"} {
		for _, args := range [][]string{
			{"serve", dsn, "--listen=127.0.0.1:0", "--metrics-listen="},
			{"verify", dsn},
			{"reset", "--yes"},
		} {
			isRefused := func(err error) bool { return errors.Is(err, index.ErrNoDatabase) }
			said, err := refusedAtTheStart(t, isRefused, append(args, "--redis-url="+url)...)
			if !isRefused(err) || !strings.HasPrefix(err.Error(), "--redis-url (ACTIVITYD_REDIS_URL): ") {
				t.Errorf("%v on %s: %v\n%s", args, url, err, said)
			}
		}
	}
}

// refusedAtTheStart runs a command that must be refused, and returns its message. It tries three times: a Redis that
// does not answer within 2 s is no reason not to start.
func refusedAtTheStart(t *testing.T, isRefused func(error) bool, args ...string) (said string, err error) {
	t.Helper()
	for try := 0; try < 3 && !isRefused(err); try++ {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // else it would wait for ever
		var out, errs *logtest.Log
		out, errs, err = fed(ctx, nil, args...)
		cancel()
		said = out.String() + errs.String()
	}
	return said, err
}

// With several servers, a command gives up a server out of reach within a second, and reads no replica.
func TestSeveralRedis(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]time.Duration{
		"redis://127.0.0.1:6379/0":                                  5 * time.Second,
		"rediss://user:password@host:6380/1":                        5 * time.Second,
		"unix:///run/redis.sock":                                    5 * time.Second,
		"redis+cluster://host/":                                     time.Second,
		"redis+cluster://host/0?addr=other:6379":                    time.Second,
		"redis+cluster://host?dial_timeout=3s":                      3 * time.Second,
		"redis+sentinel://host/0?master_name=name":                  time.Second,
		"redis+sentinel://host/0?master_name=name&dial_timeout=3s":  3 * time.Second,
		"redis+cluster://host?route_randomly=true":                  0,
		"redis+cluster://host?route_by_latency=true":                0,
		"redis+cluster://host?read_only=true":                       0,
		"redis+sentinel://host?master_name=name&replica_only=true":  0,
		"redis+sentinel://host?master_name=n&route_randomly=true":   0,
		"redis+sentinel://host?master_name=n&route_by_latency=true": 0,
	} {
		client, err := openRedis(url)
		if want == 0 {
			if !errors.Is(err, errReplicas) {
				t.Errorf("%s: %v", url, err)
			}
			continue
		}
		must(t, err)
		got := time.Duration(0)
		switch c := client.(type) {
		case *redis.ClusterClient:
			got = c.Options().DialTimeout
		case *redis.Client:
			got = c.Options().DialTimeout
		}
		if got != want {
			t.Errorf("%s: dials for %v, want %v", url, got, want)
		}
		must(t, client.Close())
	}
}

// A node of a cluster that accepts a connection and says nothing of TLS holds a call up only
// until package index gives the node up, and with it the connections that are being made.
func TestATLSHandshakeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	silent, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	client, err := openRedis("rediss+cluster://" + silent.Addr().String() + "?dial_timeout=1h")
	must(t, err)
	t.Cleanup(func() { _ = client.Close() })
	cluster, _ := client.(*redis.ClusterClient)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := cluster.Options().Dialer(ctx, "tcp", silent.Addr().String())
		ended <- err
	}()
	conn, err := silent.Accept()
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the end of a handshake that was not answered: %v", err)
	}
}
