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
	ErrRefused = fmt.Errorf("%w: it refuses", ErrUnavailable)
	// ErrNoDatabase: Redis has no database of the number that the client selects.
	// It is an [ErrUnavailable] that lasts until the number or Redis is set right.
	ErrNoDatabase = fmt.Errorf("%w: it has no database of this number", ErrUnavailable)
	// ErrHidden: Redis does not report its run. It is an [ErrUnavailable] that lasts until INFO is allowed.
	ErrHidden = fmt.Errorf("%w: it does not answer INFO server and INFO replication, and its sets could be old unnoticed", ErrUnavailable)
	// ErrUnknown is an ErrUnavailable: the node may have old data, and they are deleted within seconds or minutes.
	ErrUnknown = fmt.Errorf("%w: its data may be old", ErrUnavailable)
	// ErrBehind is no ErrUnavailable: the node came back a moment ago with its data, and writes that waited for it may
	// not be done yet. With it, and with ErrRefused, data can be read.
	ErrBehind = errors.New("writes that waited for it may not be done")
	// ErrStamp: the data were made by settings that differ from those of this process. See [Options].
	ErrStamp = errors.New("other settings")
)

var (
	errStale   = fmt.Errorf("%w: no probe has looked at it lately", ErrUnavailable)
	errHangs   = fmt.Errorf("%w: it did not answer a moment ago", ErrUnavailable)
	errReplica = fmt.Errorf("%w: it is a replica", ErrUnavailable)
	errNoNode  = fmt.Errorf("%w: no node of the cluster is known to have the slot", ErrUnavailable)
	errNoStamp = fmt.Errorf("%w: the id of the database is not known, as MySQL has not answered yet", ErrUnavailable)
)

// reasons are clauses for people that say why a node cannot be used; the first that fits counts.
var reasons = []struct {
	err error
	why string
}{
	{ErrUnknown, "it came back with data that may be old, which are deleted"},
	{ErrStamp, "the sets were built with other settings"},
	{ErrNoDatabase, "it has no database of this number"},
	{ErrHidden, "it does not answer INFO"},
	{errReplica, "it is a replica"},
	{ErrUnavailable, "it cannot be reached"},
	{context.DeadlineExceeded, "it cannot be reached"},
}

// Reason is a clause for people that says why a node cannot be used. It quotes nothing that
// Redis replied.
func Reason(err error) string {
	if reason := redisreply.Reason(err); reason != "" {
		return reason
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return r.why
		}
	}
	return "it answers with an error"
}

// IsLate reports whether data can be read, and may lack writes that wait.
func IsLate(err error) bool { return errors.Is(err, ErrBehind) || errors.Is(err, ErrRefused) }

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
