package h2pool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// hidden is a connection of which net/http is not to know that it has TLS already.
type hidden struct{ net.Conn }

// serve1 makes the connection one of HTTP/1.1, by net/http: it carries one request at a time.
func (c *Conn) serve1(ctx context.Context) error {
	transport := &http.Transport{
		DialTLSContext:     func(context.Context, string, string) (net.Conn, error) { return hidden{c.nc}, nil },
		DisableCompression: true, MaxResponseHeaderBytes: maxAnswer, WriteBufferSize: maxBatch,
	}
	var err error
	if c.h1, err = transport.NewClientConn(ctx, "https", c.p.Address); err != nil {
		return err
	}
	c.h1.SetStateHook(func(*http.ClientConn) { c.poke() })
	c.maxStreams, c.warm = 1, true
	return nil
}

// run1 is run, of HTTP/1.1.
func (c *Conn) run1() {
	idle := time.NewTimer(c.p.IdleTimeout)
	defer idle.Stop()
	for {
		c.p.mu.Lock()
		c.gone = c.gone || c.h1.Err() != nil
		var one *call
		var fields []Field
		if c.free() > 0 {
			if one, fields = c.next(nil); one != nil {
				c.open[1] = one
			}
		}
		c.p.after(c)
		last := c.closing && c.isIdle()
		c.p.mu.Unlock()
		switch {
		case one != nil:
			c.exchange(one, fields)
			idle.Reset(c.p.IdleTimeout)
			continue
		case last:
			_ = c.h1.Close()
			return
		}
		select {
		case <-c.wake:
		case <-idle.C:
			c.p.mu.Lock()
			c.gone = true
			c.p.mu.Unlock()
		}
	}
}

// exchange sends a request and waits for its answer.
func (c *Conn) exchange(one *call, fields []Field) {
	content := newBody(one.Body)
	answer, err := c.post(one, fields, content)
	sent := content.stop()
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	delete(c.open, 1)
	one.begun, one.whole = sent, sent
	switch {
	case err == nil:
		answer.Conn = c
		one.answer = answer
		one.finish(nil)
	case one.ctx.Err() != nil:
		one.finish(&Error{one.fate(), err})
	default:
		c.lost(one, err)
	}
	c.p.after(c)
}

func (c *Conn) post(one *call, fields []Field, content *body) (a Answer, err error) {
	ctx, cancel := context.WithCancel(one.ctx)
	defer cancel()
	defer context.AfterFunc(c.p.ctx, cancel)()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.p.authority+one.Path, content)
	if err != nil {
		return a, err
	}
	r.ContentLength = int64(len(one.Body))
	for _, f := range fields {
		if !f.IsPseudo() { // that is for HTTP/2
			r.Header.Add(f.Name, f.Value)
		}
	}
	response, err := c.h1.RoundTrip(r)
	if err != nil {
		return a, err
	}
	a.Status = response.StatusCode
	for name, values := range response.Header {
		a.Header = append(a.Header, Field{Name: strings.ToLower(name), Value: values[0]})
	}
	a.Body, a.Err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close() // the status says what became of it
	return a, nil
}

// body is the body of a request of HTTP/1.1 that tells whether it was read: what ends a request
// carries what was read of its body, so that one of which nothing was read has not been
// sent wholly, and no one can have taken it.
type body struct {
	bytes.Reader

	state atomic.Int32
}

const (
	bodyRead    = 1
	bodyStopped = 2
)

// newBody returns a body of text, which is not to be empty.
func newBody(text []byte) *body { return &body{Reader: *bytes.NewReader(text)} }

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(0, bodyRead) && b.state.Load() != bodyRead {
		return 0, errors.New("the request was given up")
	}
	return b.Reader.Read(p)
}

// Close implements [io.Closer]. It changes nothing: the transport closes bodies early, too.
func (*body) Close() error { return nil }

// stop reports whether the body was read. If it was not, it is not read afterwards either.
func (b *body) stop() bool { return !b.state.CompareAndSwap(0, bodyStopped) }
