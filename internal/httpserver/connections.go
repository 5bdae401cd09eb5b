package httpserver

import (
	"fmt"
	"net"
	"net/http"

	"golang.org/x/sys/unix"
)

// maxConnections bounds the default of [Options.MaxConnections].
const maxConnections = 10_000

// defaultConnections is the bound for the limit of files that this process has.
func defaultConnections() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return maxConnections
	}
	return connectionsFor(uint64(limit.Cur)) //nolint:unconvert // it is signed on FreeBSD
}

// connectionsFor returns the default for a process that may have so many files open. Half
// of them are left to the connections to MySQL and Redis, and to further listeners.
func connectionsFor(files uint64) int { return int(max(1, min(files/2, maxConnections))) }

// bounded is the listener of a server. It closes connections beyond MaxConnections at once
// rather than let them wait: a load balancer or client then tries another server, and where
// clients hold connections without using them, waiting would not end.
type bounded struct {
	net.Listener

	server *Server
}

// Accept returns the next connection within the bound. [Server.connState] releases it.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		s := b.server
		if s.open.Add(1) <= int64(s.options.MaxConnections) {
			s.options.Open.Inc()
			return c, nil
		}
		s.open.Add(-1)
		s.options.Refused.Inc()
		s.refusedConnections.count("over_limit", fmt.Sprintf("%d are open, and no more are taken", s.options.MaxConnections))
		_ = c.Close()
	}
}

// connState is called by net/http when a connection ends, once for each that was
// accepted.
func (s *Server) connState(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		s.open.Add(-1)
		s.options.Open.Dec()
	}
}
