package httpserver

import (
	"fmt"
	"net"
	"net/http"
	"time"
)

// maxConnections bounds the default of [Options.MaxConnections].
const maxConnections = 10_000

// connectionsFor returns the default for a process that may have so many files open. Half
// of them are left to the connections to MySQL and Redis, and to the other listeners.
func connectionsFor(files uint64) int { return int(max(1, min(files/2, maxConnections))) }

// bounded is the listener of a server. It closes connections beyond MaxConnections at once
// rather than let them wait: a load balancer or client then tries another server, and where
// clients hold connections without using them, waiting would not end.
type bounded struct {
	net.Listener

	server   *Server
	accepted int // connections; only the goroutine that accepts knows it
}

// A process that is late by tooLate accepts so many connections at a time, with a pause between. The
// rest waits in the kernel, where it costs nothing, and those that are open are answered first.
const (
	tooLate     = 50 * time.Millisecond
	latePortion = 16
	latePause   = 5 * time.Millisecond
)

// Accept returns the next connection within the bound. [Server.connState] releases it.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		b.accepted++
		if b.accepted%latePortion == 0 && b.server.options.Late() >= tooLate {
			<-time.After(latePause)
		}
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
