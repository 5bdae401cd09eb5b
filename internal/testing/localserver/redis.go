package localserver

import (
	"context"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a private Redis server, or a Sentinel.
type Redis struct {
	*server
}

// AOF are arguments of [StartRedis] that make Redis keep its data: each write reaches the
// disk before its reply is sent. Without them its data are lost when it stops.
var AOF = []string{"--appendonly", "yes", "--appendfsync", "always"}

// StartRedis starts a Redis that keeps nothing on disk, unless args, added to its
// command line, say otherwise (see [AOF]). It returns once the server answers. ctx bounds
// the start only: the server runs until Close. An error names the package to install, or carries
// the end of the server's log.
func StartRedis(ctx context.Context, args ...string) (*Redis, error) {
	return startRedis(ctx, func(r *Redis, program string) error {
		r.Argv = append([]string{
			program,
			"--port", "0",
			"--unixsocket", r.Addr(),
			"--unixsocketperm", "700",
			"--dir", r.dir,
			"--save", "",
			"--appendonly", "no",
			"--daemonize", "no",
		}, args...)
		return nil
	})
}

// StartSentinel starts a Sentinel, which is the same program as the server. lines are
// added to its configuration, such as "port 26379": a program that asks it, or another
// Sentinel, cannot do so by the unix socket. It is an error if the port is not free.
func StartSentinel(ctx context.Context, lines ...string) (*Redis, error) {
	return startRedis(ctx, func(r *Redis, program string) error {
		file := r.path("sentinel.conf")
		r.Argv = []string{program, file, "--sentinel"}
		lines = append([]string{"port 0", "unixsocket " + r.Addr(), "unixsocketperm 700", "dir " + r.dir}, lines...)
		return os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
	})
}

// startRedis starts the program that was found, as setUp says in argv.
func startRedis(ctx context.Context, setUp func(r *Redis, program string) error) (*Redis, error) {
	program, ok := FindRedis()
	if !ok {
		return nil, missing("redis-server", "redis-server")
	}
	s, err := newServer("redis-server")
	if err != nil {
		return nil, err
	}
	r := &Redis{s}
	s.ping = r.ping
	err = setUp(r, program)
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
