package endtoend_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// activityd returns the path of the real program, built from this checkout. All tests share
// it; it is gone when the last of them has ended.
func activityd(t *testing.T) string {
	t.Helper()
	folder, err := built()
	must(t, err)
	return filepath.Join(folder, "activityd")
}

// built uses the go command of the test, which "go test" puts first in the PATH.
var built = sync.OnceValues(func() (folder string, err error) {
	args := []string{"build", "-ldflags=-w", "-o", programFolder}
	if raceDetector {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(context.Background(), "go", append(args, "github.com/activityd/activityd/cmd/activityd")...)
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build activityd: %w\n%s", err, output)
	}
	return programFolder, nil
})

// programFolder is there while the tests run.
var programFolder string

// withProgram runs the tests with a folder for the program.
type withProgram struct{ *testing.M }

func (m withProgram) Run() int {
	var err error
	programFolder, err = os.MkdirTemp("", "activityd-")
	if err == nil {
		code := m.M.Run()
		if err = os.RemoveAll(programFolder); err == nil {
			return code
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
