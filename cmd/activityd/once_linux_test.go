package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/activityd/activityd/internal/oncerun"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// session is a program at a terminal of its own.
type session struct {
	cmd    *exec.Cmd
	screen *os.File // the far end of the terminal
	seen   bytes.Buffer
}

// startSession starts a script of sh that leads a session.
func startSession(t *testing.T, script string) *session {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	t.Cleanup(func() { _ = screen.Close() })
	must(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	must(t, err)
	must(t, unix.SetNonblock(int(screen.Fd()), true))
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	defer func() { _ = terminal.Close() }()
	self, err := os.Executable()
	must(t, err)
	s := &session{cmd: exec.CommandContext(t.Context(), "/bin/sh", "-c", script), screen: screen}
	s.cmd.Env = append(os.Environ(), asProgram+"=1", "ONCE="+self+" once")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = terminal, terminal, terminal
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, s.cmd.Start())
	t.Cleanup(func() { _ = s.cmd.Wait() }) // the test may have waited already; or else its end has killed it
	return s
}

// types waits for a text on the screen and then types an answer.
func (s *session) types(t *testing.T, await, text string) {
	t.Helper()
	for deadline, part := time.Now().Add(30*time.Second), make([]byte, 4096); !strings.Contains(s.seen.String(), await); {
		n, err := unix.Read(int(s.screen.Fd()), part)
		switch {
		case n > 0:
			s.seen.Write(part[:n])
		case time.Now().After(deadline), err != nil && !errors.Is(err, unix.EAGAIN):
			t.Fatalf("%q is not in %q: %v", await, s.seen.String(), err)
		default:
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(s.screen.Fd()), Events: unix.POLLIN}}, 100)
		}
	}
	_, rest, _ := strings.Cut(s.seen.String(), await)
	s.seen.Reset()
	s.seen.WriteString(rest)
	_, err := s.screen.WriteString(text)
	must(t, err)
}

func (s *session) ends(t *testing.T, code int) {
	t.Helper()
	_ = s.cmd.Wait() // the state says all
	if got := s.cmd.ProcessState; got.ExitCode() != code {
		t.Errorf("%v, want the exit code %d: %s", got, code, &s.seen)
	}
}

// The command reads the terminal, and gets the text typed there.
func TestOnceAtATerminal(t *testing.T) {
	t.Parallel()
	store := newOnceStore(t, inRedis)[0]
	const ctrlC, ctrlZ = "\x03", "\x1a"

	s := startSession(t, "exec $ONCE reads "+store+` -- sh -c 'echo ready; read x; echo "got $x"'`)
	s.types(t, "ready", "a line\n")
	s.types(t, "got a line", "")
	s.ends(t, exitOK)

	s = startSession(t, "$ONCE interrupted "+store+` -- sh -c 'echo ready; exec sleep 1000'; echo code $?; read x; echo "got $x"`)
	s.types(t, "ready", ctrlC)
	s.types(t, "code 130", "again\n") // the terminal is that of the shell again
	s.types(t, "got again", "")
	s.ends(t, exitOK)
	awaitState(t, []string{store}, "interrupted", "state         free\n  attempts      0 of 5")

	// A shell with job control stops and continues both together.
	s = startSession(t, "set -m; $ONCE stopped "+store+` -- sh -c 'echo ready; read x; echo "got $x"'; echo code $?; fg; echo code $?; read x; echo "then $x"`)
	s.types(t, "ready", ctrlZ)
	s.types(t, "code 1", "a line\n") // 128 and the signal
	s.types(t, "got a line", "")
	s.types(t, "code 0", "another\n")
	s.types(t, "then another", "")
	s.ends(t, exitOK)

	// Without a shell with job control, nothing can be stopped.
	s = startSession(t, "exec $ONCE unstoppable "+store+` -- sh -c 'trap "echo continued" CONT; echo ready; while :; do read x && break; done; echo "got $x"'`)
	s.types(t, "ready", ctrlZ)
	s.types(t, "continued", "a line\n")
	s.types(t, "got a line", "")
	s.ends(t, exitOK)
}

// A message stops no process, even where the terminal stops background processes that write to it: the command would
// outlive its lease. The command in the foreground finds SIGTTOU unchanged.
func TestOnceSaysSomethingWhileTheCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	store := "--redis-url=" + server.URL()
	s := startSession(t, "stty tostop; set -m; $ONCE says --lease 6s "+store+` -- sh -c 'while read k v; do test $k = SigIgn: && echo ttou $((0x$v >> 21 & 1)); done < /proc/self/status; echo ready; exec sleep 1000'; echo code $?`)
	s.types(t, "ttou 0", "")
	s.types(t, "ready", "")
	must(t, server.Kill())
	s.types(t, "activityd: extend says: ", "")
	s.types(t, "code 124", "")
	s.ends(t, exitOK)
}

// A signal that stops once stops its command, too. The command continues with once.
func TestOnceIsStopped(t *testing.T) {
	t.Parallel()
	p := startOnce(t, newOnceStore(t, inRedis), "digest", "echo pid $$; exec sleep 1000") // a shell that starts a command would wait for it in state D
	pid := p.pid(t, "pid")
	state := func(want string) {
		t.Helper()
		for _, pid := range []int{pid, p.cmd.Process.Pid} {
			eventually(t, want, func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
				must(t, err)
				return strings.Contains(want, oncerun.ParseStat(string(stat)).State)
			})
		}
	}
	must(t, p.cmd.Process.Signal(syscall.SIGTSTP))
	state("T")
	must(t, p.cmd.Process.Signal(syscall.SIGCONT))
	state("RS")
	must(t, p.cmd.Process.Signal(syscall.SIGTERM))
	p.ends(t, 128+int(syscall.SIGTERM))
}
