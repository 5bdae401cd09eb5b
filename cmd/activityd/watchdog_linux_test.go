package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// watchdogOf awaits the watchdog of a process, another one than that of the given number.
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

// A watchdog that was killed is replaced when the lease is extended; one that is not needed
// any more ends.
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
	work := exec.CommandContext(t.Context(), "sleep", "1000")
	work.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, work.Start())
	t.Cleanup(func() { _ = work.Wait() }) // its end has killed it
	if got := groupOfChild(os.Getppid()); got == work.Process.Pid {
		t.Errorf("it is no child of the parent of this process, and was found")
	}
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
	// What has a write lease of a file has others wait that open it, here between fork and exec.
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

// The name of a command may look like what follows it.
func TestParseStat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]stat{
		"":                                 {},
		"17 (sleep) T 4 17 3 0 -1 4194304": {"T", 4, 17, 3},
		"17 (a) S 1 2 3 (b) Z 4 17 3 0 -1": {"Z", 4, 17, 3},
	} {
		if got := parseStat(text); got != want {
			t.Errorf("%q: %+v, want %+v", text, got, want)
		}
	}
}

// A watchdog that was stopped itself goes by the last order that has come. At the end of the
// orders it kills.
func TestWatchdogReadsAllOrdersFirst(t *testing.T) {
	t.Parallel()
	work := exec.CommandContext(t.Context(), "sleep", "1000")
	work.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, work.Start())
	t.Cleanup(func() { _ = work.Wait() }) // it was killed
	dog := &watchdog{name: "digest"}
	must(t, dog.start())
	t.Cleanup(dog.end)
	unread := func() (n int) {
		conn, err := dog.orders.SyscallConn()
		must(t, err)
		must(t, conn.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) }))
		must(t, err)
		return n
	}
	dog.extend(bootTime() + time.Hour)
	dog.guard(work.Process.Pid)
	eventually(t, "the order is read", func() bool { return unread() == 0 })
	must(t, dog.cmd.Process.Signal(syscall.SIGSTOP))
	dog.extend(1) // long ago
	dog.extend(bootTime() + time.Hour)
	if unread() != 2*orderSize {
		t.Fatal("it is not stopped")
	}
	must(t, dog.cmd.Process.Signal(syscall.SIGCONT))
	eventually(t, "the orders are read", func() bool { return unread() == 0 })
	if hasEnded(work.Process.Pid) {
		t.Error("it went by the first order, and there was another one")
	}
	must(t, dog.orders.Close())
	eventually(t, "it is killed", func() bool { return hasEnded(work.Process.Pid) })
}

// A watchdog that could not be started is started with the next order, which it has at once.
func TestWatchdogIsStartedLater(t *testing.T) {
	t.Parallel()
	work := exec.CommandContext(t.Context(), "sleep", "1000")
	work.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(t, work.Start())
	t.Cleanup(func() { _ = work.Wait() }) // it was killed
	dog := &watchdog{name: "digest"}
	t.Cleanup(dog.end)
	dog.extend(1) // long ago
	dog.guard(work.Process.Pid)
	eventually(t, "it is killed", func() bool { return hasEnded(work.Process.Pid) })
}
