package localserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Redis is a private Redis server.
type Redis struct {
	*server
}

// StartRedis starts a Redis that keeps nothing on disk (see [WithAOF]) and
// returns once it answers. ctx bounds the start only: the server runs until
// Close. An error says what to install, or carries the end of the server's log.
func StartRedis(ctx context.Context, opts ...Option) (*Redis, error) {
	program, ok := FindRedis()
	if !ok {
		return nil, missing("redis-server", "redis-server")
	}
	s, err := newServer("redis-server")
	if err != nil {
		return nil, err
	}
	r := &Redis{s}
	s.argv = arguments([]string{
		program,
		"--port", "0",
		"--unixsocket", r.Addr(),
		"--unixsocketperm", "700",
		"--dir", s.dir,
		"--save", "",
		"--appendonly", "no",
		"--daemonize", "no",
	}, opts)
	s.ping = r.ping
	if err := s.start(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return r, nil
}

// Addr is the path of the server's unix socket.
func (r *Redis) Addr() string { return r.path("sock") }

// URL is the server's address as go-redis' ParseURL takes it.
func (r *Redis) URL() string { return "unix://" + r.Addr() }

// ping asks for a PONG on a connection of its own. A server that is still
// loading its data answers with an error instead.
func (r *Redis) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", r.Addr())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	reply := make([]byte, 128)
	n, err := conn.Read(reply)
	if err != nil {
		return err
	}
	if answer := strings.TrimSpace(string(reply[:n])); answer != "+PONG" {
		return fmt.Errorf("PING was answered with %q", answer)
	}
	return nil
}
