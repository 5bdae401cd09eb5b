package auth_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/auth"
)

func TestAppendToken(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	b, _ := issue(t, "b", auth.Admin, limitOf(t, "5/m", 3))
	for _, token := range []auth.Token{a, b} {
		if err := auth.AppendToken(t.Context(), path, token); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil || string(text) != lines(a, b) {
		t.Errorf("%q, %v, want %q", text, err, lines(a, b))
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

func TestAppendTokenAfterAnUnfinishedLine(t *testing.T) {
	t.Parallel()
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	b, _ := issue(t, "b", auth.Read, auth.Limit{})
	path := newFile(t, strings.TrimSuffix(lines(a), "\n"))
	if err := auth.AppendToken(t.Context(), path, b); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	got, err := auth.Parse(string(text))
	if diff := cmp.Diff([]auth.Token{a, b}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

// Concurrent appends lose nothing, and take no name twice. The file begins with a line that
// is not finished.
func TestSeveralAddAtOnce(t *testing.T) {
	t.Parallel()
	const adders = 8
	first, _ := issue(t, "first", auth.Read, auth.Limit{})
	path := newFile(t, strings.TrimSuffix(lines(first), "\n"))
	var adding sync.WaitGroup
	var taken atomic.Int64
	for i := range adders {
		own, _ := issue(t, fmt.Sprintf("own%d", i), auth.Read, auth.Limit{})
		same, _ := issue(t, "same", auth.Read, auth.Limit{})
		adding.Go(func() {
			if err := auth.AppendToken(t.Context(), path, own); err != nil {
				t.Error(err)
			}
			switch err := auth.AppendToken(t.Context(), path, same); {
			case err == nil:
				taken.Add(1)
			case !strings.Contains(err.Error(), "the name same is that of line"):
				t.Error(err)
			}
		})
	}
	adding.Wait()
	text, _ := os.ReadFile(path)
	list, err := auth.Parse(string(text))
	if err != nil || len(list) != 1+adders+1 || taken.Load() != 1 {
		t.Errorf("%d tokens, of which %d got the same name, %v:\n%s", len(list), taken.Load(), err, text)
	}
}

func TestAppendTokenRefuses(t *testing.T) {
	t.Parallel()
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	again, _ := issue(t, "a", auth.Admin, auth.Limit{})
	for text, want := range map[string]string{
		lines(a):                           "the name a is that of line 1 already",
		strings.TrimSuffix(lines(a), "\n"): "the name a is that of line 1 already",
		"nonsense\n":                       "line 1: ",
		"# a" + strings.Repeat(" b", 1<<19) + "\n": "has more than",
	} {
		path := newFile(t, text)
		if err := auth.AppendToken(t.Context(), path, again); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("%.20q: the file was changed to %.20q, %v", text, after, err)
		}
	}
	if err := auth.AppendToken(t.Context(), filepath.Join(t.TempDir(), "no", "tokens"), a); err == nil {
		t.Error("a file in a folder that does not exist was written")
	}
}
