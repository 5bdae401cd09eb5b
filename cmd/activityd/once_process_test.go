//go:build unix

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/oncerun"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/wake"
)

// The stores, and how notifications are carried.
const (
	inMySQL         = "mysql"
	inMySQLNotified = "mysql, notifications"
	inMySQLAlone    = "mysql, notifications away"
	inRedis         = "redis"
)

// newOnceStore returns flags for a store that is empty and ready.
func newOnceStore(t *testing.T, kind string) (flags []string) {
	t.Helper()
	redis := func() string { return "--redis-url=" + servertest.Redis(t).URL() }
	mysql := func() string { return "--mysql-dsn=" + servertest.MySQLDSN(t) }
	switch kind {
	case inMySQL:
		return []string{mysql()}
	case inMySQLNotified:
		return []string{mysql(), redis()}
	case inMySQLAlone:
		return []string{mysql(), "--redis-url=redis://127.0.0.1:1/0"}
	}
	return []string{redis()}
}

// onStores runs a test on stores of the kinds, each with flags of its own.
func onStores(t *testing.T, kinds []string, test func(t *testing.T, flags []string)) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			test(t, slices.Clip(newOnceStore(t, kind)))
		})
	}
}

// onceProcess is activityd once in a process of its own.
type onceProcess struct {
	cmd  *exec.Cmd
	out  string // the file of its output
	errs *bytes.Buffer
}

// startOnce starts once with a script of sh.
func startOnce(t *testing.T, flags []string, name, script string) *onceProcess {
	t.Helper()
	return startOnceCommand(t, flags, name, "sh", "-c", script)
}

func startOnceCommand(t *testing.T, flags []string, name string, command ...string) *onceProcess {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	out, err := os.Create(filepath.Join(t.TempDir(), "out"))
	must(t, err)
	p := &onceProcess{out: out.Name(), errs: &bytes.Buffer{}}
	line := slices.Concat([]string{"once"}, flags, []string{name, "--"}, command)
	p.cmd = exec.CommandContext(t.Context(), self, line...)
	p.cmd.Env = append(os.Environ(), asProgram+"=1")
	p.cmd.Stdout, p.cmd.Stderr = out, p.errs
	p.cmd.Cancel = func() error { // the command, too
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		return p.cmd.Process.Kill()
	}
	p.cmd.WaitDelay = 5 * time.Second // the rest of the command has its standard error
	must(t, p.cmd.Start())
	must(t, out.Close())
	t.Cleanup(func() { _ = p.cmd.Wait() }) // the test may have waited already; or else its end has killed it
	return p
}

// says waits until the command has written a line that begins with a word, and returns the
// rest of it.
func (p *onceProcess) says(t *testing.T, word string) (rest string) {
	t.Helper()
	line := regexp.MustCompile("(?m)^" + word + "(.*)\n")
	eventually(t, word, func() bool {
		out, err := os.ReadFile(p.out)
		must(t, err)
		found := line.FindSubmatch(out)
		if found != nil {
			rest = strings.TrimSpace(string(found[1]))
		}
		return found != nil
	})
	return rest
}

func (p *onceProcess) pid(t *testing.T, text string) int {
	t.Helper()
	pid, err := strconv.Atoi(p.says(t, text))
	must(t, err)
	return pid
}

// ends waits until the process ends, with an exit code.
func (p *onceProcess) ends(t *testing.T, code int) {
	t.Helper()
	_ = p.cmd.Wait() // the state says all
	if got := p.cmd.ProcessState; got.ExitCode() != code {
		t.Errorf("%v, want the exit code %d: %s", got, code, p.errs)
	}
}

// awaitListeners waits until so many processes listen to notifications.
func awaitListeners(t *testing.T, flags []string, n int64) {
	t.Helper()
	client, err := openRedis(strings.TrimPrefix(flags[len(flags)-1], "--redis-url="))
	must(t, err)
	defer func() { _ = client.Close() }()
	eventually(t, "they listen", func() bool {
		return client.PubSubNumSub(t.Context(), wake.Channel).Val()[wake.Channel] == n
	})
}

func isGone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// hasEnded reports whether a process has ended, even if its parent has not noticed it, as a stopped parent does not.
func hasEnded(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return isGone(pid) || err == nil && oncerun.ParseStat(string(text)).State == "Z"
}

