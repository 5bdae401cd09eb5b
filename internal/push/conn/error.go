package conn

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"strconv"
	"time"

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

// Failure is why there is no answer.
type Failure struct {
	Fate Fate
	Err  error
}

// The reasons of results without an answer.
const (
	ReasonDial    = "dial"     // no connection could be opened
	ReasonDNS     = "dns"      // the host's name has no address
	ReasonTLS     = "tls"      // its certificate is not to be trusted
	ReasonTimeout = "timeout"  // the time was over
	ReasonNotSent = "not_sent" // the connection was lost before all was written
	ReasonLost    = "lost"     // the connection or the stream was lost before the answer came
)

// Reasons are all of them.
var Reasons = []string{ReasonDial, ReasonDNS, ReasonTLS, ReasonTimeout, ReasonNotSent, ReasonLost, push.ReasonHeld}

// Unanswered returns the result of a message without an answer. It is a pure function.
func Unanswered(f *Failure) push.Result {
	r := push.Result{Outcome: push.Wait, Reason: ReasonNotSent}
	_, isUnresolved := errors.AsType[*net.DNSError](f.Err)
	_, isUntrusted := errors.AsType[*tls.CertificateVerificationError](f.Err)
	switch f.Fate {
	case Unknown:
		r.Outcome, r.Reason = push.Ambiguous, ReasonLost
	case Undialled:
		r.Reason, r.Err = ReasonDial, f.Err
	}
	switch {
	case errors.Is(f.Err, errNotGood):
		r.Reason = push.ReasonHeld
	case f.Fate == Undialled && isUnresolved:
		r.Reason = ReasonDNS
	case f.Fate == Undialled && isUntrusted:
		r.Reason = ReasonTLS
	case f.Fate == Undialled:
	case errors.Is(f.Err, context.DeadlineExceeded), errors.Is(f.Err, context.Canceled):
		r.Reason = ReasonTimeout
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
