package main

import (
	"errors"
	"runtime"
	"syscall"

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

// watchStops returns a channel that gets a value whenever the child is stopped.
func watchStops(pid int) <-chan struct{} {
	stops := make(chan struct{}, 1)
	go func() {
		for {
			switch err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED, nil); {
			case err == nil:
				select {
				case stops <- struct{}{}:
				default: // there is one already
				}
			case !errors.Is(err, unix.EINTR):
				return // it has ended
			}
		}
	}()
	return stops
}