// awaitState waits until the name is in a state, as the command show prints it.
func awaitState(t *testing.T, flags []string, name, want string) {
	t.Helper()
	eventually(t, want, func() bool {
		_, out, _ := command(t, nil, append([]string{"once", "show", name}, flags...)...)
		return strings.Contains(out, want)
	})
}

// awaitExtension waits until the lease of a name that is held has been extended: by then the
// watchdog knows the group of the command.
func awaitExtension(t *testing.T, flags []string, name string) {
	t.Helper()
	until := func() string {
		_, out, _ := command(t, nil, append([]string{"once", "show", name}, flags...)...)
		return leaseUntil.FindString(out)
	}
	first := until()
	eventually(t, "the lease is extended", func() bool { return first != "" && until() != first })
}

var leaseUntil = regexp.MustCompile(`lease ends +\S+ \S+`)

// When the host that runs the command dies, the command dies, and the waiting host runs it again.
func TestOnceTakesOverFromADeadHost(t *testing.T) {
	t.Parallel()
	onStores(t, []string{inMySQL, inMySQLNotified, inMySQLAlone, inRedis}, func(t *testing.T, flags []string) {
		flags = append(flags, "--lease=6s")
		first := startOnce(t, flags, "digest", "echo fence $ACTIVITYD_FENCE; sleep 1000 & echo worker $!; echo pid $$; wait; wait")
		pid, worker := first.pid(t, "pid"), first.pid(t, "worker")
		second := startOnce(t, flags, "digest", "echo attempt $ACTIVITYD_ATTEMPT; echo fence $ACTIVITYD_FENCE")
		awaitExtension(t, flags[:len(flags)-1], "digest") // without --lease
		must(t, first.cmd.Process.Kill())
		if got := second.says(t, "attempt"); got != "2" {
			t.Errorf("attempt %s", got)
		}
		second.ends(t, exitOK)
		if !hasEnded(pid) || !hasEnded(worker) {
			t.Error("the command of the one that was killed lives, or what it has started")
		}
		before, _ := strconv.Atoi(first.says(t, "fence"))
		if after, _ := strconv.Atoi(second.says(t, "fence")); after <= before {
			t.Errorf("the fence %d after %d", after, before)
		}
	})
}

// The command of a process that is stopped, and does not extend its lease, has ended with its
// whole group when the next attempt begins.
func TestOnceIsPausedPastItsLease(t *testing.T) {
	t.Parallel()
	onStores(t, []string{inMySQL, inRedis}, func(t *testing.T, flags []string) {
		flags = append(flags, "--lease=9s")
		first := startOnce(t, flags, "digest", "trap 'echo late' TERM; sleep 1000 & echo pid $!; echo group $$; wait; wait")
		pid, group := first.pid(t, "pid"), first.pid(t, "group")
		must(t, first.cmd.Process.Signal(syscall.SIGSTOP))
		second := startOnce(t, flags, "digest", "echo attempt $ACTIVITYD_ATTEMPT; exec sleep 1000")
		if got := second.says(t, "attempt"); got != "2" {
			t.Errorf("attempt %s", got)
		}
		if !hasEnded(group) || !hasEnded(pid) {
			t.Error("the command of the one that is stopped works beside the next attempt")
		}
		must(t, first.cmd.Process.Signal(syscall.SIGCONT))
		first.ends(t, exitLost)
		if said := first.errs.String(); !strings.Contains(said, "activityd: digest: the watchdog has killed the command: its lease was not extended\n") {
			t.Errorf("said %q", said)
		}
		if out, err := os.ReadFile(first.out); err != nil || strings.Contains(string(out), "late") {
			t.Errorf("it went on: %q, %v", out, err)
		}
		must(t, second.cmd.Process.Signal(syscall.SIGINT))
		second.ends(t, 128+int(syscall.SIGINT))
		awaitState(t, flags[:len(flags)-1], "digest", "attempts      1 of 5") // the second attempt was handed back
	})
}

