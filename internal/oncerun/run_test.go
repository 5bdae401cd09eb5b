//go:build unix

package oncerun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
)

// fixture is a run over a store in memory, with a command of sh.
type fixture struct {
	store   once.Store
	options Options
	errs    bytes.Buffer
}

func newFixture() *fixture {
	return &fixture{
		store:   oncetest.NewMemory(time.Now),
		options: Options{Key: once.Key{Name: "digest", Attempts: 3, Lease: time.Minute, Keep: time.Hour}, Watchdog: []string{"activityd", watchdogWord}},
	}
}

// newRun returns a run of sh, and the file of its output.
func (f *fixture) newRun(t *testing.T, script string) (*Run, *os.File) {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	t.Cleanup(func() { _ = out.Close() })
	o := f.options
	o.Command, o.Errs = &exec.Cmd{Path: "/bin/sh", Args: []string{"sh", "-c", script}, Env: os.Environ(), Stdout: out, Stderr: out}, &f.errs
	return New(t.Context(), o), out
}

// do runs r, and returns its outcome in words.
func (f *fixture) do(r *Run) string {
	did, err := r.Do(f.store, &notify.Notifier{})
	return outcome(did, err)
}

// run runs sh, and returns the outcome and the output of the command.
func (f *fixture) run(t *testing.T, script string) (became, out string) {
	t.Helper()
	r, file := f.newRun(t, script)
	became = f.do(r)
	text, err := os.ReadFile(file.Name())
	must(t, err)
	return became, string(text)
}

// The outcomes of a run, beside "exit N" and "signal N".
const (
	done      = "done"
	elsewhere = "done elsewhere"
	busy      = "busy"
	exhausted = "exhausted elsewhere"
	ended     = "ended" // the command was
)

func outcome(did bool, err error) string {
	start, isStart := errors.AsType[*StartError](err)
	failure, isCommand := errors.AsType[*CommandError](err)
	stop, isStop := errors.AsType[*SignalError](err)
	switch {
	case err == nil && did:
		return done
	case err == nil:
		return elsewhere
	case errors.Is(err, once.ErrBusy):
		return busy
	case errors.Is(err, once.ErrLost), isCommand && failure.Ended():
		return ended
	case isCommand:
		return fmt.Sprint("exit ", failure.Code)
	case errors.Is(err, once.ErrExhausted):
		return exhausted
	case isStart:
		return fmt.Sprint("not found: ", errors.Is(start, fs.ErrNotExist))
	case isStop:
		return fmt.Sprint("exit ", SignalCode(stop.Signal))
	}
	return err.Error()
}

// The command finds its attempt; a command that succeeds does not run again.
func TestOnceRunsUntilItIsDone(t *testing.T) {
	t.Parallel()
	f := newFixture()
	const script = `echo $ACTIVITYD_ATTEMPT $ACTIVITYD_LAST_ATTEMPT $ACTIVITYD_FENCE; test $ACTIVITYD_ATTEMPT = 3`
	if became, out := f.run(t, script); became != done || out != "1 0 1\n2 0 2\n3 1 3\n" {
		t.Errorf("%s, %q", became, out)
	}
	if want := "activityd: digest: attempt 1 of 3: exit status 1\nactivityd: digest: attempt 2 of 3: exit status 1\n"; f.errs.String() != want {
		t.Errorf("said %q", f.errs.String())
	}
	f.errs.Reset()
	r, _ := f.newRun(t, script)
	if became := f.do(r); became != elsewhere || f.errs.Len() > 0 {
		t.Errorf("%s, %q", became, &f.errs)
	}
	if !regexp.MustCompile(`^\S+/\d+@\S+Z$`).MatchString(r.Owner()) {
		t.Errorf("done by %q", r.Owner())
	}
}

// The exit code is that of the command, if its last attempt was that of this process.
func TestOnceWithoutAttemptsLeft(t *testing.T) {
	t.Parallel()
	f := newFixture()
	f.options.Key.Attempts = 1
	for _, want := range []struct{ became, out string }{{"exit 42", "x"}, {exhausted, ""}} {
		r, file := f.newRun(t, "printf x; exit 42")
		_, err := r.Do(f.store, &notify.Notifier{})
		out, _ := os.ReadFile(file.Name())
		if outcome(false, err) != want.became || string(out) != want.out || !strings.Contains(err.Error(), "all attempts failed, 1 of them: attempt 1 of 1: exit status 42") || f.errs.Len() > 0 {
			t.Errorf("%v, %q, %q", err, out, &f.errs)
		}
	}
}

