//go:build unix

package endtoend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// run is a life of a program, from a start to its end.
type run struct {
	log    string
	group  int           // the id of its process group
	exited chan struct{} // closed once the process was reaped
	err    error         // how it ended; valid once exited is closed
	ending atomic.Bool   // we ended it
}

// startRun starts a process that writes to a log. The thread that starts it is
// reserved until it ends: the kernel would take the end of that thread for ours.
func startRun(argv, env []string, log string) (*run, error) {
	out, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	r := &run{log: log, exited: make(chan struct{})}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = env, out, out, ownGroup()
	started := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		_ = out.Close() // the child has its own copy
		started <- err
		if err == nil {
			r.err = cmd.Wait()
			close(r.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	r.group = cmd.Process.Pid
	return r, nil
}

var errEndedByItself = errors.New("the process ended by itself")

// signal sends a signal to a process that must be alive.
func (r *run) signal(sig syscall.Signal) error {
	select {
	case <-r.exited:
		return fmt.Errorf("%w: %w", errEndedByItself, r.err)
	default:
		return syscall.Kill(-r.group, sig)
	}
}

// end sends a signal that ends the process and waits until it is gone, for so
// long as a stop may take. A process that ended by itself before is an error.
func (r *run) end(sig syscall.Signal) error {
	const most = 30 * time.Second
	if r.ending.Swap(true) {
		return nil
	}
	if err := r.signal(sig); err != nil {
		return err
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	select {
	case <-r.exited:
		return nil
	case <-timer.C:
		_ = syscall.Kill(-r.group, syscall.SIGKILL) // the error below says that it came to this
		<-r.exited
		return fmt.Errorf("the process was still there %v after %v", most, sig)
	}
}

func (r *run) failed() bool {
	select {
	case <-r.exited:
		exit, is := errors.AsType[*exec.ExitError](r.err)
		return is && exit.Exited()
	default:
		return false
	}
}

// line is a line of a log.
type line struct {
	Time    time.Time `json:"time"`
	Message string    `json:"msg"`
	Address string    `json:"address"`
	Count   int       `json:"count"`
	text    string
}

// isTrouble reports whether the line tells of a data race or a panic, by the runtime or by the pool that
// caught it.
func (l line) isTrouble() bool {
	for _, sign := range []string{"DATA RACE", "panic", "fatal error"} {
		if strings.Contains(l.text, sign) {
			return true
		}
	}
	return false
}

func (r *run) lines() (all []line, err error) {
	text, err := os.ReadFile(r.log)
	if err != nil {
		return nil, err
	}
	for part := range strings.Lines(string(text)) {
		l := line{text: strings.TrimSpace(part)}
		_ = json.Unmarshal([]byte(part), &l) // the runtime's own lines are no JSON
		all = append(all, l)
	}
	return all, nil
}

func (r *run) findLine(message string) (found line, ok bool, err error) {
	all, err := r.lines()
	for _, l := range all {
		if l.Message == message {
			return l, true, nil
		}
	}
	return line{}, false, err
}

// awaitLine waits until the process logs a line with the given message.
func (r *run) awaitLine(ctx context.Context, message string) (line, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if l, ok, err := r.findLine(message); ok || err != nil {
			return l, err
		}
		select {
		case <-tick.C:
		case <-r.exited:
			text, _ := os.ReadFile(r.log) // the error is about something else
			return line{}, fmt.Errorf("%w, without saying %q: %w\n%s", errEndedByItself, message, r.err, text)
		case <-ctx.Done():
			return line{}, fmt.Errorf("it does not say %q: %w", message, context.Cause(ctx))
		}
	}
}
