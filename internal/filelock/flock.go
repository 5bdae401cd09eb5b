//go:build unix && !solaris && !illumos && !aix

package filelock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// NoFollow is a flag for [Open]: fail at a symbolic link, and do not wait for the other
// end of a pipe.
const NoFollow = unix.O_NOFOLLOW | unix.O_NONBLOCK

func lock(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrLocked
	}
	return err
}