func TestOnceBusy(t *testing.T) {
	t.Parallel()
	f := newFixture()
	_, err := f.store.Apply(t.Context(), "digest", once.Operation{Action: once.Acquire, Owner: "other", Terms: once.Terms{Lease: time.Hour, Keep: time.Hour, Attempts: 3}})
	must(t, err)
	for _, f.options.Key = range []once.Key{{Name: "digest", NoWait: true, Lease: time.Minute}, {Name: "digest", Wait: time.Millisecond, Lease: time.Minute}} {
		if became, out := f.run(t, "echo x"); became != busy || out != "" {
			t.Errorf("%s, %q", became, out)
		}
	}
	f.options.Key.Wait = 0
	r, _ := f.newRun(t, "echo x")
	locked := make(chan string)
	go func() { locked <- f.do(r) }()
	r.pass(syscall.SIGUSR1) // is for the command alone
	r.pass(syscall.SIGHUP)
	if became := <-locked; became != exitOf(syscall.SIGHUP) {
		t.Error(became)
	}
}

// exitOf returns the outcome of a command that a signal has ended.
func exitOf(s syscall.Signal) string { return fmt.Sprint("exit ", 128+int(s)) }

// An attempt that takes longer than --timeout is ended, with its group, and has failed, also
// if the command says that it has succeeded.
func TestOnceTimeout(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ trap, want string }{
		"ends at TERM":    {"trap 'echo ends; exit 0' TERM", "all attempts failed, 1 of them: attempt 1 of 1: it took longer than --timeout=%v: it was ended, with exit status 0"},
		"fails at TERM":   {"trap 'echo ends; exit 3' TERM", "attempt 1 of 1: it took longer than --timeout=%v: exit status 3"},
		"does not end":    {"trap 'echo ends' TERM", "attempt 1 of 1: it took longer than --timeout=%v: signal: killed"},
		"leaves a worker": {"(trap '' TERM; exec sleep 1000) & trap 'echo ends; exit 0' TERM", "it took longer than --timeout=%v: it was ended, with exit status 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, out := newFixture(), ""
			var err error
			// A machine that is slow may end the command before it is ready, or has said so.
			for limit := 10 * time.Millisecond; !strings.HasSuffix(out, "\nends\n"); limit *= 2 {
				f.store = oncetest.NewMemory(time.Now)
				f.options.Key.Attempts, f.options.Timeout = 1, limit
				r, file := f.newRun(t, c.trap+"; echo $$; while :; do sleep 0.01; done")
				r.Key.Margin = min(40*limit, f.options.Key.Lease/2) // KILL comes after three quarters of it
				_, err = r.Do(f.store, &notify.Notifier{})
				text, readErr := os.ReadFile(file.Name())
				must(t, readErr)
				out = string(text)
			}
			if outcome(false, err) != ended || !strings.Contains(err.Error(), fmt.Sprintf(c.want, f.options.Timeout)) {
				t.Error(err)
			}
			if reply, err := f.store.Get(t.Context(), "digest"); err != nil || reply.State.Phase != once.Exhausted {
				t.Errorf("%+v, %v", reply.State, err)
			}
			line, _, _ := strings.Cut(out, "\n")
			group, err := strconv.Atoi(line)
			must(t, err)
			if syscall.Kill(-group, 0) != syscall.ESRCH {
				t.Error("a part of the group lives")
			}
		})
	}
}

// A command that cannot be started is no attempt.
func TestOnceCannotStart(t *testing.T) {
	t.Parallel()
	f := newFixture()
	for content, want := range map[string]string{"no program": "not found: false", "#!/nonexistent/interpreter\n": "not found: true"} {
		r, _ := f.newRun(t, "")
		r.Command.Path = filepath.Join(t.TempDir(), "program")
		must(t, os.WriteFile(r.Command.Path, []byte(content), 0o700))
		if became := f.do(r); became != want {
			t.Errorf("%q: %s", content, became)
		}
		if reply, err := f.store.Get(t.Context(), "digest"); err != nil || reply.State.Phase != once.Free || reply.State.Attempt != 0 {
			t.Errorf("%+v, %v", reply.State, err)
		}
	}
}

