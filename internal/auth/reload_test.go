package auth_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/activityd/activityd/internal/auth"
)

// following is a token file that is reloaded.
type following struct {
	tokens   *auth.Tokens
	reloader *auth.Reloader
	log      *logBuffer
}

func follow(t *testing.T, path string) *following {
	t.Helper()
	f := &following{log: &logBuffer{}}
	var err error
	if f.tokens, f.reloader, err = auth.LoadTokens(path, f.log.logger()); err != nil {
		t.Fatal(err)
	}
	return f
}

// lookTwice looks often enough for a change to be in use.
func lookTwice(t *testing.T, r *auth.Reloader) {
	t.Helper()
	r.Reload(t.Context(), false)
	r.Reload(t.Context(), false)
}

func (f *following) wantKnown(t *testing.T, secret string, known bool) {
	t.Helper()
	if _, err := f.tokens.Check(secret, auth.Read); known != (err == nil) || err != nil && !errors.Is(err, auth.ErrUnknown) {
		t.Errorf("known: %v, want %t", err, known)
	}
}

func TestTheFileIsFollowed(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, freshSecret := issue(t, "fresh", auth.Read, auth.Limit{})
	for name, replace := range map[string]func(t *testing.T, path string){
		"written": func(t *testing.T, path string) { write(t, path, lines(fresh)) },
		"renamed": func(t *testing.T, path string) {
			write(t, path+".new", lines(fresh))
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t, lines(old))
			f := follow(t, path)
			f.wantKnown(t, oldSecret, true)
			replace(t, path)
			f.wantKnown(t, freshSecret, false)
			lookTwice(t, f.reloader)
			f.wantKnown(t, oldSecret, false)
			f.wantKnown(t, freshSecret, true)
		})
	}
}

// Kubernetes changes a link on the way to the file.
func TestALinkIsFollowed(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, freshSecret := issue(t, "fresh", auth.Read, auth.Limit{})
	dir := t.TempDir()
	for name, token := range map[string]auth.Token{"one": old, "two": fresh} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, name, "tokens"), lines(token))
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(os.Symlink("one", filepath.Join(dir, "data")))
	must(os.Symlink("data/tokens", filepath.Join(dir, "tokens")))
	f := follow(t, filepath.Join(dir, "tokens"))
	f.wantKnown(t, oldSecret, true)
	must(os.Symlink("two", filepath.Join(dir, "new")))
	must(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data")))
	lookTwice(t, f.reloader)
	f.wantKnown(t, oldSecret, false)
	f.wantKnown(t, freshSecret, true)
}

// On request a file is loaded that looks unchanged.
func TestAFileIsLoadedNow(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, secret := issue(t, "new", auth.Read, auth.Limit{})
	path := newFile(t, lines(old))
	f := follow(t, path)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, lines(fresh))
	if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Stat(path); err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
		t.Fatalf("it shows: %v, %v", after, err)
	}
	lookTwice(t, f.reloader)
	f.wantKnown(t, oldSecret, true)
	f.reloader.Reload(t.Context(), true)
	f.wantKnown(t, oldSecret, false)
	f.wantKnown(t, secret, true)
	taken := f.log.at(t, slog.LevelInfo)
	wantNames(t, taken[len(taken)-1], "added", "new")
	wantNames(t, taken[len(taken)-1], "removed", "old")
}

// A file that is being written is not taken before it is written to the end.
func TestAHalfWrittenFileIsNotTaken(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, secret := issue(t, "fresh", auth.Read, auth.Limit{Count: 1, Per: "h", Burst: 1})
	path := newFile(t, lines(old))
	f := follow(t, path)
	whole := lines(old, fresh)
	for length := 0; length < len(whole); length += 7 {
		write(t, path, whole[:length])
		f.reloader.Reload(t.Context(), false)
		f.wantKnown(t, oldSecret, true)
		f.wantKnown(t, secret, false)
	}
	write(t, path, whole)
	lookTwice(t, f.reloader)
	f.wantKnown(t, oldSecret, true)
	f.wantKnown(t, secret, true)
	if _, err := f.tokens.Check(secret, auth.Read); err == nil {
		t.Error("the limit was cut off")
	}
}

