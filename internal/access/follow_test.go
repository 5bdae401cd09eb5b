package access_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/access"
)

// following is a token file that is followed, inside a bubble of synctest.
type following struct {
	path     string
	tokens   *access.Tokens
	follower *access.Follower
	log      *logBuffer
}

// follow starts to follow a file of the given text until stop is called.
func follow(t *testing.T, path string) (f *following, stop func()) {
	t.Helper()
	f = &following{path: path, log: &logBuffer{}}
	var err error
	if f.tokens, f.follower, err = access.FollowTokens(path, access.Options{Log: f.log.logger()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.follower.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return f, func() { cancel(); running.Wait() }
}

// pass lets so much time pass that the file is read once more.
func pass() {
	<-time.After(access.DefaultEvery + access.DefaultEvery/2) // a change is looked at twice
	synctest.Wait()
}

func (f *following) wantKnown(t *testing.T, secret string, known bool) {
	t.Helper()
	if _, err := f.tokens.Check(secret, access.Read); known != (err == nil) || err != nil && !errors.Is(err, access.ErrUnknown) {
		t.Errorf("known: %v, want %t", err, known)
	}
}

func TestTheFileIsFollowed(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", access.Read, access.Limit{})
	fresh, freshSecret := issue(t, "fresh", access.Read, access.Limit{})
	for name, replace := range map[string]func(t *testing.T, path string){
		"written": func(t *testing.T, path string) { write(t, path, lines(fresh)) },
		"renamed": func(t *testing.T, path string) {
			write(t, path+".new", lines(fresh))
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		},
		"same size and date": func(t *testing.T, path string) {
			before, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			same := fresh
			same.Name = "abc"
			write(t, path, lines(same))
			if err := os.Chtimes(path, before.ModTime(), before.ModTime()); err != nil {
				t.Fatal(err)
			}
			if after, err := os.Stat(path); err != nil || after.Size() != before.Size() || !after.ModTime().Equal(before.ModTime()) {
				t.Fatalf("it shows: %v, %v", after, err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := newFile(t, lines(old))
			synctest.Test(t, func(t *testing.T) {
				f, stop := follow(t, path)
				defer stop()
				f.wantKnown(t, oldSecret, true)
				replace(t, path)
				f.wantKnown(t, freshSecret, false)
				pass()
				f.wantKnown(t, oldSecret, false)
				f.wantKnown(t, freshSecret, true)
			})
		})
	}
}

// Kubernetes changes a link on the way to the file.
func TestALinkIsFollowed(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", access.Read, access.Limit{})
	fresh, freshSecret := issue(t, "fresh", access.Read, access.Limit{})
	dir := t.TempDir()
	for name, token := range map[string]access.Token{"one": old, "two": fresh} {
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
	synctest.Test(t, func(t *testing.T) {
		f, stop := follow(t, filepath.Join(dir, "tokens"))
		defer stop()
		f.wantKnown(t, oldSecret, true)
		must(os.Symlink("two", filepath.Join(dir, "new")))
		must(os.Rename(filepath.Join(dir, "new"), filepath.Join(dir, "data")))
		pass()
		f.wantKnown(t, oldSecret, false)
		f.wantKnown(t, freshSecret, true)
	})
}

func TestANudgeIsHeardAtOnce(t *testing.T) {
	t.Parallel()
	old, _ := issue(t, "old", access.Read, access.Limit{})
	fresh, secret := issue(t, "fresh", access.Read, access.Limit{})
	path := newFile(t, lines(old))
	synctest.Test(t, func(t *testing.T) {
		f, stop := follow(t, path)
		defer stop()
		write(t, path, lines(old, fresh))
		start := time.Now()
		for range 3 {
			f.follower.Nudge()
		}
		<-time.After(150 * time.Millisecond) // so long it must not change any more
		synctest.Wait()
		f.wantKnown(t, secret, true)
		if took := time.Since(start); took > 200*time.Millisecond {
			t.Errorf("it took %s", took)
		}
		taken := f.log.at(t, slog.LevelInfo)
		wantNames(t, taken[len(taken)-1], "added", "fresh")
		wantNames(t, taken[len(taken)-1], "removed")
	})
}

// A file that is being written is not taken before it is written to the end.
func TestAHalfWrittenFileIsNotTaken(t *testing.T) {
	t.Parallel()
	old, oldSecret := issue(t, "old", access.Read, access.Limit{})
	fresh, secret := issue(t, "fresh", access.Read, access.Limit{Count: 1, Per: time.Hour, Burst: 1})
	path := newFile(t, lines(old))
	synctest.Test(t, func(t *testing.T) {
		f, stop := follow(t, path)
		defer stop()
		whole := lines(old, fresh)
		for length := 0; length < len(whole); length += 7 {
			write(t, path, whole[:length])
			f.follower.Nudge()
			<-time.After(20 * time.Millisecond)
			f.wantKnown(t, oldSecret, true)
			f.wantKnown(t, secret, false)
		}
		write(t, path, whole)
		pass()
		f.wantKnown(t, oldSecret, true)
		f.wantKnown(t, secret, true)
		if _, err := f.tokens.Check(secret, access.Read); err == nil {
			t.Error("the limit was cut off")
		}
	})
}

// What cannot be used leaves the old tokens in use, and is logged once.
func TestABadFileChangesNothing(t *testing.T) {
	t.Parallel()
	token, secret := issue(t, "old", access.Read, access.Limit{})
	fresh, freshSecret := issue(t, "fresh", access.Read, access.Limit{})
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
			synctest.Test(t, func(t *testing.T) {
				f, stop := follow(t, path)
				defer stop()
				spoil(t, path)
				for range 5 {
					pass()
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
				pass()
				f.wantKnown(t, freshSecret, true)
				_ = os.Remove(path)
				pass()
				if complaints := f.log.at(t, slog.LevelError); len(complaints) != 2 {
					t.Errorf("complaints: %v, want another one", complaints)
				}
			})
		})
	}
}

// Whoever deletes the last line means it.
func TestTheLastTokenCanBeRevoked(t *testing.T) {
	t.Parallel()
	token, secret := issue(t, "last", access.Read, access.Limit{})
	path := newFile(t, lines(token))
	synctest.Test(t, func(t *testing.T) {
		f, stop := follow(t, path)
		defer stop()
		write(t, path, "# nobody\n")
		pass()
		f.wantKnown(t, secret, false)
		wantWarnings(t, f.log, "the token file has no tokens any more: nobody may ask")
		write(t, path, "# nobody at all\n")
		pass()
		wantWarnings(t, f.log, "the token file has no tokens any more: nobody may ask", "the token file has no tokens still: nobody may ask")
	})
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
	path, log, told := newFile(t, "# none\n"), &logBuffer{}, &observed{}
	_, _, err := access.FollowTokens(path, access.Options{Log: log.logger(), Observer: told})
	if want := "the token file cannot be used: " + path + " has no tokens: make one with: activityd token NAME --scopes read --append " + path; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	if log.String() != "" || len(told.tokens) > 0 {
		t.Errorf("logged %s, told of %v", log, told.tokens)
	}
}

// observed remembers what an observer is told.
type observed struct {
	tokens [][]string
	ends   []time.Time
}

func (o *observed) TokensTaken(names []string)          { o.tokens = append(o.tokens, names) }
func (o *observed) CertificateTaken(notAfter time.Time) { o.ends = append(o.ends, notAfter) }

// The observer knows the names of the tokens that are in use, and no others.
func TestTheObserverIsToldOfTokens(t *testing.T) {
	t.Parallel()
	a, _ := issue(t, "a", access.Read, access.Limit{})
	b, _ := issue(t, "b", access.Read, access.Limit{})
	path := newFile(t, lines(a))
	synctest.Test(t, func(t *testing.T) {
		told := &observed{}
		_, follower, err := access.FollowTokens(path, access.Options{Log: slog.New(slog.DiscardHandler), Observer: told})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = follower.Run(ctx) })
		for _, text := range []string{lines(a), lines(b, a), "nonsense", "", lines(b)} {
			write(t, path, text)
			pass()
		}
		cancel()
		running.Wait()
		if diff := cmp.Diff([][]string{{"a"}, {"b", "a"}, nil, {"b"}}, told.tokens); diff != "" {
			t.Error(diff)
		}
	})
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
		_, _, err := access.FollowTokens(path, access.Options{Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestAFileForEverybodyIsWarnedOf(t *testing.T) {
	t.Parallel()
	token, _ := issue(t, "a", access.Read, access.Limit{})
	const warning = "everybody on this machine may read the token file: chmod o= will change that"
	for mode, want := range map[os.FileMode][]string{0o600: nil, 0o640: nil, 0o644: {warning}} {
		path, log := newFile(t, lines(token)), &logBuffer{}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, _, err := access.FollowTokens(path, access.Options{Log: log.logger()}); err != nil {
			t.Fatal(err)
		}
		wantWarnings(t, log, want...)
	}
}
