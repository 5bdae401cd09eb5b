//go:build dist

// Package packaging tests the output of "make dist": the archives, the Debian package, the unit and the
// container image. "make test-dist" runs it. If a machine lacks the means for a test, the test reports in
// capitals that it did not run.
package packaging_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// TestMain keeps the servers out of memory: serveByHand links their sockets into t.TempDir, and both have to
// be in the same file system.
func TestMain(m *testing.M) {
	if err := os.Setenv("ACTIVITYD_TEST_FOLDER", os.TempDir()); err != nil {
		panic(err)
	}
	servertest.Main(m)
}

// The versions of the packages, and the time of their files.
const (
	oldVersion = "1.0.0"
	newVersion = "1.1.0-rc.1"
	epoch      = "1790000000"
)

// notTested reports a test that this machine cannot run.
func notTested(t *testing.T, what, why string) {
	t.Helper()
	fmt.Fprintf(os.Stderr, "\nNOT TESTED: %s: %s\n\n", strings.ToUpper(what), strings.ToUpper(why))
}

// have reports whether this machine has the programs of a test. Without them it calls notTested.
func have(t *testing.T, what string, programs ...string) bool {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			notTested(t, what, "there is no "+program)
			return false
		}
	}
	return true
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// output runs a program and returns its stdout. The program must succeed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := try(t.Context(), name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return out
}

// try runs a program. Its error has the program's output.
func try(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w\n%s%s", err, stdout.String(), stderr.String())
	}
	return stdout.String(), nil
}

// released are the folders of [release]. The tests run in turn.
var released = make(map[string]string)

// release returns the folder of a release for this machine. It builds each release once.
func release(t *testing.T, version string) string {
	t.Helper()
	if released[version] == "" {
		folder, err := filepath.Abs("../bin/test-dist-" + version)
		must(t, err)
		dist(t, "..", folder, version, nil, "linux/"+runtime.GOARCH)
		released[version] = folder
	}
	return released[version]
}

// dist runs scripts/dist of a copy of the repository. The script writes to folder.
func dist(t *testing.T, repository, folder, version string, environ []string, platforms ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(repository, "scripts", "dist"), platforms...)
	cmd.Env = append(os.Environ(), "VERSION="+version, "SOURCE_DATE_EPOCH="+epoch, "DIST="+folder)
	cmd.Env = append(cmd.Env, environ...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// one returns the single file that a pattern matches.
func one(t *testing.T, folder, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, pattern))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("%s: found %v, want one file", pattern, found)
	}
	return found[0]
}

// launch starts a program, and returns its log so far. The program is killed when t ends.
func launch(t *testing.T, argv, environ []string) (p *localserver.Process, log func() string) {
	t.Helper()
	p, err := localserver.StartProcess(argv, environ, "", filepath.Join(t.TempDir(), "log"))
	must(t, err)
	t.Cleanup(func() { _ = p.Kill() })
	return p, func() string {
		text, err := os.ReadFile(p.Log)
		must(t, err)
		return string(text)
	}
}

// stop stops a service, which must end by itself.
func stop(t *testing.T, p *localserver.Process, log func() string) {
	t.Helper()
	must(t, p.Signal(syscall.SIGTERM))
	servertest.Eventually(t, "it has ended", func() bool {
		select {
		case <-p.Exited:
			return true
		default:
			return false
		}
	})
	if p.Err != nil || !strings.Contains(log(), "msg=stopped") {
		t.Errorf("it ended: %v: %s", p.Err, log())
	}
}
