// Package filelock opens files that one process at a time may change. The lock is advisory
// (flock), and ends with the process. On Solaris and AIX there is none.
package filelock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ErrLocked is wrapped by the error of [Open] when another process has the lock.
var ErrLocked = errors.New("another process has locked it")

// Open opens a file as [os.OpenFile] does and locks it, without waiting. Closing the
// file unlocks it. The file is the one that path names once it is locked: the owner of
// a lock may remove or replace it.
func Open(path string, flag int, perm fs.FileMode) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, flag, perm) //nolint:gosec // G304: the operator names it
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
		}
		if IsNamed(f, path) {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
}

// IsNamed reports whether path still names the open file f.
func IsNamed(f *os.File, path string) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := os.Stat(path)
	return err == nil && os.SameFile(own, named)
}
