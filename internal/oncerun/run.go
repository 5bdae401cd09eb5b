// Package oncerun runs a command in the attempts of package once that fall to this process. The
// command has a process group of its own. The group gets the signals of this process, and ends
// before its lease does. A second process, the watchdog, ends the group when this process is
// stopped or killed.
package oncerun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
)

// The variables that the command finds.
const (
	AttemptVariable     = "ACTIVITYD_ATTEMPT"
	LastAttemptVariable = "ACTIVITYD_LAST_ATTEMPT" // 1 or 0
	FenceVariable       = "ACTIVITYD_FENCE"
)

const (
	messageTimeout = time.Second // of the messages that are left at the end
	maxMessages    = 16          // that wait until they are written
)

// Within calls a function, and waits for it no longer than the limit: the process ends
// soon.
func Within(limit time.Duration, call func()) {
	returned := make(chan struct{})
	go func() {
		defer close(returned)
		call()
	}()
	select {
	case <-returned:
	case <-time.After(limit):
	}
}

// Options are the parameters of a [Run].
type Options struct {
	Key     once.Key      // its margin is set
	Timeout time.Duration // of one attempt; 0: none
	// Command is started in each attempt, with its environment and its files.
	Command *exec.Cmd
	// Watchdog is the command line with which the program of this process calls [Watch], without
	// "--" and the name.
	Watchdog []string
	Errs     io.Writer // gets errors that do not end the command, in lines
}

// Run runs one command under a name.
type Run struct {
	Options

	ctx    context.Context // ends by a signal, while no child runs
	cancel context.CancelCauseFunc
	said   string      // the last error of the store that was said
	owner  string      // of the state that the store has answered last, without its random part
	lines  chan string // that are to be written to Errs
	// stopGrace is how long the rest of a group has before KILL, if a signal ended its command.
	stopGrace time.Duration

	watchdog *watchdog

	mu      sync.Mutex
	child   *childGroup // nil: none
	stopped os.Signal   // the first signal that was to end the command
}

// New returns a run. Its signals are to be passed on, see [Run.PassSignals], before [Run.Do].
func New(ctx context.Context, o Options) *Run {
	o.Key.Margin = o.Key.Lease / 3
	r := &Run{Options: o, stopGrace: 30 * time.Second}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.watchdog = &watchdog{args: o.Watchdog, name: o.Key.Name, errs: o.Command.Stderr}
	return r
}

// Context ends when a signal ends the waiting. There is no command then.
func (r *Run) Context() context.Context { return r.ctx }

// Owner is who has done the work, if [Run.Do] has not.
func (r *Run) Owner() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.owner
}

// Do runs the command in the attempts that fall to this process, and reports whether the command
// succeeded here. The error is a [*CommandError], a [*StartError], a [*SignalError], or an error of
// package once.
func (r *Run) Do(store once.Store, notifier *notify.Notifier) (did bool, err error) {
	defer r.cancel(nil)
	defer r.writeMessages()()
	o := once.New(watchedStore{store, r}, once.Options{Notifier: notifier, Hooks: once.Hooks{
		Error:  r.sayError,
		Status: func(_ string, s once.State) { r.setSaid(""); r.setOwner(s.Owner) },
	}})
	return o.Do(r.ctx, r.Key, r.attempt)
}

// watchedStore is a store that has the watchdog know of each lease that it grants.
type watchedStore struct {
	once.Store

	run *Run
}

// Apply implements [once.Store]. The lease at the store begins no earlier than the operation
// is sent. The watchdog kills when this process would, were it not stopped: see killAt.
func (s watchedStore) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	sent := bootTime()
	reply, err := s.Store.Apply(ctx, name, op)
	if err == nil && reply.Outcome == once.OK && (op.Action == once.Acquire || op.Action == once.Extend) {
		s.run.watchdog.extend(sent + s.run.Key.Lease - s.run.Key.Margin/4)
	}
	return reply, err
}

// SignalError is the cause when a signal ends a run that has no command running.
type SignalError struct{ Signal os.Signal }

func (e *SignalError) Error() string { return "stopped: " + e.Signal.String() }

// CommandError is how a command failed.
type CommandError struct {
	Code int // as a shell has it; see Ended
	err  error
	last bool // it was the last attempt
}

func (e *CommandError) Error() string { return e.err.Error() }
func (e *CommandError) Unwrap() error { return e.err }

