package filelock_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/filelock"
)

func TestOnlyOneHasTheLock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	open := func() (*os.File, error) { return filelock.Open(path, os.O_CREATE|os.O_RDWR, 0o600) }
	first, err := open()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := open(); !errors.Is(err, filelock.ErrLocked) || !strings.Contains(err.Error(), path) || second != nil {
		t.Errorf("while it is locked: %v, want ErrLocked and the path", err)
	}
	// A removed file is locked still, but has no name any more.
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if filelock.IsNamed(first, path) {
		t.Error("a removed file still has its name")
	}
	second, err := open()
	if err != nil || !filelock.IsNamed(second, path) || filelock.IsNamed(first, path) {
		t.Errorf("a new file of the same name: %v", err)
	}
	if err := errors.Join(first.Close(), second.Close()); err != nil {
		t.Fatal(err)
	}
	third, err := open()
	if err != nil {
		t.Fatalf("after it was closed: %v", err)
	}
	_ = third.Close()
}

func TestALinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	if filelock.NoFollow == 0 {
		return // as the documentation says
	}
	path := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink("target", path); err != nil {
		t.Fatal(err)
	}
	if f, err := filelock.Open(path, os.O_CREATE|os.O_RDWR|filelock.NoFollow, 0o600); err == nil {
		_ = f.Close()
		t.Error("the target of a symbolic link was opened")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the target was made")
	}
}
