//go:build unix && !solaris && !illumos && !aix

package access

import (
	"errors"
	"io/fs"
	"os"
	"syscall"

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

// ownerOf returns the user who owns a file, and the one who runs this process.
func ownerOf(info fs.FileInfo) (owner, self int, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return int(stat.Uid), os.Geteuid(), true
}