// Ended reports whether the command was ended, since its lease was lost or it took too long.
func (e *CommandError) Ended() bool { return e.Code < 0 }

// StartError is that the command could not be started. It is no attempt.
type StartError struct{ err error }

func (e *StartError) Error() string { return "COMMAND: " + e.err.Error() }
func (e *StartError) Unwrap() error { return e.err }

// sayError writes an error that does not end the command: a failed attempt, or an unreachable
// store. It reports the same error of the store once until the store answers.
func (r *Run) sayError(name string, err error) {
	text := err.Error()
	if failure, ok := errors.AsType[*CommandError](err); !ok {
		if r.setSaid(text) == text {
			return
		}
	} else if text = name + ": " + text; failure.last || errors.Is(err, once.ErrLost) {
		return // Do returns it
	}
	r.say(text)
}

// say has a line written to standard error.
func (r *Run) say(text string) {
	select {
	case r.lines <- "activityd: " + text + "\n":
	default: // standard error takes none, and there are enough
	}
}

// writeMessages writes the messages of sayError until the caller calls stop. stop writes the rest.
// Standard error may block, and the caller of sayError also extends the lease.
func (r *Run) writeMessages() (stop func()) {
	r.lines = make(chan string, maxMessages)
	var writing sync.WaitGroup
	writing.Go(func() {
		for line := range r.lines {
			_, _ = io.WriteString(r.Errs, line)
		}
	})
	return func() {
		close(r.lines)
		Within(messageTimeout, writing.Wait)
	}
}

// setSaid returns the previous text.
func (r *Run) setSaid(text string) (before string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.said = r.said, text
	return before
}

func (r *Run) setOwner(owner string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.owner = owner[:max(0, strings.LastIndexByte(owner, '/'))]
}

// killAfter returns the time between TERM and KILL for the rest of a failed command's group.
func (r *Run) killAfter() time.Duration {
	return min(r.Key.Margin*3/4, 30*time.Second)
}

// killAt returns the time to send KILL to the group of a command whose lease is lost: a quarter of
// the margin before the end of the lease, for the delays of a busy machine. The time is in the past
// if another process holds the lease already.
func (r *Run) killAt(ctx context.Context) (at time.Time) {
	if lost, ok := errors.AsType[*once.LostError](context.Cause(ctx)); ok && !lost.Ends.IsZero() {
		return lost.Ends.Add(-r.Key.Margin / 4)
	}
	return at
}

// attempt is the work: it runs the command, and its whole group ends before ctx's lease.
func (r *Run) attempt(ctx context.Context, a once.Attempt) error {
	last := "0"
	if a.Last {
		last = "1"
	}
	env := append(slices.Clip(r.Command.Env), fmt.Sprintf("%s=%d", AttemptVariable, a.Number), LastAttemptVariable+"="+last, FenceVariable+"="+a.Fence.String())
	err := r.runChild(ctx, env)
	code := -1
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && !errors.Is(err, errTimedOut) {
		code = stateCode(exit.ProcessState)
	} else if !errors.Is(err, errEnded) && !errors.Is(err, errTimedOut) {
		return err
	}
	return &CommandError{Code: code, last: a.Last, err: fmt.Errorf("attempt %d of %d: %w", a.Number, r.Key.Attempts, err)}
}

// errEnded is that a command was told to end when its lease was lost, and says that it has
// succeeded: it may have left its work undone.
var errEnded = errors.New("it was ended, with exit status 0")

// errTimedOut is that a command was ended because an attempt took too long.
var errTimedOut = errors.New("it took longer than --timeout")

// runChild runs the command once, and returns when all processes of its group have ended. It leaves
// background processes alone after a success, unless a signal was to end the command. The error is
// an [exec.ExitError] if the command failed.
func (r *Run) runChild(ctx context.Context, env []string) (err error) {
	defer keepThread()()
	p, err := r.start(env)
	if err != nil {
		return err
	}
	defer r.ended()
	var late <-chan time.Time
	if r.Timeout > 0 {
		timer := time.NewTimer(r.Timeout)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case err = <-p.exited:
		r.awaitLoss(ctx, err)
	case <-ctx.Done(): // the lease is lost: nothing else ends it while there is a child
		select {
		case err = <-p.exited: // by itself, just now
		default:
			return cmp.Or(r.endGroup(ctx, p, false), errEnded)
		}
	case <-late:
		return fmt.Errorf("%w=%v: %w", errTimedOut, r.Timeout, cmp.Or(r.endGroup(ctx, p, false), errEnded))
	}
	if err != nil || r.isStopped() {
		_ = r.endGroup(ctx, p, true) // Wait has returned err
	}
	return err
}

