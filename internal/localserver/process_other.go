//go:build !unix

package localserver

import (
	"errors"
	"syscall"
)

// There are no such signals here: sending them fails.
const (
	stopSignal     = syscall.Signal(-1)
	continueSignal = syscall.Signal(-2)
)

func ownGroup() *syscall.SysProcAttr { return nil }

// signalGroup exists so that the module builds: no servers are started here.
func signalGroup(int, syscall.Signal) error { return errors.ErrUnsupported }

func awaitStopped(int) error { return errors.ErrUnsupported }
