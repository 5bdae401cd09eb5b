package servertest

import "golang.org/x/sys/unix"

// memoryFolder is a file system in memory, as Linux has it.
const memoryFolder = "/dev/shm"

// hasRoom reports whether folder is in memory and has room for the servers of several
// packages: some gigabytes. In a container it often has 64 MB.
func hasRoom(folder string) bool {
	const least = 4 << 30
	var s unix.Statfs_t
	return unix.Access(folder, unix.W_OK) == nil && unix.Statfs(folder, &s) == nil &&
		s.Type == unix.TMPFS_MAGIC && s.Bavail*uint64(s.Bsize) >= least
}
