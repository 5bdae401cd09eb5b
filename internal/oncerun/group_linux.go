package oncerun

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent has the child killed when the thread that starts it ends: see [keepThread].
func dieWithParent(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }

// keepThread keeps the thread of the caller alive until the function that it returns is
// called.
func keepThread() (release func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// bootTime is the time by a clock that all processes of the machine share, and that goes on
// while it is suspended.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) // there is this clock
	return time.Duration(now.Nano())
}

// groupOfChild returns the group that a child of the parent of this process leads in the
// session of that; 0: there is none.
func groupOfChild(parent int) (group int) {
	session, err := unix.Getsid(parent)
	if err != nil {
		return 0
	}
	files, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well formed
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if is := ParseStat(string(text)); is.Parent == parent && is.Session == session && file == fmt.Sprintf("/proc/%d/stat", is.Group) {
			group = is.Group
		}
	}
	if unix.Getppid() != parent { // it has ended, and its number may be another's
		return 0
	}
	return group
}

// ownPath is the program of this process, also if its file was replaced since.
func ownPath() (string, error) { return "/proc/self/exe", nil }
