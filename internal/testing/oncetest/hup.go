//go:build unix

package oncetest

import (
	"os"
	"os/signal"
	"syscall"
)

// TakeHUP starts the tests once more if SIGHUP is ignored, as by nohup: their commands could
// not catch it either. A signal that is caught has its default effect after exec.
func TakeHUP() {
	const done = "ACTIVITYD_TEST_HUP"
	path, err := os.Executable()
	if err != nil || !signal.Ignored(syscall.SIGHUP) || os.Getenv(done) != "" {
		return
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	_ = syscall.Exec(path, os.Args, append(os.Environ(), done+"=1"))
}
