package bulk

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/index"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestResumeFileIsKeptAndFoundAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	work := Work{Command: "verify", Members: "all members", Options: "--repair", Site: "a"}
	f, err := openFile(path, work)
	if err != nil || f.found.Position != 0 {
		t.Fatalf("a new file: %+v, %v", f, err)
	}
	want := Checkpoint{Position: 1 << 60, Counts: Counts{"checked": 17}}
	must(t, f.write(want, index.Generation{Lost: []int64{5}, Marks: []int64{7}}))
	if _, err := openFile(path, work); err == nil || !strings.Contains(err.Error(), "another command is at work with") {
		t.Errorf("opened twice: %v", err)
	}
	must(t, f.unlock())
	f, err = openFile(path, work)
	must(t, err)
	if g := f.found.Generation; f.found.Position != want.Position || f.found.Counts["checked"] != 17 || g.Lost[0] != 5 || g.Marks[0] != 7 {
		t.Errorf("found %+v, want %+v", f.found, want)
	}
	must(t, f.unlock())
	for name, test := range map[string]struct {
		other Work
		want  string
	}{
		"another command":  {Work{Command: "backfill", Members: "all members", Options: "--repair", Site: "a"}, "belongs to activityd verify --repair of all members"},
		"another range":    {Work{Command: "verify", Members: "member 7", Options: "--repair", Site: "a"}, "belongs to activityd verify --repair of all members"},
		"other options":    {Work{Command: "verify", Members: "all members", Site: "a"}, "belongs to activityd verify --repair of all members"},
		"another database": {Work{Command: "verify", Members: "all members", Options: "--repair", Site: "b"}, "was written with another --mysql-dsn"},
	} {
		if _, err := openFile(path, test.other); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, os.WriteFile(path, []byte("shopping list"), 0o600))
	if _, err := openFile(path, work); err == nil || !strings.Contains(err.Error(), "was not written by activityd") {
		t.Errorf("a file of somebody else: %v", err)
	}
	for below, advice := range map[string]string{
		filepath.Join(path, "below"):                         "name a file in a directory that this user may write to",
		filepath.Join(filepath.Dir(path), "no", "such.json"): "make the directory " + filepath.Join(filepath.Dir(path), "no") + " first",
	} {
		_, err := openFile(below, work)
		if err == nil || !strings.Contains(err.Error(), "cannot be kept in "+below+": ") || !strings.Contains(err.Error(), advice) || strings.Contains(err.Error(), ".lock") {
			t.Errorf("where no file can be: %v", err)
		}
	}
	if left, err := filepath.Glob(filepath.Dir(path) + "/*.*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A link that comes while a command works is replaced, and what it names stays as it
// was.
func TestTheFileOfResumeIsReplacedAndNotWrittenThrough(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	dir := filepath.Join(t.TempDir(), "link") // a link on the way is the operator's
	must(t, os.Symlink(folder, dir))
	path, victim := filepath.Join(dir, "resume.json"), filepath.Join(t.TempDir(), "victim")
	must(t, os.WriteFile(victim, []byte("precious"), 0o600))
	f, err := openFile(path, Work{Command: "verify"})
	must(t, err)
	must(t, os.Remove(path))
	must(t, os.Symlink(victim, path))
	must(t, f.write(Checkpoint{Position: 7}, index.Generation{}))
	must(t, f.unlock())
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("the other file is %q, %v", text, err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
}