// What cannot be used leaves the old tokens in use, and is logged once.
func TestABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	token, secret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, freshSecret := issue(t, "fresh", auth.Read, auth.Limit{})
	for name, spoil := range map[string]func(t *testing.T, path string){
		"removed":   func(_ *testing.T, path string) { _ = os.Remove(path) },
		"malformed": func(t *testing.T, path string) { write(t, path, lines(fresh)+"b read "+freshSecret) },
		"too large": func(t *testing.T, path string) { write(t, path, lines(fresh)+strings.Repeat("#", 1<<20)) },
		"no file": func(t *testing.T, path string) {
			_ = os.Remove(path)
			if err := syscall.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t, lines(token))
			f := follow(t, path)
			spoil(t, path)
			for range 5 {
				lookTwice(t, f.reloader)
			}
			f.wantKnown(t, secret, true)
			f.wantKnown(t, freshSecret, false)
			complaints := f.log.at(t, slog.LevelError)
			if len(complaints) != 1 || !strings.Contains(complaints[0]["error"].(string), path) {
				t.Errorf("complaints: %v, want one that names the file", complaints)
			}
			if strings.Contains(f.log.String(), freshSecret) {
				t.Errorf("the log shows the secret:\n%s", f.log)
			}
			_ = os.Remove(path)
			write(t, path, lines(fresh))
			lookTwice(t, f.reloader)
			f.wantKnown(t, freshSecret, true)
			_ = os.Remove(path)
			lookTwice(t, f.reloader)
			if complaints := f.log.at(t, slog.LevelError); len(complaints) != 2 {
				t.Errorf("complaints: %v, want another one", complaints)
			}
		})
	}
}

// Deleting the last line is deliberate.
func TestTheLastTokenCanBeRevoked(t *testing.T) {
	t.Parallel()
	token, secret := issue(t, "last", auth.Read, auth.Limit{})
	path := newFile(t, lines(token))
	f := follow(t, path)
	write(t, path, "# nobody\n")
	lookTwice(t, f.reloader)
	f.wantKnown(t, secret, false)
	const none = "token file has no tokens, all requests are refused"
	wantWarnings(t, f.log, none)
	write(t, path, "# nobody at all\n")
	lookTwice(t, f.reloader)
	wantWarnings(t, f.log, none, none)
}

