package h2pool

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

const (
	// maxAnswer is how much of an answer is read, and of its header, in bytes.
	maxAnswer = 16 << 10
	// maxTries is how often a request is given to a connection that does not process it. A
	// connection that goes away after it answered something does not count: there is progress.
	maxTries = 3
)

// Field is a field of a header. Its name is in lower case. One that is Sensitive is never put into
// the table that both ends keep of fields: so are those that differ with each request, as they
// would put the others out of it.
type Field = hpack.HeaderField

// Request is what is posted.
type Request struct {
	Path string
	// Header appends the fields of the request. It is called when the connection is known, whose
	// Tag it is given, and again for each other connection that the request goes over. It must not
	// block, nor use the pool. After an error nothing is sent.
	Header func(tag any, to []Field) ([]Field, error)
	Body   []byte // must not be changed, even after an error
}

// Answer is what a peer answered.
type Answer struct {
	Conn   *Conn
	Status int
	Header Header
	Body   []byte // the beginning of it
	Err    error  // why it may be cut off; the status is known all the same
}

// Header is the header of an answer.
type Header []Field

// Get returns the first value of a field, "" if there is none. The name is in lower case.
func (h Header) Get(name string) string {
	for _, f := range h {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// Fate is what is known of a request that got no answer.
type Fate int

// The fates. Only a request that is [Written] may be processed.
const (
	NotWritten Fate = iota // nothing of it was written
	InPart                 // the end of its body was not written, so that no one can have processed it
	Refused                // the peer said that it did not process it, by the reset of its stream
	WentAway               // the peer said so by GOAWAY
	Unwelcome              // the peer said so by GOAWAY with an error, before it answered anything over the connection
	Written                // the peer may have processed it, or process it still, for all that is known
)

// Error is why there is no answer. All errors of [Pool.Send] are of this type.
type Error struct {
	Fate Fate
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// FateOf returns what is known of a request by the error of [Pool.Send].
func FateOf(err error) Fate {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Fate
	}
	return Written
}

// ErrClosed is of requests that were waiting for a connection when the pool was closed.
var ErrClosed = errors.New("the connections are closed")

// The errors of connections.
var (
	errLost   = errors.New("the connection was lost")
	errSilent = errors.New("the peer is silent, and answers no ping")
	errHeader = errors.New("the answer's header is too large")
)

// DialError is of a connection that could not be opened.
type DialError struct{ Err error }

// Error implements error.
func (e *DialError) Error() string { return fmt.Sprintf("connect: %v", e.Err) }

// Unwrap returns why.
func (e *DialError) Unwrap() error { return e.Err }

// ResetError is of a stream that was reset, by the peer, or for what the peer sent.
type ResetError struct{ Code http2.ErrCode }

// Error implements error.
func (e *ResetError) Error() string { return fmt.Sprintf("the stream was reset: %v", e.Code) }

// GoAwayError is of a connection that the peer closes by GOAWAY.
type GoAwayError struct{ Code http2.ErrCode }

// Error implements error.
func (e *GoAwayError) Error() string {
	return fmt.Sprintf("the peer closes the connection: %v", e.Code)
}

// call is a request on its way. The invariant: it is in exactly one place, the pool's queue, the
// open streams of one connection, or done. All but the first three fields belong to the pool's mu,
// until done has its value: then they do not change any more.
type call struct {
	Request

	ctx  context.Context // of this request, for HTTP/1.1
	done chan struct{}   // of [dones]; it gets one value, at the end

	conn  *Conn  // over which it goes; nil: it waits, or is done
	id    uint32 // its stream
	tries int

	window int64 // how many bytes of its body the peer takes
	sent   int   // bytes of its body that were given to be written
	begun  bool  // its header was given to be written
	whole  bool  // its end was given to be written
	flow   int   // bytes of DATA of the answer, with their padding

	answer Answer
	err    *Error
}

// fate returns what is known of a call whose connection says no more of it.
func (c *call) fate() Fate {
	switch {
	case c.whole:
		return Written
	case c.begun:
		return InPart
	}
	return NotWritten
}

// finish ends a call. err is nil if there is an answer.
func (c *call) finish(err *Error) {
	c.conn, c.err = nil, err
	c.done <- struct{}{}
}

// dones are channels for one value, which are empty: they are used again.
var dones = sync.Pool{New: func() any { return make(chan struct{}, 1) }}

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
