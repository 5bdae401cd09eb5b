//go:build unix

package localserver

import (
	"errors"
	"os"
	"syscall"
)

// The signals that pause and resume a process.
const (
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// signalGroup sends sig to all processes of a group; os.ErrProcessDone when
// there are none.
func signalGroup(group int, sig syscall.Signal) error {
	err := syscall.Kill(-group, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
