package servertest

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// newMemoryFolder makes a folder in memory, on Linux where that has room for the servers of several
// packages: some gigabytes. In a container it often has 64 MB. It is locked until this process
// ends; nil: there is none.
//
// A folder without a lock is that of a process that was killed, as by ^C. It is removed, or it
// would take memory until the machine restarts.
func newMemoryFolder() (locked *os.File) {
	const memory, pattern, least = "/dev/shm", "activityd-tests-*", 4 << 30
	left, _ := filepath.Glob(filepath.Join(memory, pattern)) // the pattern is well formed
	for _, folder := range left {
		if lock, err := lockFolder(folder); err == nil {
			_ = os.RemoveAll(folder)
			_ = lock.Close()
		}
	}
	var s unix.Statfs_t
	if unix.Statfs(memory, &s) != nil || s.Bavail*uint64(s.Bsize) < least {
		return nil
	}
	folder, err := os.MkdirTemp(memory, pattern)
	if err != nil {
		return nil
	}
	locked, _ = lockFolder(folder) // another process may have removed it just now
	return locked
}

// lockFolder fails where the folder is another process'.
func lockFolder(folder string) (*os.File, error) {
	f, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
