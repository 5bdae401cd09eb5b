package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// Errors to be tested with [errors.Is].
var (
	// ErrMissing: there is no set for this user, which says nothing about the
	// user's contacts.
	ErrMissing = errors.New("set is missing")
	// ErrMalformed: the key holds something that activityd never wrote. A
	// refill mends it.
	ErrMalformed = errors.New("set is malformed")
	// ErrUnavailable: Redis cannot be reached, is loading, full or read-only.
	// The same call may succeed later.
	ErrUnavailable = errors.New("redis unavailable")
	// ErrNoDatabase: Redis has no database of the number that the client selects.
	// It is an [ErrUnavailable] that lasts until somebody sets one of the two right.
	ErrNoDatabase = fmt.Errorf("%w: it has no database of this number", ErrUnavailable)
)

// passing are the error replies of a Redis that may accept the same command
// later: while it loads, fails over, is out of memory, or runs a long script.
// The client strips a leading "ERR ".
var passing = []string{
	"LOADING", "READONLY", "OOM", "MISCONF", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN",
	"BUSY", "UNKILLABLE", "MOVED", "ASK", "max number of clients reached",
}

// translate gives an error of the client its meaning: the caller's own
// cancellation stays what it is, what may pass is ErrUnavailable.
func translate(ctx context.Context, doing string, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case isPast(ctx):
		return fmt.Errorf("%s: %w: %w", doing, context.DeadlineExceeded, err)
	case redis.HasErrorPrefix(err, "DB index is out of range"), redis.HasErrorPrefix(err, "SELECT is not allowed in cluster mode"):
		return fmt.Errorf("%s: %w: %w", doing, ErrNoDatabase, err)
	case isPassing(err):
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// isPast tells that the deadline of ctx has passed, also where ctx itself does
// not know it yet: the connection has the same deadline and may be quicker.
func isPast(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && !time.Now().Before(deadline)
}

func isPassing(err error) bool {
	var netErr net.Error
	switch {
	case errors.As(err, &netErr),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), // the client's own time limit
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return true
	}
	for _, prefix := range passing {
		if redis.HasErrorPrefix(err, prefix) {
			return true
		}
	}
	return false
}
