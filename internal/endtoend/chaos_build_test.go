package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// activityd returns the path of the real program, built from this checkout. Tests
// that run at the same time share it; it is gone when the last of them ends.
func activityd(t *testing.T) string {
	t.Helper()
	path, err := builtOnce.take(t.Context())
	t.Cleanup(func() {
		if err := builtOnce.giveBack(); err != nil {
			t.Error(err)
		}
	})
	must(t, err)
	return path
}

var builtOnce built

// built is a program in a temporary folder, while somebody uses it.
type built struct {
	mu    sync.Mutex
	users int
	dir   string
	err   error
}

func (b *built) take(ctx context.Context) (path string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users++
	if b.users == 1 {
		b.dir, b.err = build(ctx)
	}
	return filepath.Join(b.dir, "activityd"), b.err
}

func (b *built) giveBack() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.users--
	if b.users > 0 {
		return nil
	}
	return os.RemoveAll(b.dir)
}

// build uses the go command of the test, which "go test" puts first in the PATH.
func build(ctx context.Context) (dir string, err error) {
	dir, err = os.MkdirTemp("", "activityd-")
	if err != nil {
		return "", err
	}
	args := []string{"build", "-o", dir}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "github.com/activityd/activityd/cmd/activityd")...)
	if output, err := cmd.CombinedOutput(); err != nil {
		return dir, errors.Join(fmt.Errorf("build activityd: %w\n%s", err, output), ctx.Err())
	}
	return dir, nil
}
