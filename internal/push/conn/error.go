package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http2"

	"github.com/activityd/activityd/internal/push"
)

// Fate is the knowledge of a request that got no answer.
type Fate int

// The fates.
const (
	Undialled Fate = iota // there was no connection
	Unsent                // no peer has got it whole
	Unknown               // a peer may have processed it, or process it still
)

// Error is why there is no answer.
type Error struct {
	Fate Fate
	Err  error
}

// Error implements error.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns why.
func (e *Error) Unwrap() error { return e.Err }

// The reasons of results without an answer.
const (
	ReasonDial    = "dial"     // no connection could be opened
	ReasonDNS     = "dns"      // the host's name has no address
	ReasonTLS     = "tls"      // its certificate is not to be trusted
	ReasonTimeout = "timeout"  // the time was over
	ReasonNotSent = "not_sent" // the connection was lost before all was written
	ReasonReset   = "reset"    // the push service gave up the stream
	ReasonLost    = "lost"     // the connection was lost before the answer came
)

// Reasons are all of them.
var Reasons = []string{ReasonDial, ReasonDNS, ReasonTLS, ReasonTimeout, ReasonNotSent, ReasonReset, ReasonLost, push.ReasonHeld}

// Unanswered returns the result of a message by the error of [Pool.Post]. It is a pure function.
func Unanswered(err error) push.Result {
	failed, ok := errors.AsType[*Error](err)
	fate := Unknown
	if ok {
		fate = failed.Fate
	}
	r := push.Result{Outcome: push.Wait, Reason: ReasonNotSent}
	if fate == Unknown {
		r = push.Result{Outcome: push.Ambiguous, Reason: ReasonLost}
	}
	_, isUnresolved := errors.AsType[*net.DNSError](err)
	_, isUntrusted := errors.AsType[*tls.CertificateVerificationError](err)
	_, isReset := errors.AsType[http2.StreamError](err)
	switch {
	case errors.Is(err, errNotGood):
		r.Reason = push.ReasonHeld
	case fate == Undialled && isUnresolved:
		r.Reason = ReasonDNS
	case fate == Undialled && isUntrusted:
		r.Reason = ReasonTLS
	case fate == Undialled:
		r.Reason = ReasonDial
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		r.Reason = ReasonTimeout
	case fate == Unknown && isReset:
		r.Reason = ReasonReset
	}
	return r
}

// RetryAfter reads the header Retry-After: seconds, or a date; 0 if it asks for no time.
func RetryAfter(header http.Header, now time.Time) time.Duration {
	text := header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
}
