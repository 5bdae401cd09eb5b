package localserver

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownGroup makes a child the leader of a process group of its own, which dies
// with the thread that started it.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// awaitStopped waits until every thread of a child that was sent a stop signal
// has stopped: the signal itself only begins that, and a busy thread may
// answer another request. It returns, too, when the child has ended.
func awaitStopped(pid int) error {
	for {
		// WNOWAIT leaves the event in place, for a second Pause to find.
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.ECHILD):
			return nil
		default:
			return err
		}
	}
}
