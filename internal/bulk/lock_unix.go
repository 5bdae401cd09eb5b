//go:build unix && !solaris && !illumos && !aix

package bulk

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// noFollow has an open fail at a symbolic link, and not wait for a pipe's other end.
const noFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

// lockFile locks an open file, or fails at once with [errLocked].
func lockFile(file *os.File) error {
	err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}
