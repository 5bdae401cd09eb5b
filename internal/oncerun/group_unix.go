//go:build unix

package oncerun

import (
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// The signals that are passed on: endSignals ask a command to end, otherSignals do not.
var (
	endSignals   = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	otherSignals = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}
)

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

// childGroup is a command that runs in a process group of its own.
type childGroup struct {
	group      int
	exited     chan error // gets the result of Wait
	terminated time.Time  // when it was last sent SIGTERM
}

// startGroup starts a command. It reads no terminal: the terminal would stop a group in the background, as this is.
func startGroup(cmd *exec.Cmd) (*childGroup, error) {
	if in, ok := cmd.Stdin.(*os.File); ok && term.IsTerminal(int(in.Fd())) {
		cmd.Stdin = nil
	}
	signal.Ignore(syscall.SIGTTIN, syscall.SIGTTOU) // the command inherits it: stopped by /dev/tty, it would keep its lease for ever
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(cmd.SysProcAttr)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &childGroup{group: cmd.Process.Pid, exited: make(chan error, 1)}
	go func() { p.exited <- cmd.Wait() }()
	return p, nil
}

// signal sends a signal to the whole group.
func (p *childGroup) signal(s os.Signal) {
	number, _ := s.(syscall.Signal)
	_ = syscall.Kill(-p.group, number)
	if slices.Contains(endSignals, s) {
		_ = syscall.Kill(-p.group, syscall.SIGCONT) // a stopped process obeys only then
	}
	if s == syscall.SIGTERM {
		p.terminated = time.Now()
	}
}

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
