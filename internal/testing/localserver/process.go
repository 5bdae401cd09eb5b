package localserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// process is a running child, in a process group of its own.
type process struct {
	name   string
	log    string        // the file that takes its output
	group  int           // the id of its process group
	exited chan struct{} // closed once the child was reaped
	err    error         // how it ended; valid once exited is closed
}

// startProcess runs argv in folder dir, its output appended to the file log.
//
// The child gets a process group of its own, so that a ^C in the terminal reaches only the
// parent, and the parent then stops the child. On Linux the kernel kills the child when the *thread*
// that started it ends, so that thread is reserved until the child has ended.
func startProcess(argv []string, dir, log string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", argv[0], err)
	}
	p := &process{name: filepath.Base(argv[0]), log: log, exited: make(chan struct{})}
	cmd := exec.Command(argv[0], argv[1:]...) // it outlives the context of its start
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = dir, out, out, ownGroup()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = out.Close() // the child has its own copy
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", p.name, err)
	}
	p.group = cmd.Process.Pid
	return p, nil
}

// signal sends sig to the child and its children. It is no error if they have ended.
func (p *process) signal(sig syscall.Signal) error {
	select {
	case <-p.exited:
		return nil // its id may be another process by now
	default:
	}
	if err := signalGroup(p.group, sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("send %v to %s: %w", sig, p.name, err)
	}
	return nil
}

// pause stops the child, and returns when it has stopped.
func (p *process) pause() error {
	if err := p.signal(stopSignal); err != nil {
		return err
	}
	if err := awaitStopped(p.group); err != nil {
		return fmt.Errorf("wait until %s has stopped: %w", p.name, err)
	}
	return nil
}

// kill ends the child at once and waits until it is gone.
func (p *process) kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.exited
	return nil
}

// wait waits for the child to end; if ctx ends first, it kills the child. The error has the
// end of the log.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.exited:
		if p.err != nil {
			return fmt.Errorf("%s: %w%s", p.name, p.err, p.logTail())
		}
		return nil
	case <-ctx.Done():
		err := fmt.Errorf("%s did not end in time: %w%s", p.name, context.Cause(ctx), p.logTail())
		return errors.Join(err, p.kill())
	}
}

// logTail is the end of the child's output, for the end of an error message.
func (p *process) logTail() string {
	const maxLines = 40 // mariadb-install-db writes a lot after the error itself
	text, err := os.ReadFile(p.log)
	if err != nil {
		return fmt.Sprintf(" (its log cannot be read: %v)", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	tail := lines[max(0, len(lines)-maxLines):]
	return "; the end of its log:\n  " + strings.Join(tail, "\n  ")
}
