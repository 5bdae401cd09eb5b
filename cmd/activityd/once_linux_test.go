package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A command in the background of a terminal cannot read it, and is not stopped: it would keep its lease for ever.
// Ctrl-C ends a command that something else has stopped.
func TestOnceAtATerminal(t *testing.T) {
	t.Parallel()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	defer func() { _ = screen.Close() }()
	must(t, unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	must(t, err)
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	must(t, err)
	self, err := os.Executable()
	must(t, err)
	store := newOnceStore(t, inRedis)[0]
	once := func(name, script string) string {
		return self + " once " + name + " " + store + " -- sh -c '" + script + "'; echo code $?; "
	}
	shell := exec.CommandContext(t.Context(), "/bin/sh", "-c", "trap : INT; "+
		once("asks", "read x </dev/tty || echo unread")+once("stops", "echo group $$; kill -STOP $$; echo continued"))
	shell.Env = append(os.Environ(), asProgram+"=1")
	shell.Stdin, shell.Stdout, shell.Stderr = terminal, terminal, terminal
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(t, shell.Start())
	must(t, terminal.Close())
	seen, part, typed := "", make([]byte, 4096), false
	for err == nil {
		var n int
		n, err = screen.Read(part) // the end of the last process at the terminal is EIO
		seen += string(part[:n])
		group := regexp.MustCompile(`group ([0-9]+)\r`).FindStringSubmatch(seen)
		if group == nil || typed {
			continue
		}
		typed = true
		eventually(t, "the command is stopped", func() bool {
			stat, err := os.ReadFile("/proc/" + group[1] + "/stat")
			must(t, err)
			return strings.Contains(string(stat), ") T ")
		})
		_, err = io.WriteString(screen, "\x03") // Ctrl-C
		must(t, err)
	}
	_ = shell.Wait() // the shell has said all
	for _, want := range []string{"unread\r\ncode 0", "code 130"} {
		if !strings.Contains(seen, want) {
			t.Errorf("%q is not in %q", want, seen)
		}
	}
}
