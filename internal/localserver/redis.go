package localserver

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a private Redis server.
type Redis struct {
	*server
}

// AOF are arguments of [StartRedis] that make Redis keep its data: each write reaches the
// disk before its reply is sent. Without them its data are lost when it stops.
var AOF = []string{"--appendonly", "yes", "--appendfsync", "always"}

// StartRedis starts a Redis that keeps nothing on disk, unless args, which are added to
// its command line, say so (see [AOF]). It returns once the server answers. ctx bounds
// the start only: the server runs until Close. An error says what to install, or carries
// the end of the server's log.
func StartRedis(ctx context.Context, args ...string) (*Redis, error) {
	return startRedis(ctx, func(*server) ([]string, error) {
		return append([]string{"--port", "0", "--save", "", "--appendonly", "no"}, args...), nil
	})
}

// startRedis starts a server with arguments that may depend on its folder.
func startRedis(ctx context.Context, argsFor func(*server) ([]string, error)) (*Redis, error) {
	program, ok := FindRedis()
	if !ok {
		return nil, missing("redis-server", "redis-server")
	}
	s, err := newServer("redis-server")
	if err != nil {
		return nil, err
	}
	r := &Redis{s}
	args, err := argsFor(s)
	s.argv = append(append([]string{program}, args...),
		"--unixsocket", r.Addr(),
		"--unixsocketperm", "700",
		"--dir", s.dir,
		"--daemonize", "no")
	s.ping = r.ping
	if err == nil {
		err = s.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	return r, nil
}

// Addr is the path of the server's unix socket.
func (r *Redis) Addr() string { return r.path("sock") }

// URL is the server's address for go-redis' ParseURL.
func (r *Redis) URL() string { return "unix://" + r.Addr() }

// ping also fails while the server loads its data.
func (r *Redis) ping(ctx context.Context) error {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: r.Addr(), MaxRetries: -1, DialTimeout: time.Second, ReadTimeout: time.Second})
	return errors.Join(client.Ping(ctx).Err(), client.Close())
}
