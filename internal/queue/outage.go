package queue

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Outage logs that a server cannot be used: one line when that begins, one a minute
// while it lasts, and one when it is over, however many goroutines find out and however
// often they try. A process has one for each server. It is safe for concurrent use.
type Outage struct {
	log    *slog.Logger
	server string

	answered atomic.Int64 // when the last call succeeded, unix nanoseconds
	failing  atomic.Bool

	mu       sync.Mutex
	since    time.Time // when it began to fail
	ended    time.Time // when it last did so no more
	logged   time.Time // when the last line about failures was written; zero: the next failure writes one
	failures int       // since then
	open     bool      // of this outage there is a line

	// apart is a failure of a call that began before the last success; nil: there is
	// none, or it was looked at. doubted says so without mu.
	apart     error
	apartAt   time.Time
	apartTold time.Time // when the last line about such a failure was written
	doubted   atomic.Bool
}

const (
	// outageEvery is how often a line is written while an outage lasts.
	outageEvery = time.Minute
	// outageCalm is how long a server has to answer before its next failure counts as
	// another outage, which writes a line at once: one that answers every other call
	// writes two lines a minute.
	outageCalm = 10 * time.Second
)

// NewOutage returns an Outage of a server, "MySQL" say, that answers as far as is known.
func NewOutage(log *slog.Logger, server string) *Outage { return &Outage{log: log, server: server} }

// Failing reports whether the server cannot be used, as far as is known.
func (o *Outage) Failing() bool { return o.failing.Load() }

// Answered returns when a call last succeeded.
func (o *Outage) Answered() time.Time { return time.Unix(0, o.answered.Load()) }

// Report says how a call to the server ended that began at a time: err is nil when the
// server answered. A failure counts only if the call began after the last success, and a
// success only if it began after the first failure, so that a call which took long does
// not speak of what was before.
//
// Failures of calls that began before the last success, such as of one that always times
// out, are no outage. Where the server goes on to answer other calls, one line a minute is
// written about them.
func (o *Outage) Report(ctx context.Context, began time.Time, err error) {
	now := time.Now()
	if err == nil {
		o.answered.Store(now.UnixNano())
		if o.failing.Load() || o.doubted.Load() {
			o.succeed(ctx, began, now)
		}
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if began.UnixNano() < o.answered.Load() {
		if o.apart == nil && !o.failing.Load() && began.After(o.ended) { // else an outage explains it
			o.apart, o.apartAt = err, now
			o.doubted.Store(true)
		}
		return
	}
	o.apart = nil // the server does not answer others
	o.doubted.Store(false)
	if !o.failing.Swap(true) {
		o.since, o.failures = now, 0
		if now.Sub(o.ended) >= outageCalm {
			o.logged = time.Time{}
		}
	}
	o.failures++
	if now.Sub(o.logged) >= outageEvery {
		o.logged, o.open = now, true
		o.log.WarnContext(ctx, "server cannot be used", "server", o.server, "for", now.Sub(o.since).Round(time.Second), "failures", o.failures, "error", err)
	}
}

// succeed takes note of a success while the server fails, or after a failure apart.
func (o *Outage) succeed(ctx context.Context, began, now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.apart != nil && !began.Before(o.apartAt) {
		if now.Sub(o.apartTold) >= outageEvery {
			o.apartTold = now
			o.log.WarnContext(ctx, "call failed while the server answers others", "server", o.server, "error", o.apart)
		}
		o.apart = nil
		o.doubted.Store(false)
	}
	if !o.failing.Load() || began.Before(o.since) {
		return
	}
	o.failing.Store(false)
	o.ended = now
	if o.open {
		o.open = false
		o.log.InfoContext(ctx, "server can be used again", "server", o.server, "after", now.Sub(o.since).Round(time.Millisecond), "failures", o.failures)
	}
}
