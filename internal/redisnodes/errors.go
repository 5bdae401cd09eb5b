package redisnodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
)

// Errors, to be tested with [errors.Is].
var (
	// ErrUnavailable: Redis cannot be reached, is loading, refuses the password,
	// and so on. The same call may succeed later.
	ErrUnavailable = errors.New("redis unavailable")
	// ErrRefused is an ErrUnavailable: Redis answers but refuses to write, because it
	// is full, read-only, and so on, or its ACL forbids the command.
	ErrRefused error = unavailable("it refuses")
	// ErrNoDatabase: Redis has no database of the number that the client selects.
	// It is an [ErrUnavailable] that lasts until the number or Redis is set right.
	ErrNoDatabase error = unavailable("it has no database of this number")
	// ErrHidden: Redis does not report its run. It is an [ErrUnavailable] that lasts until INFO is allowed.
	ErrHidden error = unavailable("it does not answer INFO server and INFO replication, and its sets could be old unnoticed")
	// ErrUnknown is an ErrUnavailable: the node may have old data, and they are deleted within seconds or minutes.
	ErrUnknown error = unavailable("it came back with data that may be old, which are deleted")
	// ErrBehind is no ErrUnavailable: the node came back a moment ago with its data, and writes that waited for it may
	// not be done yet. With it, and with ErrRefused, data can be read.
	ErrBehind = errors.New("writes that waited for it may not be done")
	// ErrStamp: the data were made by settings that differ from those of this process. See [Options].
	ErrStamp = errors.New("other settings")

	errStale   error = unavailable("it cannot be reached: no probe has looked at it lately")
	errHangs   error = unavailable("it cannot be reached: it did not answer a moment ago")
	errReplica error = unavailable("it is a replica")
	errNoNode  error = unavailable("no node of the cluster is known to have the slot")
	errNoStamp error = unavailable("the id of the database is not known, as MySQL has not answered yet")
)

// unavailable is an [ErrUnavailable], and a clause for people that says why.
type unavailable string

func (u unavailable) Error() string { return ErrUnavailable.Error() + ": " + string(u) }
func (unavailable) Unwrap() error   { return ErrUnavailable }

// Reason is a clause for people that says why a node cannot be used. It quotes nothing that
// Redis replied.
func Reason(err error) string {
	reason := redisreply.Reason(err)
	why, isKnown := errors.AsType[unavailable](err)
	switch {
	case reason != "":
		return reason
	case isKnown:
		return string(why)
	case errors.Is(err, ErrStamp):
		return "the sets were built with other settings"
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "it cannot be reached"
	}
	return "it answers with an error"
}

// takesCalls reports whether calls are sent to a node of a state: its data can be read. Unless the state is nil they may
// lack writes that wait.
func takesCalls(state error) bool {
	return state == nil || errors.Is(state, ErrBehind) || errors.Is(state, ErrRefused)
}

// Translate wraps an error of the client as an error of this package, or as that of ctx
// if it has ended.
func Translate(ctx context.Context, doing string, err error) error {
	deadline, hasDeadline := ctx.Deadline()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrStamp): // it was translated
		return fmt.Errorf("%s: %w", doing, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case hasDeadline && !time.Now().Before(deadline): // the connection may see it before ctx ends
		return fmt.Errorf("%s: %w: %w", doing, context.DeadlineExceeded, err)
	case redis.HasErrorPrefix(err, "DB index is out of range"), redis.HasErrorPrefix(err, "SELECT is not allowed in cluster mode"):
		return fmt.Errorf("%s: %w: %w", doing, ErrNoDatabase, err)
	}
	if passing, refused := redisreply.Passing(err); refused {
		return fmt.Errorf("%s: %w: %w", doing, ErrRefused, err)
	} else if passing {
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// hasMoved reports whether an error says that a key belongs to another node, or is being moved there.
func hasMoved(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK ") || redis.HasErrorPrefix(err, "TRYAGAIN ")
}

func isReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

func isTimeout(err error) bool {
	var netErr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &netErr) && netErr.Timeout()
}
