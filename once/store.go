package once

import (
	"context"
	"errors"
)

// Store keeps the states. Its methods are safe for concurrent use, and their errors match
// [ErrUnavailable] when the server cannot be reached or cannot answer now, or [ErrInvalid].
type Store interface {
	// Apply applies an operation to a name: it is [Step], made atomic. After an error the
	// operation may or may not have been applied; it may be sent again.
	Apply(ctx context.Context, name string, op Operation) (Reply, error)
	// Get returns the state of a name, the zero State if there is none. It changes nothing.
	Get(ctx context.Context, name string) (Reply, error)
	// List returns the names that have a state, sorted.
	List(ctx context.Context) ([]Named, error)
	// Forget removes the state of a name, and reports whether there was a state. Unless force is
	// set, Forget leaves a state whose lease has not expired, and returns [ErrHeld]. The name's
	// next fence is higher all the same.
	Forget(ctx context.Context, name string, force bool) (forgotten bool, err error)
}

// Named is a state and its name.
type Named struct {
	Name string
	Reply
}

// Errors of stores.
var (
	// ErrUnavailable: the store cannot be asked now.
	ErrUnavailable = errors.New("the store of locks is unavailable")
	// ErrHeld: a state with a lease is not forgotten.
	ErrHeld = errors.New("it is held")
)
