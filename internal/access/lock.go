package access

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// How long to wait for a lock that another process has, and how often to try. It
// is held for as long as it takes to write a line.
const (
	lockWait = 5 * time.Second
	lockPoll = 20 * time.Millisecond
)

// errLocked: somebody else has the lock.
var errLocked = errors.New("another program has locked it: wait for it, and try again")

// openLocked opens a file to add to it, which is made if there is none, and locks
// it against others that do so. Closing it, or the end of the process, unlocks it.
func openLocked(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, mode) //nolint:gosec // G304: the operator names it
		if err != nil {
			return nil, err
		}
		if err := awaitLock(ctx, f); err != nil {
			return nil, fmt.Errorf("lock %s: %w", path, errors.Join(err, f.Close()))
		}
		if isStill(f, path) {
			return f, nil
		}
		if err := errors.Join(f.Close(), context.Cause(ctx)); err != nil { // the file was replaced before we had it
			return nil, err
		}
	}
}

// awaitLock locks a file as soon as nobody else does.
func awaitLock(ctx context.Context, f *os.File) error {
	again := time.NewTicker(lockPoll)
	defer again.Stop()
	for {
		err := lockFile(f)
		if !errors.Is(err, errLocked) {
			return err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return err
		}
	}
}

// isStill tells whether an open file is the one of that name.
func isStill(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(own, named)
}
