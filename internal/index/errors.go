package index

import (
	"errors"

	"github.com/activityd/activityd/internal/redisnodes"
)

// Errors, to be tested with [errors.Is]. The errors of the nodes are errors of the index, too.
var (
	// ErrMissing: the member has no set. The contacts are not known.
	ErrMissing = errors.New("set is missing")
	// ErrMalformed: the key holds something that activityd never wrote. A
	// refill mends it.
	ErrMalformed = errors.New("set is malformed")
	// ErrBehind: the set is there, and may lack writes that are under way: its node refuses writes,
	// or came back a moment ago.
	ErrBehind = redisnodes.ErrBehind

	ErrUnavailable = redisnodes.ErrUnavailable
	ErrRefused     = redisnodes.ErrRefused
	ErrNoDatabase  = redisnodes.ErrNoDatabase
	ErrUnknown     = redisnodes.ErrUnknown
	ErrHidden      = redisnodes.ErrHidden
	// ErrSettings: the sets in Redis were built with other settings than this process
	// was started with. Nothing was read from them or written.
	ErrSettings = redisnodes.ErrStamp
)
