package main_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// Two runs of the program do its work: in the second, its tables exist.
func TestTheProgram(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "shop")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dsn := servertest.MySQLDSN(t)
	for _, order := range []string{"1", "2"} {
		shop := exec.CommandContext(t.Context(), program)
		shop.Env = append(os.Environ(), "DSN="+dsn)
		shop.Stderr = t.Output()
		out, err := shop.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := shop.Start(); err != nil {
			t.Fatal(err)
		}
		mailed, counted := false, false
		for lines := bufio.NewScanner(out); (!mailed || !counted) && lines.Scan(); {
			mailed = mailed || lines.Text() == "mailed the receipt of order "+order+" in attempt 2"
			counted = counted || strings.HasPrefix(lines.Text(), "counted "+order+" orders in attempt 1")
		}
		if !mailed || !counted {
			t.Errorf("order %s: mailed %v, counted %v", order, mailed, counted)
		}
		if err := shop.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		_, _ = bufio.NewReader(out).WriteTo(t.Output())
		if err := shop.Wait(); err != nil {
			t.Errorf("order %s: %v", order, err)
		}
	}
}