// Signals reach the whole group, any number of them. If the command fails after a signal that ends
// it, the attempt is handed back; if it succeeds, the work is done.
func TestOncePassesSignalsOn(t *testing.T) {
	t.Parallel()
	const script = `trap 'echo 1' USR1; trap 'echo 2' USR2; trap 'echo hup' HUP; trap 'echo %; exit ' TERM
		(trap '' USR1 USR2 HUP; trap 'echo %; exit' TERM; echo child; while :; do sleep 0.01; done) & echo ready; while :; do sleep 0.01; done`
	for end, want := range map[string]struct {
		became string
		phase  once.Phase
	}{"exit 0": {done, once.Done}, "exit 3": {"exit 3", once.Free}, "trap - TERM; kill $$": {exitOf(syscall.SIGTERM), once.Free}} {
		f := newFixture()
		r, file := f.newRun(t, strings.Replace(strings.Replace(script, "%; exit ", "end; "+end, 1), "%", "child ends", 1))
		became := make(chan string)
		go func() { became <- f.do(r) }()
		says(t, file, "ready")
		says(t, file, "child")
		for sig, text := range map[syscall.Signal]string{syscall.SIGUSR1: "1", syscall.SIGUSR2: "2", syscall.SIGHUP: "hup"} {
			r.pass(sig)
			says(t, file, text)
		}
		r.pass(syscall.SIGTERM)
		says(t, file, "child ends")
		if got := <-became; got != want.became {
			t.Errorf("%s: %s", end, got)
		}
		reply, err := f.store.Get(t.Context(), "digest")
		must(t, err)
		if reply.State.Phase != want.phase || want.phase == once.Free && reply.State.Attempt != 0 {
			t.Errorf("%s: %+v", end, reply.State)
		}
	}
}

// says waits until the output has a line.
func says(t *testing.T, file *os.File, line string) {
	t.Helper()
	eventually(t, line, func() bool {
		out, err := os.ReadFile(file.Name())
		return err == nil && strings.Contains("\n"+string(out), "\n"+line+"\n")
	})
}

// groupOf returns the group of the command, while it runs; 0: none runs.
func groupOf(r *Run) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.child == nil {
		return 0
	}
	return r.child.group
}

// An attempt is over when the whole group of its command is. A command that a signal ended, or that
// failed, leaves no process behind that works beside the next attempt.
func TestOnceEndsWhatIsLeftOfTheGroup(t *testing.T) {
	t.Parallel()
	const worker = `(trap '' HUP; trap 'echo worker ends; while ! test -e "$0"; do sleep 0.01; done; echo worker ended; exit' TERM; echo works; while :; do sleep 0.01; done)`
	for name, c := range map[string]struct {
		script string
		signal os.Signal
		became string
		phase  once.Phase
	}{
		"ended by a signal":         {worker + " & while :; do sleep 0.01; done", syscall.SIGTERM, exitOf(syscall.SIGTERM), once.Free},
		"ended by another signal":   {"trap 'exit 0' HUP; " + worker + " & while :; do sleep 0.01; done", syscall.SIGHUP, done, once.Done},
		"failed":                    {worker + " & while ! test -e \"$0.go\"; do sleep 0.01; done; exit 4", nil, "exit 4", once.Exhausted},
		"failed, and ignores TERM":  {"trap '' TERM; (echo works; echo worker ends; sleep 1000) & while ! test -e \"$0.go\"; do sleep 0.01; done; exit 5", nil, "exit 5", once.Exhausted},
		"signalled, and ignores it": {"(trap '' TERM; echo works; echo worker ends; sleep 1000) & while :; do sleep 0.01; done", syscall.SIGTERM, exitOf(syscall.SIGTERM), once.Free},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.options.Key.Attempts = 1
			f.options.Key.Lease = 10 * time.Minute
			r, file := f.newRun(t, c.script)
			ignores := strings.Contains(c.script, "trap '' TERM")
			if ignores {
				r.Key.Margin, r.stopGrace = 400*time.Millisecond, 300*time.Millisecond
			}
			end := filepath.Join(t.TempDir(), "end")
			r.Command.Args = append(r.Command.Args, end)
			became := make(chan string, 1)
			go func() { became <- f.do(r) }()
			says(t, file, "works")
			group := groupOf(r)
			if c.signal != nil {
				r.pass(c.signal)
			} else {
				must(t, os.WriteFile(end+".go", nil, 0o600))
			}
			says(t, file, "worker ends")
			if !ignores {
				eventually(t, "the command has exited", func() bool { return isGone(group) })
				reply, err := f.store.Get(t.Context(), "digest")
				must(t, err)
				if reply.State.Phase != once.Held || len(became) > 0 {
					t.Errorf("while a part of it works: %+v", reply.State)
				}
				must(t, os.WriteFile(end, nil, 0o600))
			}
			if got := <-became; got != c.became {
				t.Errorf("%s: %s", got, &f.errs)
			}
			if syscall.Kill(-group, 0) != syscall.ESRCH {
				t.Error("a part of the group lives")
			}
			if !ignores {
				says(t, file, "worker ended")
			}
			reply, err := f.store.Get(t.Context(), "digest")
			must(t, err)
			if reply.State.Phase != c.phase {
				t.Errorf("%+v", reply.State)
			}
		})
	}
}

