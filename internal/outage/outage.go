// Package outage writes the lines of the log about servers that cannot be used for a while, work that stands
// still, and errors that repeat: few lines, however many attempts fail.
package outage

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Every is how often a line is written while something lasts.
const Every = time.Minute

// calm is how long a server has to answer before its next failure counts as another outage,
// which writes a line at once: a server that answers every second call causes two lines a minute.
const calm = 10 * time.Second

// Log writes lines about a server: when it cannot be used, each minute while that lasts,
// and when it is over, however many goroutines find out and however often they try. A
// process has a Log for each server. It is safe for concurrent use.
type Log struct {
	// Level returns the level of the lines while it lasts. Default: a warning.
	Level func(error) slog.Level

	log          *slog.Logger
	begins, ends string // the messages
	once         bool   // while it lasts, no line is written again

	answered atomic.Int64 // when the last call succeeded, unix nanoseconds
	doubted  atomic.Bool  // it fails, or there is an apart: a success says something

	mu       sync.Mutex
	failing  bool
	since    time.Time // when it began to fail
	ended    time.Time // when it last did so no more
	logged   time.Time // when the last line about failures was written; zero: the next failure writes a line
	failures int       // since then
	open     bool      // of this outage there is a line

	// apart is a failure of a call that began before the last success; nil: there is none, or it was looked at.
	apart     error
	apartAt   time.Time
	apartTold time.Time // when the last line about an apart was written
}

// New returns a Log of a server, "MySQL" say, that answers as far as is known.
func New(log *slog.Logger, server string) *Log {
	o := Of(log.With("server", server), "server cannot be used", "server can be used again")
	o.once = false
	return o
}

// Of returns a Log of anything else that fails for a while, with messages for when that begins and
// ends. While it lasts, it writes nothing: the lines about a server do.
func Of(log *slog.Logger, begins, ends string) *Log {
	return &Log{log: log, begins: begins, ends: ends, once: true, Level: func(error) slog.Level { return slog.LevelWarn }}
}

// Answered returns when a call last succeeded.
func (o *Log) Answered() time.Time { return time.Unix(0, o.answered.Load()) }

// Report says how a call to the server ended that began at a time: err is nil when the
// server answered. A failure counts only if the call began after the last success, and a
// success only if it began after the first failure, so that a long call does
// not speak of the time before.
//
// Failures of calls that began before the last success, as of a call that always times
// out, are no outage. Where the server goes on to answer, a line a minute is
// written about them.
func (o *Log) Report(ctx context.Context, began time.Time, err error) {
	now := time.Now()
	if err == nil {
		o.answered.Store(now.UnixNano())
		if !o.doubted.Load() {
			return
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case err == nil:
		o.succeed(ctx, began, now)
	case began.UnixNano() >= o.answered.Load():
		o.fail(ctx, now, err)
	case o.apart == nil && !o.failing && began.After(o.ended): // else an outage explains it
		o.apart, o.apartAt = err, now
	}
	o.doubted.Store(o.failing || o.apart != nil)
}

// fail takes note of a failure of a call that began after the last success.
func (o *Log) fail(ctx context.Context, now time.Time, err error) {
	o.apart = nil // the server answers nothing
	if !o.failing {
		o.failing, o.since, o.failures = true, now, 0
		if now.Sub(o.ended) >= calm {
			o.logged = time.Time{}
		}
	}
	o.failures++
	if now.Sub(o.logged) >= Every && (!o.once || !o.open) {
		o.logged, o.open = now, true
		o.log.Log(ctx, o.Level(err), o.begins, "for", now.Sub(o.since).Round(time.Second), "failures", o.failures, "error", err)
	}
}

// succeed takes note of a success while the server fails, or after a failure apart.
func (o *Log) succeed(ctx context.Context, began, now time.Time) {
	if o.apart != nil && !began.Before(o.apartAt) {
		if now.Sub(o.apartTold) >= Every {
			o.apartTold = now
			o.log.WarnContext(ctx, "call failed while the server answers others", "error", o.apart)
		}
		o.apart = nil
	}
	if !o.failing || began.Before(o.since) {
		return
	}
	o.failing, o.ended = false, now
	if o.open {
		o.open = false
		o.log.InfoContext(ctx, o.ends, "after", now.Sub(o.since).Round(time.Millisecond), "failures", o.failures)
	}
}

// Lines writes lines about errors that repeat, each once a minute. It is safe for
// concurrent use.
type Lines struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]time.Time // by subject and message, when the line was last written
}

// NewLines returns Lines that have written nothing.
func NewLines(log *slog.Logger) *Lines { return &Lines{log: log, logged: make(map[string]time.Time)} }

// Log writes a message with its attributes, unless it did so within the last minute about the same
// subject. There must not be many subjects; "": the message has none.
func (l *Lines) Log(ctx context.Context, level slog.Level, subject, message string, about ...any) {
	key := subject + " " + message
	l.mu.Lock()
	now := time.Now()
	due := now.Sub(l.logged[key]) >= Every
	if due {
		l.logged[key] = now
	}
	l.mu.Unlock()
	if due {
		l.log.Log(ctx, level, message, about...)
	}
}