// awaitLoss waits until it is known that the lease is lost, if a command has failed when it
// was: the watchdog has killed it, and this process goes on only now.
func (r *Run) awaitLoss(ctx context.Context, err error) {
	if err != nil && r.watchdog.isDue() {
		Within(maxKill, func() { <-ctx.Done() })
	}
}

// maxKill is the longest time from KILL to the end of a process. A process that takes longer hangs
// in the kernel, or is a zombie whose parent does not wait for it.
const maxKill = 5 * time.Second

// endGroup ends the group of a command, or the rest of the group if the command has exited. It
// sends TERM, and KILL if processes remain. It returns the result of Wait when the group is empty.
// Until then the lease is extended, unless it is lost.
func (r *Run) endGroup(ctx context.Context, p *childGroup, exited bool) (err error) {
	lost, killAt := ctx.Done(), time.Now().Add(r.terminate(p))
	if !exited && ctx.Err() != nil {
		lost, killAt = nil, r.killAt(ctx)
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for killed := (time.Time{}); !exited || !p.isEmpty(); {
		switch now := time.Now(); {
		case killed.IsZero() && !now.Before(killAt):
			p.signal(syscall.SIGKILL)
			killed = now
		case exited && !killed.IsZero() && now.Sub(killed) > maxKill:
			return err
		}
		select {
		case err = <-p.exited:
			exited = true
		case <-lost:
			lost = nil
			if at := r.killAt(ctx); at.Before(killAt) {
				killAt = at
			}
		case <-look.C:
		}
	}
	return err
}

// terminate sends TERM to the rest of a group, unless the group has just got it. It returns the
// time until KILL: longer if a signal ended the command.
func (r *Run) terminate(p *childGroup) (patience time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(p.terminated) > r.stopGrace {
		p.signal(syscall.SIGTERM)
	}
	if r.stopped != nil {
		return r.stopGrace
	}
	return r.killAfter()
}

// isStopped reports whether a signal was to end the command.
func (r *Run) isStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped != nil
}

// start starts the command, unless a signal came before.
func (r *Run) start(env []string) (*childGroup, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ctx.Err() != nil {
		return nil, context.Cause(r.ctx)
	}
	if err := r.watchdog.start(); err != nil {
		r.say(fmt.Sprintf("%s: the watchdog cannot be started: %v: if activityd is stopped, the command runs on", r.Key.Name, err))
	}
	p, err := startGroup(&exec.Cmd{
		Path: r.Command.Path, Args: r.Command.Args, Env: env, Stdin: r.Command.Stdin, Stdout: r.Command.Stdout, Stderr: r.Command.Stderr,
	})
	if err != nil {
		err = &StartError{err}
		r.cancel(err) // so that the attempt is handed back
		r.watchdog.end()
		return nil, err
	}
	r.watchdog.guard(p.group)
	r.child = p
	return p, nil
}

// ended says that there is no child any more.
func (r *Run) ended() {
	r.watchdog.end()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.child = nil
	if r.stopped != nil {
		r.cancel(&SignalError{r.stopped})
	}
}

// PassSignals passes signals on until the caller calls stop. Ignored signals, as by nohup(1), stay
// ignored.
func (r *Run) PassSignals() (stop func()) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, slices.DeleteFunc(slices.Concat(endSignals, otherSignals), signal.Ignored)...)
	var passing sync.WaitGroup
	passing.Go(func() {
		for s := range signals {
			r.pass(s)
		}
	})
	return func() {
		signal.Stop(signals)
		close(signals)
		passing.Wait()
	}
}

// pass passes a signal on to the child. If there is none, a signal that ends processes
// ends the waiting.
func (r *Run) pass(s os.Signal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ends := slices.Contains(endSignals, s)
	if ends && r.stopped == nil {
		r.stopped = s
	}
	if r.child != nil {
		r.child.signal(s)
		return
	}
	if ends {
		r.cancel(&SignalError{s})
		signal.Reset(endSignals...) // the next signal has its default effect
	}
}
