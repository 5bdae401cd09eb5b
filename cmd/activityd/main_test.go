package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// asProgram makes the test binary be activityd, for the tests that need a
// process of its own.
const asProgram = "ACTIVITYD_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" || len(os.Args) > 1 && os.Args[1] == watchdogCommand {
		main()
	}
	oncetest.TakeHUP()
	servertest.Main(m)
}

// command runs activityd in this process and returns its output.
func command(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, environ, &out, &errs)
	return code, out.String(), errs.String()
}

// succeed runs a command that must succeed and returns its output.
func succeed(t *testing.T, args ...string) string {
	t.Helper()
	code, out, errs := command(t, nil, args...)
	if code != 0 {
		t.Fatalf("activityd %s: exit code %d: %s", strings.Join(args, " "), code, errs)
	}
	return out
}

var eventually = servertest.Eventually