// A waiting process goes on when an attempt is over, and not when its lease would be: with a lease of hours, only a
// notification ends this test.
func TestOnceIsNotified(t *testing.T) {
	t.Parallel()
	onStores(t, []string{inMySQLNotified, inRedis}, func(t *testing.T, store []string) {
		flags := slices.Concat(store, []string{"--lease=9h", "--exit-code-done=9", "--quiet"})
		const script = "trap 'exit 0' USR1; echo attempt $ACTIVITYD_ATTEMPT; while :; do sleep 0.01; done"
		first := startOnce(t, flags, "digest", script)
		first.says(t, "attempt")
		second := startOnce(t, flags, "digest", script)
		awaitListeners(t, store, 2)
		code, out, errs := command(t, nil, append(append([]string{"once", "digest", "--no-wait"}, flags...), "--", "true")...)
		if code != exitBusy || out != "" || !strings.Contains(errs, "another process works on it") {
			t.Errorf("exit code %d, %q, %q", code, out, errs)
		}
		must(t, first.cmd.Process.Signal(syscall.SIGTERM))
		first.ends(t, 128+int(syscall.SIGTERM))
		if want := "activityd: digest: handed back: attempt 1 of 5: signal: terminated\n"; first.errs.String() != want {
			t.Errorf("said %q", first.errs)
		}
		if got := second.says(t, "attempt"); got != "1" {
			t.Errorf("attempt %s, and the first one was handed back", got)
		}
		third := startOnce(t, flags, "digest", script)
		awaitListeners(t, store, 2)
		must(t, second.cmd.Process.Signal(syscall.SIGUSR1))
		second.ends(t, exitOK)
		third.ends(t, 9)
		if strings.Contains(second.errs.String(), "activityd") || third.errs.Len() > 0 { // sh reports the signal
			t.Errorf("said %q, %q", second.errs, third.errs)
		}

		const fails = "echo attempt; test $ACTIVITYD_ATTEMPT = 3"
		ones := []*onceProcess{startOnce(t, flags, "other", fails), startOnce(t, flags, "other", fails)}
		attempts, codes := 0, 0
		for _, p := range ones {
			_ = p.cmd.Wait() // the state says all
			codes += p.cmd.ProcessState.ExitCode()
			text, err := os.ReadFile(p.out)
			must(t, err)
			attempts += strings.Count(string(text), "attempt\n")
		}
		if attempts != 3 || codes != 9 {
			t.Errorf("%d attempts, the exit codes add up to %d", attempts, codes)
		}
	})
}

// The exit code is that of the command, whichever it is: 1 is not taken for a failure of
// activityd itself.
func TestOnceExitCodes(t *testing.T) {
	t.Parallel()
	store := newOnceStore(t, inRedis)[0]
	for _, code := range []int{0, 1, 2, 3, 125, 255} {
		args := []string{"once", store, "--attempts=1", fmt.Sprintf("ends-%d", code), "--", "sh", "-c", fmt.Sprintf("exit %d", code)}
		if got, _, errs := command(t, nil, args...); got != code {
			t.Errorf("exit code %d of a command that ended with %d: %s", got, code, errs)
		}
		args = []string{"once", store, fmt.Sprintf("--exit-code-done=%d", code), "ends-0", "--", "false"}
		if got, _, errs := command(t, nil, args...); got != code {
			t.Errorf("exit code %d with --exit-code-done=%d: %s", got, code, errs)
		}
	}
	if code, _, _ := command(t, nil, "once", store, "--nonsense", "x", "--", "true"); code != exitOwn {
		t.Errorf("a failure of activityd: exit code %d", code)
	}
}

// A signal ends the waiting, and is no reason to count an attempt.
func TestOnceASignalEndsTheWaiting(t *testing.T) {
	t.Parallel()
	onStores(t, []string{inMySQLNotified, inRedis}, func(t *testing.T, store []string) {
		holder := startOnce(t, store, "digest", "echo runs; exec sleep 1000")
		holder.says(t, "runs")
		awaitListeners(t, store, 1)
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
			p := startOnce(t, store, "digest", "echo no")
			awaitListeners(t, store, 2)
			must(t, p.cmd.Process.Signal(s))
			p.ends(t, 128+int(s))
			awaitListeners(t, store, 1)
			if text, err := os.ReadFile(p.out); err != nil || len(text) > 0 || p.errs.String() != fmt.Sprintf("activityd: digest: stopped: %v\n", s) {
				t.Errorf("%q, %v, %q", text, err, p.errs)
			}
		}
		must(t, holder.cmd.Process.Signal(syscall.SIGQUIT))
		holder.ends(t, 128+int(syscall.SIGQUIT))
	})
}
