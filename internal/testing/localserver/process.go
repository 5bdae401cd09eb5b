package localserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// Process is a running child, in a process group of its own.
type Process struct {
	Name   string
	Log    string        // the file that takes its output
	Group  int           // the id of its process group
	Exited chan struct{} // closed once the child was reaped
	Err    error         // how it ended; valid once Exited is closed
}

// StartProcess runs argv in folder dir with an environment, its output appended to the file log. An empty dir is the
// present folder, and no environment that of this process.
//
// The child gets a process group of its own, so that a ^C in the terminal reaches only the
// parent, and the parent then stops the child. On Linux the kernel kills the child when the *thread*
// that started it ends, so that thread is reserved until the child has ended.
func StartProcess(argv, env []string, dir, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", argv[0], err)
	}
	p := &Process{Name: filepath.Base(argv[0]), Log: log, Exited: make(chan struct{})}
	cmd := exec.Command(argv[0], argv[1:]...) // it outlives the context of its start
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, env, out, out, ownGroup()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = out.Close() // the child has its own copy
		started <- err
		if err == nil {
			p.Err = cmd.Wait()
			close(p.Exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	p.Group = cmd.Process.Pid
	return p, nil
}

// Signal sends sig to the child and its children. It is no error if they have ended.
func (p *Process) Signal(sig syscall.Signal) error {
	select {
	case <-p.Exited:
		return nil // its id may be another process by now
	default:
	}
	if err := syscall.Kill(-p.Group, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %v to %s: %w", sig, p.Name, err)
	}
	return nil
}

// Pause stops the child, and returns when it has stopped.
func (p *Process) Pause() error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	if err := awaitStopped(p.Group); err != nil {
		return fmt.Errorf("wait until %s has stopped: %w", p.Name, err)
	}
	return nil
}

// Resume continues a paused child.
func (p *Process) Resume() error { return p.Signal(syscall.SIGCONT) }

// Kill ends the child at once and waits until it is gone.
func (p *Process) Kill() error {
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.Exited
	return nil
}

// logTail is the end of the child's output, for the end of an error message.
func (p *Process) logTail() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return fmt.Sprintf(" (its log cannot be read: %v)", err)
	}
	return tailOf(text)
}

func tailOf(text []byte) string {
	const maxLines = 40 // mariadb-install-db writes a lot after the error itself
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "; the end of its log:\n  " + strings.Join(lines[max(0, len(lines)-maxLines):], "\n  ")
}
