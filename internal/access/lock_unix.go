//go:build unix && !solaris && !illumos && !aix

package access

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile locks an open file, or fails at once with [errLocked].
func lockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}
