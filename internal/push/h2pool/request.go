package h2pool

import (
	"bytes"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Body is the body of a request that tells whether it was read: what ends a request
// carries what was read of its body, so that one of which nothing was read has not been
// sent wholly, and no one can have taken it.
type Body struct {
	bytes.Reader

	state atomic.Int32
}

const (
	bodyRead    = 1
	bodyStopped = 2
)

// NewBody returns a body of text, which is not to be empty.
func NewBody(text []byte) *Body { return &Body{Reader: *bytes.NewReader(text)} }

// Read implements [io.Reader].
func (b *Body) Read(p []byte) (int, error) {
	if !b.state.CompareAndSwap(0, bodyRead) && b.state.Load() != bodyRead {
		return 0, errors.New("the request was given up")
	}
	return b.Reader.Read(p)
}

// Close implements [io.Closer]. It changes nothing: the transport closes bodies early, too.
func (*Body) Close() error { return nil }

// Stop reports whether the body was read. If it was not, it is not read afterwards either.
func (b *Body) Stop() bool { return !b.state.CompareAndSwap(0, bodyStopped) }

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

// IsGoAway reports whether the peer says that it did not process the request, as its stream
// was above the last one of a GOAWAY frame; nothing more is to be sent over the connection.
// net/http has no name for it but these texts; the tests would notice if they changed, and
// the request may have been processed then, for all that is known.
func IsGoAway(err error) bool {
	return err != nil && (err.Error() == "http2: Transport received Server's graceful shutdown GOAWAY" ||
		strings.HasPrefix(err.Error(), "http2: Transport received GOAWAY from server ErrCode:"))
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
