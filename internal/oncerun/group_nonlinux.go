//go:build unix && !linux

package oncerun

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The child outlives this process if it is killed.

func dieWithParent(*syscall.SysProcAttr) {}

func keepThread() (release func()) { return func() {} }

// bootTime is the time by a clock that all processes of the machine share.
func bootTime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // there is this clock
	return time.Duration(now.Nano())
}

func groupOfChild(int) int { return 0 }

func ownPath() (string, error) { return os.Executable() }
