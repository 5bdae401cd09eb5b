package httpserver

import (
	"fmt"
	"net"
	"net/http"
)

// mostConnections is the default of [Options.MaxConnections] where files are plenty.
const mostConnections = 10_000

// connectionsFor leaves half of the files that a process may have open to everything
// else: the connections to MySQL and Redis, and the other listeners.
func connectionsFor(files uint64) int { return int(max(1, min(files/2, mostConnections))) }

// bounded is the listener of a server, which takes no more connections than the
// server may have. One too many is closed at once, rather than left to wait: a load
// balancer or a client learns at once that it has to go elsewhere, and where clients
// hold connections without using them, waiting has no end.
type bounded struct {
	net.Listener

	server *Server
}

// Accept returns the next connection for which there is room. [Server.connState]
// gives the room back.
func (b bounded) Accept() (net.Conn, error) {
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

// connState is told by net/http how a connection ends, once for each that was
// accepted.
func (s *Server) connState(_ net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		s.open.Add(-1)
		s.options.Open.Dec()
	}
}
