package bulk

import (
	"errors"
	"fmt"
	"os"
)

// errLocked: another process has the lock.
var errLocked = errors.New("another process has it")

// lock takes the lock that belongs to a file, so that no two commands continue at the
// same place. It lies beside the file, which is replaced all the time, and ends with
// the process.
func lock(path string) (unlock func() error, err error) {
	name := path + ".lock"
	for {
		f, err := openRegular(name, os.O_CREATE|os.O_RDWR)
		if err != nil {
			return nil, cannotKeep(path, err)
		}
		if err := lockFile(f); err != nil {
			_ = f.Close() // nothing was written
			if errors.Is(err, errLocked) {
				return nil, fmt.Errorf("another command is at work with %s: wait for it, or name another file", path)
			}
			return nil, fmt.Errorf("%s: lock %s: %w", path, name, err)
		}
		own, err := f.Stat()
		named, err2 := os.Lstat(name)
		if err == nil && err2 == nil && os.SameFile(own, named) {
			return func() error { return errors.Join(os.Remove(name), f.Close()) }, nil
		}
		_ = f.Close() // its last owner removed it before it was locked here
	}
}
