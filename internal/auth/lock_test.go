//go:build unix && !solaris && !illumos && !aix

package auth_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/activityd/activityd/internal/auth"
)

// lockFile locks a file as another program would.
func lockFile(t *testing.T, path string) (unlock func()) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	return func() { _ = unix.Flock(int(f.Fd()), unix.LOCK_UN) }
}

// A lock is waited for, but not for ever, and not after the caller lost interest.
func TestALockedFileIsWaitedFor(t *testing.T) {
	t.Parallel()
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	b, _ := issue(t, "b", auth.Read, auth.Limit{})
	path := newFile(t, lines(a))
	unlock := lockFile(t, path)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := auth.AppendToken(t.Context(), path, b)
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another process has locked it") {
			t.Errorf("while it is locked: %v", err)
		}
		if took := time.Since(start); took < time.Second || took > 10*time.Second {
			t.Errorf("it was waited for %s", took)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		start = time.Now()
		if err := auth.AppendToken(ended, path, b); err == nil || time.Since(start) > time.Second {
			t.Errorf("no process waits any more: %v, after %s", err, time.Since(start))
		}
		if text, _ := os.ReadFile(path); string(text) != lines(a) {
			t.Errorf("it was written to: %q", text)
		}
		added := make(chan error)
		go func() { added <- auth.AppendToken(t.Context(), path, b) }()
		synctest.Wait()
		unlock()
		if err := <-added; err != nil {
			t.Error(err)
		}
	})
	if text, _ := os.ReadFile(path); string(text) != lines(a, b) {
		t.Errorf("afterwards: %q", text)
	}
}

// A line that was added to a file without a name would be lost.
func TestAFileThatIsReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	b, _ := issue(t, "b", auth.Read, auth.Limit{})
	c, _ := issue(t, "c", auth.Read, auth.Limit{})
	path := newFile(t, lines(a))
	unlock := lockFile(t, path)
	synctest.Test(t, func(t *testing.T) {
		added := make(chan error)
		go func() { added <- auth.AppendToken(t.Context(), path, c) }()
		synctest.Wait()
		write(t, path+".new", lines(b))
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		unlock()
		if err := <-added; err != nil {
			t.Error(err)
		}
	})
	if text, _ := os.ReadFile(path); string(text) != lines(b, c) {
		t.Errorf("%q, want b and c", text)
	}
}
