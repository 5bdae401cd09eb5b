// Package redisreply tells what the errors of a Redis client mean: those of the network
// and the error replies of the server.
package redisreply

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"
)

// passingReplies are the error replies of a Redis that may accept the same command
// later, by their beginning. The client strips a leading "ERR ".
var passingReplies = []struct {
	prefix  string
	refuses bool // Redis answers but refuses to write, or its ACL forbids the command
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
	{"CLUSTERDOWN Hash slot not served", false, "no node of the cluster has the slot (CLUSTERDOWN)"},
	{"CLUSTERDOWN", false, "the cluster is down (CLUSTERDOWN), as all of it is when a part of it is, unless it has cluster-require-full-coverage no"},
	{"TRYAGAIN", false, reasonMoving},
	{"MOVED", false, "slots of the cluster are being moved, or --redis-url does not begin with redis+cluster:// (MOVED)"},
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

// Reason is a clause for people that says why Redis answers with an error, or "" if the
// error is none of those that may pass, or no reply. It quotes nothing that Redis replied.
func Reason(err error) string {
	for _, p := range passingReplies {
		if begins(err, p.prefix) {
			return p.reason
		}
	}
	return ""
}

// Denied reports whether the ACL of Redis forbids a command or a key.
func Denied(err error) bool { return Reason(err) == reasonDenied }

// Passing reports whether the same call may succeed later, and if so, whether
// Redis answered and refused.
func Passing(err error) (passing, refused bool) {
	var netErr net.Error
	switch {
	case err == nil:
		return false, false
	case errors.As(err, &netErr),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), // the client's own time limit
		errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted),
		errors.Is(err, redis.ErrClosed): // by package redisnodes, which has a new one
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
