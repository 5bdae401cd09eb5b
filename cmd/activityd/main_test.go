package main

import (
	"bytes"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/localserver/servertest"
)

// asProgram makes the test binary be activityd, for the tests that need a
// process of its own.
const asProgram = "ACTIVITYD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	indexWait = 5 * time.Second
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == watchdogCommand {
		main()
	}
	takeHUP()
	servertest.Main(m)
}

// takeHUP starts the tests once more if SIGHUP is ignored, as by nohup: their commands could
// not catch it either. A signal that is caught has its default effect after exec.
func takeHUP() {
	const done = "ACTIVITYD_TEST_HUP"
	path, err := os.Executable()
	if err != nil || !signal.Ignored(syscall.SIGHUP) || os.Getenv(done) != "" {
		return
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	_ = syscall.Exec(path, os.Args, append(os.Environ(), done+"=1")) // after an error, tests say what is wrong
}

// command runs activityd in this process and returns what it printed.
func command(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, environ, &out, &errs)
	return code, out.String(), errs.String()
}

// succeed runs a command that must succeed and returns what it printed.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := command(t, nil, args...)
	if code != 0 {
		t.Fatalf("activityd %s: exit code %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

var eventually = servertest.Eventually
