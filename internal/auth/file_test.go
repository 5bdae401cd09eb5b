package auth_test

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"

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
	if _, err := f.tokens.Check(secret, auth.Read); known != (err == nil) || err != nil && auth.VerdictOf(err) != auth.UnknownToken {
		t.Errorf("known: %v, want %t", err, known)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestTheFileIsFollowed(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, freshSecret := issue(t, "fresh", auth.Read, auth.Limit{})
	for name, replace := range map[string]func(t *testing.T, path string){
		"written":                        func(t *testing.T, path string) { write(t, path, lines(fresh)) },
		"written with a byte order mark": func(t *testing.T, path string) { write(t, path, "\ufeff"+lines(fresh)) },
		"renamed": func(t *testing.T, path string) {
			write(t, path+".new", lines(fresh))
			must(t, os.Rename(path+".new", path))
		},
		"linked": func(t *testing.T, path string) { // as Kubernetes does
			write(t, path+".target", lines(fresh))
			must(t, os.Symlink(path+".target", path+".link"))
			must(t, os.Rename(path+".link", path))
		},
	} {
		path := newFile(t, lines(old))
		f := follow(t, path)
		f.wantKnown(t, oldSecret, true)
		replace(t, path)
		lookTwice(t, f.reloader)
		f.wantKnown(t, oldSecret, false)
		if f.wantKnown(t, freshSecret, true); t.Failed() {
			t.Fatalf("a file that is %s", name)
		}
	}
}

// On request a file is loaded that looks unchanged.
func TestAFileIsLoadedNow(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, secret := issue(t, "new", auth.Read, auth.Limit{})
	path := newFile(t, lines(old))
	f := follow(t, path)
	before, err := os.Stat(path)
	must(t, err)
	write(t, path, lines(fresh))
	must(t, os.Chtimes(path, before.ModTime(), before.ModTime()))
	lookTwice(t, f.reloader)
	f.wantKnown(t, oldSecret, true)
	f.reloader.Reload(t.Context(), true)
	f.wantKnown(t, oldSecret, false)
	f.wantKnown(t, secret, true)
}

// A file that is being written is not taken before it is written to the end.
func TestAHalfWrittenFileIsNotTaken(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, secret := issue(t, "fresh", auth.Read, auth.Limit{})
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
	f.wantKnown(t, secret, true)
}

// What cannot be used leaves the old tokens in use, is logged once, and is refused at the start.
func TestABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	token, secret := issue(t, "old", auth.Read, auth.Limit{})
	fresh, freshSecret := issue(t, "fresh", auth.Read, auth.Limit{})
	for want, spoil := range map[string]func(path string) error{
		"no such file":  os.Remove,
		"line 2: ":      func(path string) error { return os.WriteFile(path, []byte(lines(fresh)+"b read "+freshSecret), 0o600) },
		"has more than": func(path string) error { return os.Truncate(path, 1<<20+1) },
		"want a file":   func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
	} {
		path := newFile(t, lines(token))
		f := follow(t, path)
		must(t, spoil(path))
		for range 5 {
			lookTwice(t, f.reloader)
		}
		f.wantKnown(t, secret, true)
		f.wantKnown(t, freshSecret, false)
		logged := f.log.at(t, slog.LevelError)
		if text, _ := logged[0]["error"].(string); len(logged) != 1 || !strings.Contains(text, path) || !strings.Contains(text, want) || strings.Contains(text, freshSecret) {
			t.Errorf("logged %v, want once: %s", logged, want)
		}
		if _, _, err := auth.LoadTokens(path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("at the start: %v, want %s", err, want)
		}
		_ = os.Remove(path)
		write(t, path, lines(fresh))
		lookTwice(t, f.reloader)
		f.wantKnown(t, freshSecret, true)
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
	if warned := f.log.at(t, slog.LevelWarn); len(warned) != 1 || warned[0]["msg"] != "token file has no tokens, all requests are refused" {
		t.Errorf("warned %v", warned)
	}
}

// Also when the mode changes without the text.
func TestAFileThatOthersMayReadOrChangeIsWarnedOf(t *testing.T) {
	t.Parallel()
	token, _ := issue(t, "a", auth.Read, auth.Limit{})
	path := newFile(t, lines(token))
	f := follow(t, path)
	for mode, warns := range map[os.FileMode]bool{0o600: false, 0o640: false, 0o644: true, 0o660: true, 0o602: true} {
		before := len(f.log.at(t, slog.LevelWarn))
		must(t, os.Chmod(path, mode))
		for range 3 {
			lookTwice(t, f.reloader)
		}
		if warned := len(f.log.at(t, slog.LevelWarn)) - before; (warned == 1) != warns {
			t.Errorf("%v: %d warnings", mode, warned)
		}
	}
}
