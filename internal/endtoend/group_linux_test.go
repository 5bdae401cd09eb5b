package endtoend_test

import "syscall"

// ownGroup makes a child the leader of a process group, and lets the kernel kill
// it when the thread that started it ends, as it does with this process.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
