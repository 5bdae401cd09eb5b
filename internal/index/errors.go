package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
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

// passingReplies are the error replies of a Redis that may accept the same command
// later, by their beginning. The client strips a leading "ERR ".
var passingReplies = []struct {
	prefix  string
	refuses bool // the error is [ErrRefused]
	reason  string
}{
	{"OOM", true, "its memory is full (OOM)"},
	{"READONLY", true, "it is a read-only replica (READONLY)"},
	{"MISCONF", true, "it cannot save its data to disk (MISCONF)"},
	{"NOREPLICAS", true, "too few replicas are connected to it (NOREPLICAS)"},
	{"NOPERM", true, reasonDenied},
	{"The user executing the script", true, reasonDenied}, // so say scripts of Redis 7.0
	{"ACL failure in script", true, reasonDenied},         // and later ones
	{"unknown command", true, reasonRenamed},
	{"Unknown Redis command called from script", true, reasonRenamed},
	{"Unknown command called from script", true, reasonRenamed},
	{"NOAUTH", false, reasonPassword},
	{"Protocol error: unauthenticated", false, reasonPassword}, // the same, to a long command
	{"WRONGPASS", false, reasonPassword},
	{"AUTH <password> called without", false, reasonPassword}, // the server has none
	{"Client sent AUTH", false, reasonPassword},               // the same, older
	{"DENIED", false, "it is in protected mode (DENIED)"},
	{"LOADING", false, "it is loading its data (LOADING)"},
	{"MASTERDOWN", false, "it is a replica that has lost its master (MASTERDOWN)"},
	{"CLUSTERDOWN", false, "a part of the cluster is down (CLUSTERDOWN)"},
	{"TRYAGAIN", false, reasonMoving},
	{"MOVED", false, reasonMoving},
	{"ASK", false, reasonMoving},
	{"BUSY", false, reasonBusy},
	{"UNKILLABLE", false, reasonBusy},
	{"UNBLOCKED", false, "it has become a replica (UNBLOCKED)"},
	{"EXECABORT", false, "it refused a transaction (EXECABORT)"},
	{"max number of clients reached", false, "it has too many clients (max number of clients reached)"},
}

const (
	reasonDenied   = "its ACL forbids this user a command or a key (NOPERM)"
	reasonRenamed  = "a command that is needed is disabled or renamed"
	reasonPassword = "the user name or the password is wrong or missing"
	reasonMoving   = "slots of the cluster are being moved"
	reasonBusy     = "it is busy with a script (BUSY)"
)

// Reason is a clause for people that says why Redis cannot be used, for an error of
// [Index.Probe]. It quotes nothing that Redis replied.
func Reason(err error) string {
	for _, p := range passingReplies {
		if begins(err, p.prefix) {
			return p.reason
		}
	}
	switch {
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
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, context.Cause(ctx))
	case hasDeadline && !time.Now().Before(deadline): // the connection may see it before ctx ends
		return fmt.Errorf("%s: %w: %w", doing, context.DeadlineExceeded, err)
	case redis.HasErrorPrefix(err, "DB index is out of range"), redis.HasErrorPrefix(err, "SELECT is not allowed in cluster mode"):
		return fmt.Errorf("%s: %w: %w", doing, ErrNoDatabase, err)
	}
	if passing, refused := isPassing(err); refused {
		return fmt.Errorf("%s: %w: %w", doing, ErrRefused, err)
	} else if passing {
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// isPassing reports whether the same call may succeed later, and if so, whether
// Redis answered and refused.
func isPassing(err error) (passing, refused bool) {
	var netErr net.Error
	switch {
	case err == nil:
		return false, false
	case errors.As(err, &netErr),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), // the client's own time limit
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted):
		return true, false
	}
	for _, p := range passingReplies {
		if begins(err, p.prefix) {
			return true, p.refuses
		}
	}
	return false, false
}

// begins reports whether an error reply begins with prefix, or that of the command of
// a script: Redis 6.2 wraps it, as in "Error running script (call to f_1):
// @user_script:2: @user_script: 2: -OOM command not allowed".
func begins(err error, prefix string) bool {
	const inScript = "@user_script: "
	if _, inner, ok := strings.Cut(err.Error(), inScript); ok && redis.HasErrorPrefix(err, "Error running script") {
		_, inner, _ = strings.Cut(inner, ": ")
		return strings.HasPrefix(strings.TrimPrefix(inner, "-"), prefix)
	}
	return redis.HasErrorPrefix(err, prefix)
}

// isDenied reports whether the ACL of Redis forbids a command or a key.
func isDenied(err error) bool { return Reason(err) == reasonDenied }
