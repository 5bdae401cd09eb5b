package apnstest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// Sizes in bytes, and timeouts.
const (
	streamWindow   = 1 << 20
	connWindow     = 1 << 28
	maxBody        = 1 << 19 // of a request; the rest is not kept
	writeTimeout   = 30 * time.Second
	closeTimeout   = 5 * time.Second
	handshakeLimit = 30 * time.Second
	writeBuffer    = 64 << 10
)

// conn is a connection.
type conn struct {
	s     *Server
	id    int
	nc    *tls.Conn
	fr    *http2.Framer
	flush chan struct{} // something is in bw

	wmu  sync.Mutex // for all that writes
	bw   *bufio.Writer
	enc  *hpack.Encoder
	hbuf bytes.Buffer

	mu       sync.Mutex
	ready    bool     // the first SETTINGS were written
	acked    uint32   // the limit of streams that the client has acknowledged, or the first
	sent     []uint32 // limits that it has not acknowledged yet
	open     map[uint32]*stream
	highest  uint32 // stream
	gone     bool   // GOAWAY was sent
	last     uint32 // its last stream
	verified bool   // a token was
	token    verified

	consumed int // bytes of DATA since the last WINDOW_UPDATE; the reader's own
}

// stream is a request that is not answered yet.
type stream struct {
	header request
	body   []byte
	size   int
}

// serve serves a connection until it ends.
func (s *Server) serve(listener net.Listener, raw net.Conn) {
	defer func() { _ = raw.Close() }()
	nc := tls.Server(raw, s.tls)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeLimit)
	defer cancel()
	c := &conn{s: s, nc: nc, flush: make(chan struct{}, 1), open: map[uint32]*stream{}}
	s.mu.Lock()
	if s.listener != listener {
		s.mu.Unlock()
		return
	}
	s.conns[c] = struct{}{} // from now on it is closed with the server
	s.mu.Unlock()
	defer s.update(func() { delete(s.conns, c) })
	if nc.HandshakeContext(ctx) != nil || nc.ConnectionState().NegotiatedProtocol != "h2" {
		return
	}
	c.bw = bufio.NewWriterSize(nc, writeBuffer)
	c.enc = hpack.NewEncoder(&c.hbuf)
	c.fr = http2.NewFramer(c.bw, bufio.NewReaderSize(nc, writeBuffer))
	c.fr.SetReuseFrames()
	c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)

	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(nc, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	stop := make(chan struct{})
	s.wg.Go(func() { c.flusher(stop) })
	defer close(stop)
	c.write(func() {
		s.update(func() {
			s.stats.Conns++
			c.mu.Lock()
			defer c.mu.Unlock()
			c.id, c.acked, c.sent, c.ready = s.stats.Conns, s.first, []uint32{s.first}, true
		})
		_ = c.fr.WriteSettings(
			http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: c.acked},
			http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow},
			http2.Setting{ID: http2.SettingMaxHeaderListSize, Val: 8000},
		)
		_ = c.fr.WriteWindowUpdate(0, connWindow)
	})
	c.read()
}

// flusher sends the written frames. The next frames gather meanwhile.
func (c *conn) flusher(stop <-chan struct{}) {
	for {
		select {
		case <-c.flush:
		case <-stop:
			return
		}
		c.wmu.Lock()
		_ = c.nc.SetWriteDeadline(time.Now().Add(writeTimeout))
		if c.bw.Flush() != nil {
			_ = c.nc.Close()
		}
		c.wmu.Unlock()
	}
}

// write runs f, which writes frames.
func (c *conn) write(f func()) {
	c.wmu.Lock()
	f()
	c.wmu.Unlock()
	select {
	case c.flush <- struct{}{}:
	default:
	}
}

// read reads frames until the connection ends.
func (c *conn) read() {
	for {
		frame, err := c.fr.ReadFrame()
		if err != nil {
			if bad, ok := err.(http2.StreamError); ok { //nolint:errorlint // the framer's own
				c.reset(bad.StreamID, bad.Code)
				continue
			}
			return
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			c.headers(f)
		case *http2.DataFrame:
			c.data(f)
		case *http2.RSTStreamFrame:
			c.end(f.StreamID)
		case *http2.SettingsFrame:
			c.settings(f)
		case *http2.PingFrame:
			if !f.IsAck() {
				c.write(func() { _ = c.fr.WritePing(true, f.Data) })
			}
		}
	}
}

func (c *conn) settings(f *http2.SettingsFrame) {
	if !f.IsAck() {
		c.write(func() { _ = c.fr.WriteSettingsAck() })
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.sent) > 0 {
		c.acked, c.sent = c.sent[0], c.sent[1:]
	}
}

// limit returns how many streams may be open. A lower limit holds from when the client has
// acknowledged it. It is called with mu held.
func (c *conn) limit() int {
	n := c.acked
	for _, sent := range c.sent {
		n = max(n, sent)
	}
	return int(n)
}

// setLimit changes the limit of streams.
func (c *conn) setLimit(n uint32) {
	c.write(func() {
		c.mu.Lock()
		ready := c.ready
		if ready {
			c.sent = append(c.sent, n)
		}
		c.mu.Unlock()
		if ready { // else it begins with this limit
			_ = c.fr.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: n})
		}
	})
}

