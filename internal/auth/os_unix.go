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