// Background processes of a command that has succeeded stay alive.
func TestOnceLeavesTheBackgroundAlone(t *testing.T) {
	t.Parallel()
	f := newFixture()
	became, out := f.run(t, "sleep 1000 & echo $!")
	pid, err := strconv.Atoi(strings.TrimSpace(out))
	must(t, err)
	if became != done || isGone(pid) {
		t.Errorf("%s, and it is gone: %t", became, isGone(pid))
	}
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// KILL comes before the end of the lease, however late this process learns of the loss: a process
// that woke up too late kills at once.
func TestOnceKillsAtATime(t *testing.T) {
	t.Parallel()
	const quarter = 2 * time.Hour // of the margin: a relative time would not pass here
	for name, c := range map[string]struct {
		ends time.Duration // from now on; 0: it is another's already
		trap string
		want string // the error
		says bool
	}{
		"in time":       {3 * quarter, "echo ends; exit 0", errEnded.Error(), true},
		"soon":          {quarter + 5*time.Second, "echo ends", "signal: killed", true},
		"too late":      {quarter, "sleep 60; echo ends", "signal: killed", false},
		"expired":       {-quarter, "sleep 60; echo ends", "signal: killed", false},
		"it is another": {0, "sleep 60; echo ends", "signal: killed", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture()
			f.options.Key.Lease = 24 * time.Hour
			r, file := f.newRun(t, "trap '"+c.trap+"' TERM; echo runs; while :; do sleep 0.01; done")
			ctx, end := context.WithCancelCause(t.Context())
			result := make(chan error)
			go func() { result <- r.runChild(ctx, r.Command.Env) }()
			says(t, file, "runs")
			lost := &once.LostError{}
			if c.ends != 0 {
				lost.Ends = time.Now().Add(c.ends)
			}
			end(lost)
			if err := <-result; err == nil || err.Error() != c.want {
				t.Errorf("%v, want %s", err, c.want)
			}
			if out, err := os.ReadFile(file.Name()); err != nil || strings.Contains(string(out), "ends\n") != c.says {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
}

// A command that ignores SIGTERM is killed with all its processes, before the lease can have run out. A command that ends
// well because it is told to has not done its work.
func TestOnceEndsTheGroupOfALostLease(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`trap 'echo term' TERM; (trap '' TERM; sleep 1000 & wait; sleep 1000) & echo runs; while :; do sleep 0.01; done`: "signal: killed",
		"trap 'echo term; exit 0' TERM; echo runs; while :; do sleep 0.01; done":                                         errEnded.Error(),
	} {
		f := newFixture()
		away := &awayStore{Store: f.store}
		f.store, f.options.Key.Lease = away, 10*time.Second
		r, file := f.newRun(t, script)
		r.Key.Margin = r.Key.Lease / 2 // TERM comes so long before the end of the lease, and KILL a quarter of it
		became := make(chan error)
		go func() {
			_, err := r.Do(f.store, &notify.Notifier{})
			became <- err
		}()
		says(t, file, "runs")
		group := groupOf(r)
		away.away.Store(true)
		says(t, file, "term")
		eventually(t, "the group is gone", func() bool { return syscall.Kill(-group, 0) == syscall.ESRCH && groupOf(r) == 0 })
		away.away.Store(false)
		if err := <-became; outcome(false, err) != ended || !strings.Contains(err.Error(), "attempt 1 of 3: "+want) {
			t.Errorf("%v, want %s", err, want)
		}
		if reply, err := f.store.Get(t.Context(), "digest"); err != nil || reply.State.Phase == once.Done {
			t.Errorf("%+v, %v", reply.State, err)
		}
		if said := f.errs.String(); !strings.HasPrefix(said, "activityd: extend digest: ") || strings.Count(said, "extend") != 1 {
			t.Errorf("said %q", said)
		}
	}
}

// sayError returns at once when nobody reads standard error, so that its caller goes on extending
// the lease. The process ends all the same.
func TestOnceMessagesDoNotBlock(t *testing.T) {
	t.Parallel()
	f := newFixture()
	r, _ := f.newRun(t, "while :; do sleep 0.01; done")
	blocked := make(chan struct{})
	t.Cleanup(func() { close(blocked) })
	r.Errs = writerFunc(func(p []byte) (int, error) { <-blocked; return len(p), nil })
	became := make(chan string)
	go func() { became <- f.do(r) }()
	eventually(t, "it runs", func() bool { return groupOf(r) != 0 })
	for n := range 2 * maxMessages { // the test would hang
		r.sayError("digest", fmt.Errorf("%w: number %d", once.ErrUnavailable, n))
	}
	r.pass(syscall.SIGTERM)
	if got := <-became; got != exitOf(syscall.SIGTERM) {
		t.Error(got)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// awayStore is a store that may be away.
type awayStore struct {
	once.Store

	away atomic.Bool
}

func (s *awayStore) Apply(ctx context.Context, name string, op once.Operation) (once.Reply, error) {
	if s.away.Load() {
		return once.Reply{}, once.ErrUnavailable
	}
	return s.Store.Apply(ctx, name, op)
}
