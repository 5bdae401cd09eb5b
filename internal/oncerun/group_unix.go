//go:build unix

package oncerun

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The signals that are passed on: endSignals ask a command to end, otherSignals do not.
var (
	endSignals   = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	otherSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, stopSignal, syscall.SIGCONT}
)

// stopSignal stops the group together with this process. A stopped process cannot extend the lease.
const stopSignal = syscall.SIGTSTP

// stopSelf stops this process until it is sent SIGCONT.
func stopSelf() { _ = syscall.Kill(os.Getpid(), syscall.SIGSTOP) }

// SignalCode is the exit code of a shell whose command a signal has ended.
func SignalCode(s os.Signal) int {
	number, _ := s.(syscall.Signal)
	return 128 + int(number)
}

// stateCode returns the exit code that a shell would have.
func stateCode(s *os.ProcessState) int {
	if status, ok := s.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return SignalCode(status.Signal())
	}
	return s.ExitCode()
}

// terminal is standard input, as a file descriptor.
const terminal = 0

func ownGroup() int {
	group, _ := unix.Getpgid(0) // it does not fail for the caller
	return group
}

// inForeground reports whether the group of this process reads the terminal, and a shell with job
// control looks after it.
func inForeground() bool {
	group, err := unix.IoctlGetInt(terminal, unix.TIOCGPGRP)
	return err == nil && group == ownGroup()
}

// setForeground makes a group the terminal's foreground group. While a foreign group is in the
// foreground, this process ignores SIGTTOU: where "stty tostop" is set, a message would stop this
// process. A stopped process cannot extend the lease.
func setForeground(group int) {
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(terminal, unix.TIOCSPGRP, group)
	if group == ownGroup() {
		signal.Reset(syscall.SIGTTOU)
	}
}

// childGroup is a command that runs in a process group of its own.
type childGroup struct {
	group    int
	exited   chan error      // gets the result of Wait
	stops    <-chan struct{} // gets a value when the child was stopped from the terminal
	terminal bool            // the group was made the foreground group
	stopped  bool            // with this process

	terminated time.Time // when it was last sent SIGTERM
}

// startGroup starts a command. If this process reads a terminal, the child does instead.
func startGroup(cmd *exec.Cmd) (*childGroup, error) {
	p := &childGroup{exited: make(chan error, 1), terminal: cmd.Stdin == os.Stdin && inForeground()}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Foreground: p.terminal, Ctty: terminal}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		p.restoreTerminal()
		return nil, err
	}
	p.group = cmd.Process.Pid
	if p.terminal {
		signal.Ignore(syscall.SIGTTOU) // see setForeground; the command does not inherit it
		p.stops = watchStops(p.group)
	}
	go func() { p.exited <- cmd.Wait() }()
	return p, nil
}

// restoreTerminal puts the group of this process in the foreground, if the child's group was there.
// The shell does the same for a process that was killed.
func (p *childGroup) restoreTerminal() {
	if p.terminal {
		setForeground(ownGroup())
	}
}

// signal sends a signal to the whole group; [stopSignal] stops it and this process, until
// SIGCONT continues both.
func (p *childGroup) signal(s os.Signal) {
	number, _ := s.(syscall.Signal)
	switch {
	case s == stopSignal && p.terminal && ownSession():
		_ = syscall.Kill(-p.group, syscall.SIGCONT) // no shell would continue this process
		return
	case s == stopSignal:
		_ = syscall.Kill(-p.group, syscall.SIGSTOP)
		p.restoreTerminal()
		p.stopped = true
		stopSelf()
		return
	case s == syscall.SIGCONT && p.stopped:
		p.stopped = false
		if p.terminal && inForeground() {
			setForeground(p.group)
		}
	case s == syscall.SIGTERM:
		p.terminated = time.Now()
	}
	_ = syscall.Kill(-p.group, number)
}

// ownSession reports whether no shell with job control looks after this process: the
// leader of its session is in its group.
func ownSession() bool {
	session, err := unix.Getsid(0)
	return err != nil || session == ownGroup()
}

// interrupted takes the terminal back. It returns the signal from the terminal that ended the
// child; nil if there was none. Only the child's group gets such a signal.
func (p *childGroup) interrupted(err error) os.Signal {
	wasTerminal := p.terminal
	p.restoreTerminal()
	p.terminal = false
	exit, ok := err.(*exec.ExitError) //nolint:errorlint // of Wait
	if !ok || !wasTerminal {
		return nil
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if stateCode(exit.ProcessState) == SignalCode(s) {
			return s
		}
	}
	return nil
}

// terminate sends the whole group SIGTERM.
func (p *childGroup) terminate() {
	_ = syscall.Kill(-p.group, syscall.SIGTERM)
	_ = syscall.Kill(-p.group, syscall.SIGCONT) // a stopped process obeys only then
	p.terminated = time.Now()
}

func (p *childGroup) kill() { _ = syscall.Kill(-p.group, syscall.SIGKILL) }

// isEmpty reports whether all processes of the group have ended. Call it after the command has
// exited. The kernel does not reuse the number of a group while a member lives.
func (p *childGroup) isEmpty() bool {
	for { // as the first process of a container, this process is now the parent of orphans
		if pid, err := unix.Wait4(-p.group, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
			break
		}
	}
	return syscall.Kill(-p.group, 0) == syscall.ESRCH
}
