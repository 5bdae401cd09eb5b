//go:build unix

package auth

import (
	"io/fs"
	"os"
	"syscall"
)

// ownerOf returns the user who owns a file, and the one who runs this process.
func ownerOf(info fs.FileInfo) (owner, self int, known bool) {
	stat, known := info.Sys().(*syscall.Stat_t)
	if !known {
		return 0, 0, false
	}
	return int(stat.Uid), os.Geteuid(), true
}

// keepOwner gives a file the owner and the group that it had before.
func keepOwner(f *os.File, before fs.FileInfo) error {
	had, known := before.Sys().(*syscall.Stat_t)
	info, err := f.Stat()
	if err != nil || !known {
		return err
	}
	if has, known := info.Sys().(*syscall.Stat_t); known && has.Uid == had.Uid && has.Gid == had.Gid {
		return nil
	}
	return f.Chown(int(had.Uid), int(had.Gid))
}
