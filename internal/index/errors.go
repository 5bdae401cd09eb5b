package index

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/redisreply"
)

// Errors, to be tested with [errors.Is].
var (
	// ErrMissing: the member has no set, which says nothing about the contacts.
	ErrMissing = errors.New("set is missing")
	// ErrMalformed: the key holds something that activityd never wrote. A
	// refill mends it.
	ErrMalformed = errors.New("set is malformed")
	// ErrUnavailable: Redis cannot be reached, is loading, refuses the password,
	// and so on. The same call may succeed later.
	ErrUnavailable = errors.New("redis unavailable")
	// ErrRefused is an ErrUnavailable: Redis answers but refuses to write, because it
	// is full, read-only, and so on, or its ACL forbids the command.
	ErrRefused = fmt.Errorf("%w: it refuses", ErrUnavailable)
	// ErrNoDatabase: Redis has no database of the number that the client selects.
	// It is an [ErrUnavailable] that lasts until one of the two is set right.
	ErrNoDatabase = fmt.Errorf("%w: it has no database of this number", ErrUnavailable)
)

// Reason is a clause for people that says why Redis cannot be used, for an error of
// [Index.Probe]. It quotes nothing that Redis replied.
func Reason(err error) string {
	if reason := redisreply.Reason(err); reason != "" {
		return reason
	}
	switch {
	case errors.Is(err, ErrUnknown):
		return "it came back with data that may be old, which are deleted"
	case errors.Is(err, ErrSettings):
		return "the sets were built with other settings"
	case errors.Is(err, ErrNoDatabase):
		return "it has no database of this number"
	case errors.Is(err, ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		return "it cannot be reached"
	}
	return "it answers with an error"
}

// translate wraps an error of the client as one of the errors above, or as that of ctx
// if it has ended.
func translate(ctx context.Context, doing string, err error) error {
	deadline, hasDeadline := ctx.Deadline()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrUnavailable), errors.Is(err, ErrSettings), errors.Is(err, ErrUnknown): // it was translated
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
