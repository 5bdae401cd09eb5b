package h2pool

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

const (
	// maxAnswer is how much of an answer is read, in bytes.
	maxAnswer = 16 << 10
	// maxTries is how often a request is given to a connection that does not process it.
	maxTries = 3
)

// Answer is what a peer answered.
type Answer struct {
	Conn   *Conn
	Status int
	Header http.Header
	Body   []byte // the beginning of it
	Err    error  // why that may be cut off; the status is known all the same
}

// Failure is why there is no answer: Err is nil if there is one.
type Failure struct {
	Err  error
	Sent bool // the peer may have processed the request, or process it still, for all that is known
}

// Do posts a body, which is not to be empty, and returns what the peer answered. It waits
// for a connection, for which head makes the request but for the body. What the peer may have
// processed is not sent again. What it said that it did not, as a connection that it closes
// by GOAWAY may carry hundreds of requests, goes over the next connection, and so does what
// was not sent because its connection went away.
func (p *Pool) Do(ctx context.Context, text []byte, head func(*Conn) (*http.Request, error)) (Answer, Failure) {
	for try := 1; ; try++ {
		a, failure, again := p.try(ctx, text, head)
		if !again || try == maxTries || ctx.Err() != nil {
			return a, failure
		}
	}
}

// try is Do over one connection. again: that did not process it, and another one may.
func (p *Pool) try(ctx context.Context, text []byte, head func(*Conn) (*http.Request, error)) (a Answer, failure Failure, again bool) {
	c, err := p.acquire(ctx)
	if err != nil {
		return Answer{}, Failure{Err: err}, false
	}
	answered := false
	defer func() { p.done(c, answered) }()
	request, err := head(c)
	if err != nil {
		return Answer{}, Failure{Err: err}, false
	}
	content := newBody(text)
	request.Method, request.Body, request.ContentLength = http.MethodPost, content, int64(len(text))
	response, err := c.RoundTrip(request.WithContext(ctx))
	if err != nil {
		sent := content.stop()
		unwelcome := IsUnwelcome(err)
		if IsGoAway(err) || unwelcome {
			p.Remove(c)
		}
		sent = sent && !IsGoAway(err) && !unwelcome && !IsRefused(err)
		return Answer{}, Failure{Err: err, Sent: sent}, !sent && !unwelcome
	}
	answered = true
	a = Answer{Conn: c, Status: response.StatusCode, Header: response.Header}
	a.Body, a.Err = io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close() // the status says what became of it
	return a, Failure{}, false
}

// body is the body of a request that tells whether it was read: what ends a request
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

// StreamError has the fields of the error of net/http for a stream that was reset, whose
// method As fills in any such struct.
type StreamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

// Error implements error.
func (e StreamError) Error() string { return "HTTP/2 stream reset, code " + strconv.Itoa(int(e.Code)) }

const refusedStream = 7 // RFC 9113, section 7

// IsRefused reports whether the peer says that it did not process the request, by refusing
// its stream.
func IsRefused(err error) bool {
	var reset StreamError
	return errors.As(err, &reset) && reset.Code == refusedStream
}

// IsGoAway reports whether the peer says that it did not process the request, because its stream
// was above the last one of a GOAWAY frame. Nothing more is to be sent over the connection.
// net/http has only this text for it, and another one for [IsUnwelcome]. If a release of Go
// changes them, the tests fail, and a request counts as one that may have been processed.
func IsGoAway(err error) bool {
	return err != nil && err.Error() == "http2: Transport received Server's graceful shutdown GOAWAY"
}

// IsUnwelcome reports whether the peer answered the first request of a connection by a GOAWAY
// frame with an error. It did not process the request; another connection would fare no better.
func IsUnwelcome(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "http2: Transport received GOAWAY from server ErrCode:")
}

// RetryAfter reads a header Retry-After: seconds, or a date; 0 if it asks for no time.
func RetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
