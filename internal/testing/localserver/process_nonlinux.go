//go:build unix && !linux

package localserver

import "syscall"

// ownGroup makes a child the leader of a process group of its own. It outlives a parent
// that dies.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}

// awaitStopped does not wait here: a paused server may answer for an instant.
func awaitStopped(int) error { return nil }