// headers begins a request.
func (c *conn) headers(f *http2.MetaHeadersFrame) {
	id := f.StreamID
	c.mu.Lock()
	switch {
	case c.gone && id > c.last:
		c.mu.Unlock()
		return
	case c.open[id] != nil || id <= c.highest: // trailers
		c.mu.Unlock()
		c.reset(id, http2.ErrCodeProtocol)
		return
	}
	c.highest = id
	if len(c.open) >= c.limit() {
		c.mu.Unlock()
		c.reset(id, http2.ErrCodeRefusedStream)
		c.s.update(func() { c.s.stats.Refused++ })
		return
	}
	st := &stream{header: readHeader(f.Fields)}
	c.open[id] = st
	n := len(c.open)
	c.mu.Unlock()
	c.s.mu.Lock()
	c.s.stats.MaxOpen = max(c.s.stats.MaxOpen, n)
	c.s.mu.Unlock()
	if f.StreamEnded() {
		c.whole(id, st)
	}
}

// data goes on with a request.
func (c *conn) data(f *http2.DataFrame) {
	if c.consumed += int(f.Length); c.consumed > connWindow/2 {
		n := c.consumed
		c.consumed = 0
		c.write(func() { _ = c.fr.WriteWindowUpdate(0, uint32(n)) })
	}
	c.mu.Lock()
	st := c.open[f.StreamID]
	c.mu.Unlock()
	if st == nil {
		return
	}
	data := f.Data()
	if st.size += len(data); st.size <= maxBody {
		st.body = append(st.body, data...)
	}
	if f.StreamEnded() {
		c.whole(f.StreamID, st)
	}
}

// whole deals with a request that is there.
func (c *conn) whole(id uint32, st *stream) {
	s := c.s
	r := st.header.public()
	r.Payload, r.Time, r.Conn, r.Stream = st.body, time.Now(), c.id, id
	a, ok := c.verify(&st.header, &r, st.size)
	if ok {
		if f := s.answer.Load(); f != nil {
			a = (*f)(r)
		}
	}
	s.update(func() { s.stats.Requests++ })
	processed := a.GoAway == nil || id <= a.GoAway.Last
	instead := a.Ignore || a.Reset != 0 || a.Cut
	if processed && (instead && a.Accept || !instead && (a.Status == 0 || a.Status == 200)) {
		s.accept(r) // before the client can know
	}
	if a.GoAway != nil {
		c.goAway(*a.GoAway)
	}
	if !processed {
		return
	}
	switch {
	case a.Until != nil:
		s.wg.Go(func() {
			select {
			case <-a.Until:
				c.respond(id, &r, &a)
			case <-s.closed:
			}
		})
	case a.Delay > 0:
		time.AfterFunc(a.Delay, func() { c.respond(id, &r, &a) })
	default:
		c.respond(id, &r, &a)
	}
}

// respond answers a request, or ignores, cuts or resets it, as a says.
func (c *conn) respond(id uint32, r *Request, a *Answer) {
	switch {
	case a.Ignore:
		return
	case a.Cut:
		_ = c.nc.Close()
		return
	case a.Reset != 0:
		c.reset(id, a.Reset)
		return
	}
	status := a.Status
	if status == 0 {
		status = 200
	}
	if !c.end(id) {
		return // the client has reset it
	}
	c.write(func() {
		c.hbuf.Reset()
		field := func(name, value string) {
			_ = c.enc.WriteField(hpack.HeaderField{Name: name, Value: value, Sensitive: name == "apns-id"})
		}
		field(":status", strconv.Itoa(status))
		if r.ID != "" {
			field("apns-id", r.ID)
		}
		if a.RetryAfter > 0 {
			field("retry-after", strconv.Itoa(int(a.RetryAfter/time.Second)))
		}
		body := reasonJSON(a.Reason, a.Timestamp)
		_ = c.fr.WriteHeaders(http2.HeadersFrameParam{
			StreamID: id, BlockFragment: c.hbuf.Bytes(), EndHeaders: true, EndStream: body == nil,
		})
		if body != nil {
			_ = c.fr.WriteData(id, true, body)
		}
	})
}

// reasonJSON is the body of an answer, or the debug data of a GOAWAY frame.
func reasonJSON(reason string, timestamp time.Time) []byte {
	if reason == "" {
		return nil
	}
	said := struct {
		Reason    string `json:"reason"`
		Timestamp int64  `json:"timestamp,omitempty"`
	}{Reason: reason}
	if !timestamp.IsZero() {
		said.Timestamp = timestamp.UnixMilli()
	}
	text, err := json.Marshal(said)
	if err != nil {
		return nil // a string can be marshalled
	}
	return text
}

// end forgets a stream, and reports whether it was open.
func (c *conn) end(id uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, was := c.open[id]
	delete(c.open, id)
	return was
}

func (c *conn) reset(id uint32, code http2.ErrCode) {
	c.end(id)
	c.write(func() { _ = c.fr.WriteRSTStream(id, code) })
}

// goAway sends a GOAWAY frame. It drops the streams above g.Last.
func (c *conn) goAway(g GoAway) {
	c.mu.Lock()
	if !c.ready {
		c.mu.Unlock()
		_ = c.nc.Close()
		return
	}
	if g.received {
		g.Last = c.highest
	}
	c.gone, c.last = true, g.Last
	for id := range c.open {
		if id > g.Last {
			delete(c.open, id)
		}
	}
	c.mu.Unlock()
	c.write(func() { _ = c.fr.WriteGoAway(g.Last, g.Code, reasonJSON(g.Reason, time.Time{})) })
	if g.Close {
		// Closing a socket with unread data may discard sent data: the reader goes on for a while.
		c.wmu.Lock()
		_ = c.bw.Flush()
		_ = c.nc.CloseWrite()
		c.wmu.Unlock()
		_ = c.nc.SetReadDeadline(time.Now().Add(closeTimeout))
	}
}
