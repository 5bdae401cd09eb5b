package oncerun

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The name of a command may look like the fields behind it.
func TestParseStat(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Stat{
		"":                                 {},
		"17 (sleep) T 4 17 3 0 -1 4194304": {"T", 4, 17, 3},
		"17 (a) S 1 2 3 (b) Z 4 17 3 0 -1": {"Z", 4, 17, 3},
	} {
		if got := ParseStat(text); got != want {
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
	dog := &watchdog{args: []string{"activityd", watchdogWord}, name: "digest"}
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
