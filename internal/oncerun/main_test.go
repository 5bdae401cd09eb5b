//go:build unix

package oncerun

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// watchdogWord makes the test binary be a watchdog.
const watchdogWord = "watchdog"

func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == watchdogWord {
		if Watch(os.Args[3], os.Stderr) != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	oncetest.TakeHUP()
	os.Exit(m.Run())
}

var eventually = servertest.Eventually

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isGone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// hasEnded reports whether a process runs no more, also if its parent has not noticed it.
func hasEnded(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return isGone(pid) || err == nil && ParseStat(string(text)).State == "Z"
}
