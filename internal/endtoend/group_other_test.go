//go:build unix && !linux

package endtoend_test

import "syscall"

// ownGroup makes a child the leader of a process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
