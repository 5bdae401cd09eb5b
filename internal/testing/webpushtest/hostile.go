package webpushtest

import (
	"bytes"
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Manner is how a hostile push service treats requests.
type Manner string

// The manners. All accept connections and complete the handshake of TLS.
const (
	Hangs   Manner = "hangs"   // no byte is answered
	Resets  Manner = "resets"  // the connection is reset when a request comes
	Drips   Manner = "drips"   // the answer has one byte a second
	Endless Manner = "endless" // the answer never ends
	Wavers  Manner = "wavers"  // of 12 requests, the first 6 are accepted, and the others hang
)

// Hostile is push services that members made up, each with a port of its own. Every other one of a
// manner speaks HTTP/2, the others HTTP/1.1.
type Hostile struct {
	services []*hostileService
	root     []byte
	ending   context.CancelFunc
	running  sync.WaitGroup
	counting sync.Mutex // of most

	open, most, opened, requests, accepted, written atomic.Int64
}

type hostileService struct {
	*Hostile

	listener net.Listener
	config   *tls.Config
	manner   Manner
	private  *ecdh.PrivateKey
	n        atomic.Int64 // requests

	mu   sync.Mutex
	live map[net.Conn]bool
}

// StartHostile starts n push services, which have the manners in turn. They are to be closed.
func StartHostile(n int, manners ...Manner) (h *Hostile, err error) {
	certificate, root, err := selfSigned()
	if err != nil {
		return nil, err
	}
	private, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	h = &Hostile{root: root, ending: cancel}
	for i := range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			h.Close()
			return nil, err
		}
		protocol := []string{"h2", "http/1.1"}[i/len(manners)%2]
		s := &hostileService{
			Hostile: h, listener: l, manner: manners[i%len(manners)], private: private, live: make(map[net.Conn]bool),
			config: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12, NextProtos: []string{protocol}},
		}
		h.services = append(h.services, s)
		if s.manner == Wavers {
			h.running.Go(s.waver)
		} else {
			h.running.Go(func() { s.accept(ctx) })
		}
	}
	return h, nil
}

// Close ends the push services and cuts their connections.
func (h *Hostile) Close() {
	h.ending()
	for _, s := range h.services {
		_ = s.listener.Close()
		s.mu.Lock()
		for c := range s.live {
			_ = c.Close()
		}
		s.mu.Unlock()
	}
	h.running.Wait()
}

// RootPEM returns the certificate that a client has to trust.
func (h *Hostile) RootPEM() []byte { return h.root }

// Subscription returns one at the i-th push service.
func (h *Hostile) Subscription(i int) *Subscription {
	s := h.services[i]
	u := &Subscription{id: rand.Text(), private: s.private, auth: make([]byte, 16)}
	_, _ = rand.Read(u.auth) // it never fails
	u.endpoint = fmt.Sprintf("https://%s/push/%s", s.listener.Addr(), u.id)
	return u
}

// Conns returns how many connections are open, how many were at most, and how many were opened.
func (h *Hostile) Conns() (open, most, opened int) {
	return int(h.open.Load()), int(h.most.Load()), int(h.opened.Load())
}

// Requests returns how many requests came, those without an answer included, and how many of them
// were accepted.
func (h *Hostile) Requests() (n, accepted int) { return int(h.requests.Load()), int(h.accepted.Load()) }

// Written returns how many bytes were written of answers.
func (h *Hostile) Written() int { return int(h.written.Load()) }

// count takes note of a connection that was opened, and returns what ends it.
func (h *Hostile) count() (closed func()) {
	h.opened.Add(1)
	open := h.open.Add(1)
	h.counting.Lock()
	h.most.Store(max(h.most.Load(), open))
	h.counting.Unlock()
	return sync.OnceFunc(func() { h.open.Add(-1) })
}

// waver serves requests by [net/http].
func (s *hostileService) waver() {
	var protocols http.Protocols
	protocols.SetHTTP1(s.config.NextProtos[0] != "h2")
	protocols.SetHTTP2(s.config.NextProtos[0] == "h2")
	closers := make(map[net.Conn]func())
	server := &http.Server{
		Protocols: &protocols, TLSConfig: s.config, ReadHeaderTimeout: time.Minute, ErrorLog: discarded,
		ConnState: func(c net.Conn, state http.ConnState) {
			s.mu.Lock()
			defer s.mu.Unlock()
			switch state {
			case http.StateNew:
				closers[c], s.live[c] = s.count(), true
			case http.StateClosed, http.StateHijacked:
				closers[c]()
				delete(closers, c)
				delete(s.live, c)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s.requests.Add(1)
			_, _ = io.Copy(io.Discard, r.Body)
			if (s.n.Add(1)-1)%12 < 6 {
				s.accepted.Add(1)
				w.WriteHeader(http.StatusCreated)
				return
			}
			<-r.Context().Done()
		}),
	}
	_ = server.ServeTLS(s.listener, "", "")
	_ = server.Close()
}

// accept serves connections until the listener is closed.
func (s *hostileService) accept(ctx context.Context) {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.running.Go(func() {
			closed := s.count()
			s.mu.Lock()
			s.live[c] = true
			s.mu.Unlock()
			defer func() {
				_ = c.Close()
				closed()
				s.mu.Lock()
				delete(s.live, c)
				s.mu.Unlock()
			}()
			_ = s.serve(ctx, c)
		})
	}
}

// serve treats a connection in the manner of the push service.
func (s *hostileService) serve(ctx context.Context, raw net.Conn) error {
	c := tls.Server(raw, s.config)
	if err := c.HandshakeContext(ctx); err != nil {
		return err
	}
	buffer := make([]byte, 4096)
	if _, err := c.Read(buffer); err != nil {
		return err
	}
	s.requests.Add(1)
	switch s.manner {
	case Hangs:
	case Resets:
		tcp, ok := raw.(*net.TCPConn)
		if !ok {
			return errors.New("no TCP")
		}
		return tcp.SetLinger(0)
	default:
		go func() { _ = s.answer(ctx, c) }()
	}
	_, err := io.Copy(io.Discard, c)
	return err
}

// answer writes an answer that does not end.
func (s *hostileService) answer(ctx context.Context, c *tls.Conn) error {
	begin, more := []byte("HTTP/1.1 503 Service Unavailable\r\n"), []byte("X-More: and more, and more, and more, and more, and more\r\n")
	if s.config.NextProtos[0] == "h2" {
		begin = append(frame(4, 0, 0, nil), frame(1, 0, 1, []byte{0x48, 0x03, '5', '0', '3'})...) // SETTINGS, and HEADERS that do not end
		more = frame(9, 0, 1, append([]byte{0, 1, 'x', 60}, bytes.Repeat([]byte{'a'}, 60)...))    // CONTINUATION
	}
	if s.manner == Endless {
		// Much at once, and no more than is taken: the work of the push service itself is not to slow others down.
		more = bytes.Repeat(more, 16<<10/len(more))
		if tcp, ok := c.NetConn().(*net.TCPConn); ok {
			_ = tcp.SetWriteBuffer(64 << 10) // else it is larger
		}
		for {
			n, err := c.Write(begin)
			s.written.Add(int64(n))
			if err != nil {
				return err
			}
			begin = more
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for _, b := range append(begin, more...) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if _, err := c.Write([]byte{b}); err != nil {
			return err
		}
	}
	return nil
}

// frame returns a frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	n := len(payload)
	head := []byte{byte(n >> 16), byte(n >> 8), byte(n), kind, flags}
	return append(binary.BigEndian.AppendUint32(head, stream), payload...)
}
