//go:build !unix

package oncerun

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// There are no process groups of that kind here: what the child has started is not ended
// with it, and it gets signals from the terminal by itself.

var (
	endSignals   = []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	otherSignals []os.Signal
)

const stopSignal = syscall.Signal(-1)

func stopSelf() {}

// SignalCode is the exit code of a shell whose command a signal has ended.
func SignalCode(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return 128 + int(number)
}

func stateCode(s *os.ProcessState) int { return s.ExitCode() }

func keepThread() (release func()) { return func() {} }

type childGroup struct {
	group      int
	process    *os.Process
	exited     chan error
	stops      <-chan struct{}
	terminated time.Time
}

func startGroup(cmd *exec.Cmd) (*childGroup, error) {
	p := &childGroup{exited: make(chan error, 1)}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p.process = cmd.Process
	go func() { p.exited <- cmd.Wait() }()
	return p, nil
}

func (p *childGroup) signal(s os.Signal) {
	if s == syscall.SIGTERM {
		_ = p.process.Kill()
	}
}

func (p *childGroup) interrupted(error) os.Signal { return nil }

func (p *childGroup) terminate() { p.kill() }

func (p *childGroup) kill() { _ = p.process.Kill() }

func (p *childGroup) isEmpty() bool { return true }

// watchdog is none: a process that is stopped here does not end its command.
type watchdog struct {
	args []string
	name string
	errs io.Writer
}

func (d *watchdog) start() error { return nil }

func (d *watchdog) guard(int) {}

func (d *watchdog) extend(time.Duration) {}

func (d *watchdog) isDue() bool { return false }

func (d *watchdog) end() {}

// Watch is not supported here.
func Watch(string, io.Writer) error { return errors.ErrUnsupported }

func bootTime() time.Duration { return 0 }
