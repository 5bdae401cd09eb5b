package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// watchdogOf awaits the watchdog of a process, with a different number than the given number.
func watchdogOf(t *testing.T, process, other int) (pid int) {
	t.Helper()
	eventually(t, "there is a watchdog", func() bool {
		lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", process))
		must(t, err)
		for _, list := range lists {
			text, _ := os.ReadFile(list) // the thread may have ended
			for child := range strings.FieldsSeq(string(text)) {
				line, _ := os.ReadFile("/proc/" + child + "/cmdline")
				pid, err = strconv.Atoi(child)
				must(t, err)
				if strings.Contains(string(line), watchdogCommand) && pid != other {
					return true
				}
			}
		}
		return false
	})
	return pid
}

// A killed watchdog is replaced when the lease is extended; a watchdog that is not needed any more ends.
func TestWatchdogIsReplaced(t *testing.T) {
	t.Parallel()
	flags := append(newOnceStore(t, inRedis), "--lease=6s")
	p := startOnce(t, flags, "digest", "echo pid $$; exec sleep 1000")
	pid, first := p.pid(t, "pid"), watchdogOf(t, p.cmd.Process.Pid, 0)
	must(t, syscall.Kill(first, syscall.SIGKILL))
	second := watchdogOf(t, p.cmd.Process.Pid, first)
	must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	eventually(t, "the command is killed", func() bool { return hasEnded(pid) })
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	p.ends(t, exitLost)
	eventually(t, "the watchdog has ended", func() bool { return hasEnded(second) })

	p = startOnce(t, flags, "other", "echo pid $$; exec sleep 1000")
	pid, first = p.pid(t, "pid"), watchdogOf(t, p.cmd.Process.Pid, 0)
	must(t, syscall.Kill(first, syscall.SIGTERM)) // as systemd does to all of a unit
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.ends(t, 128+int(syscall.SIGTERM))
	eventually(t, "the watchdog has ended", func() bool { return hasEnded(first) && hasEnded(pid) })
}

// The command of a process that is stopped before it has reported the group is found.
func TestWatchdogFindsTheGroup(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "work")
	must(t, os.WriteFile(path, []byte("#!/bin/sh\necho pid $$\nexec sleep 1000\n"), 0o700))
	file, err := os.Open(path)
	must(t, err)
	t.Cleanup(func() { _ = file.Close() })
	fcntl := func(command, kind int) int {
		got, err := unix.FcntlInt(file.Fd(), command, kind)
		if err != nil && !errors.Is(err, unix.EAGAIN) {
			t.Fatal(err)
		}
		return got
	}
	// A process with a write lease of a file makes openers wait, here between fork and exec.
	eventually(t, "no other has the file open", func() bool { return fcntl(unix.F_SETLEASE, unix.F_WRLCK) == 0 })
	p := startOnceCommand(t, append(newOnceStore(t, inRedis), "--lease=6s"), "digest", path)
	eventually(t, "the command is to be executed", func() bool { return fcntl(unix.F_GETLEASE, 0) != unix.F_WRLCK })
	must(t, p.cmd.Process.Signal(syscall.SIGSTOP))
	fcntl(unix.F_SETLEASE, unix.F_UNLCK)
	pid := p.pid(t, "pid")
	eventually(t, "the command is killed", func() bool { return hasEnded(pid) })
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	p.ends(t, exitLost)
}