// wantWarnings compares the warnings of a log.
func wantWarnings(t *testing.T, log *logBuffer, want ...string) {
	t.Helper()
	var got []string
	for _, line := range log.at(t, slog.LevelWarn) {
		got = append(got, line["msg"].(string))
	}
	if !slices.Equal(got, want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
}

// A file that never had any tokens has not lost them, and was not taken.
func TestAnEmptyFileIsAnErrorAndNothingElse(t *testing.T) {
	t.Parallel()
	path, log := newFile(t, "# none\n"), &logBuffer{}
	_, _, err := auth.LoadTokens(path, log.logger())
	if want := "the token file cannot be used: " + path + " has no tokens: make one with: activityd token NAME --scopes read --append " + path; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if log.String() != "" {
		t.Errorf("logged %s", log)
	}
}

func TestABadFileIsAnErrorAtTheStart(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "missing")
	for path, want := range map[string]string{
		missing:               "no such file",
		t.TempDir():           "want a file",
		newFile(t, "a b c"):   "line 1: ",
		newFile(t, "# none"):  "has no tokens: make one with: activityd token",
		newFile(t, "") + "/x": "not a directory",
	} {
		_, _, err := auth.LoadTokens(path, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// tokenFile makes a token file in a folder, both with the given modes.
func tokenFile(t *testing.T, dirMode, fileMode os.FileMode) (path string) {
	t.Helper()
	token, _ := issue(t, "a", auth.Read, auth.Limit{})
	path = newFile(t, lines(token))
	chmod(t, filepath.Dir(path), dirMode)
	chmod(t, path, fileMode)
	return path
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// warnings are those of a log, as in "message path mode mend", where DIR is the folder.
func (l *logBuffer) warnings(t *testing.T, dir string) (list []string) {
	t.Helper()
	for _, w := range l.at(t, slog.LevelWarn) {
		list = append(list, strings.ReplaceAll(fmt.Sprint(w["msg"], ": ", w["file"], ": others ", w["others"], " ", w["path"], " ", w["mode"], ": ", w["mend"]), dir, "DIR"))
	}
	return list
}

func TestAFileThatOthersMayReadOrChangeIsWarnedOf(t *testing.T) {
	t.Parallel()
	const read, change = "file is exposed: token file: others may read DIR/file ", "file is exposed: token file: others may change DIR"
	for _, c := range []struct {
		dir, file os.FileMode
		want      []string
	}{
		{0o755, 0o600, nil},
		{0o700, 0o640, nil},
		{0o700, 0o644, []string{read + "-rw-r--r--: chmod o= DIR/file"}},
		{0o700, 0o660, []string{change + "/file -rw-rw----: chmod go-w DIR/file"}},
		{0o700, 0o602, []string{change + "/file -rw-----w-: chmod go-w DIR/file"}},
		{0o700, 0o666, []string{read + "-rw-rw-rw-: chmod o= DIR/file", change + "/file -rw-rw-rw-: chmod go-w DIR/file"}},
		{0o775, 0o600, []string{change + " drwxrwxr-x: chmod go-w DIR"}},
		{0o757, 0o600, []string{change + " drwxr-xrwx: chmod go-w DIR"}},
		{0o777 | os.ModeSticky, 0o600, nil}, // there others cannot replace our file
	} {
		path, log := tokenFile(t, c.dir, c.file), &logBuffer{}
		if _, _, err := auth.LoadTokens(path, log.logger()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, log.warnings(t, filepath.Dir(path))); diff != "" {
			t.Errorf("%v, %v:\n%s", c.dir, c.file, diff)
		}
	}
}

// A change of the mode is noticed without one of the text.
func TestAFileThatOthersMayChangeIsWarnedOfOnceAChange(t *testing.T) {
	t.Parallel()
	path := tokenFile(t, 0o700, 0o600)
	other, _ := issue(t, "other", auth.Read, auth.Limit{})
	dir := filepath.Dir(path)
	const file, folder = "file is exposed: token file: others may change DIR/file -rw-rw----: chmod go-w DIR/file", "file is exposed: token file: others may change DIR drwxrwx---: chmod go-w DIR"
	f := follow(t, path)
	for _, step := range []struct {
		do   func()
		want []string // that are new
	}{
		{func() {}, nil},
		{func() { chmod(t, path, 0o660) }, []string{file}},
		{func() { chmod(t, dir, 0o770); write(t, path, lines(other)) }, []string{file, folder}},
		{func() { chmod(t, path, 0o600); chmod(t, dir, 0o700) }, nil},
	} {
		before := len(f.log.warnings(t, dir))
		step.do()
		for range 3 {
			lookTwice(t, f.reloader)
		}
		if diff := cmp.Diff(step.want, f.log.warnings(t, dir)[before:], cmpopts.EquateEmpty()); diff != "" {
			t.Error(diff)
		}
	}
}

// A user who may write where a link points may replace the file as well.
func TestTheFolderOfALinksTargetIsWarnedOf(t *testing.T) {
	t.Parallel()
	path, log := tokenFile(t, 0o770, 0o600), &logBuffer{}
	link := filepath.Join(filepath.Dir(newFile(t, "")), "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, _, err := auth.LoadTokens(link, log.logger()); err != nil {
		t.Fatal(err)
	}
	want := []string{"file is exposed: token file: others may change DIR drwxrwx---: chmod go-w DIR"}
	if diff := cmp.Diff(want, log.warnings(t, filepath.Dir(path))); diff != "" {
		t.Error(diff)
	}
}

// owned is the information on a file of a user.
type owned struct {
	fs.FileInfo

	user int
}

func (owned) Mode() fs.FileMode { return 0o600 }
func (o owned) Sys() any        { return &syscall.Stat_t{Uid: uint32(o.user)} }

func TestAFileOfAnotherUserIsWarnedOf(t *testing.T) {
	t.Parallel()
	self := os.Geteuid()
	for user, want := range map[int]string{0: "", self: "", 4711: fmt.Sprintf("chown %d tokens", self)} {
		if got := auth.MendOf("tokens", owned{user: user}); got != want {
			t.Errorf("user %d: %q, want %q", user, got, want)
		}
	}
}
