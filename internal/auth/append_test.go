package auth_test

import (
	"os"
	"path/filepath"
	"strings"
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
		if err := auth.AppendToken(path, token); err != nil {
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
	if err := auth.AppendToken(path, b); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(path)
	got, err := auth.Parse(string(text))
	if diff := cmp.Diff([]auth.Token{a, b}, got); err != nil || diff != "" {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestAppendTokenRefuses(t *testing.T) {
	t.Parallel()
	a, _ := issue(t, "a", auth.Read, auth.Limit{})
	again, _ := issue(t, "a", auth.Admin, auth.Limit{})
	for text, want := range map[string]string{
		lines(a):                           "a line above has the name a already",
		strings.TrimSuffix(lines(a), "\n"): "a line above has the name a already",
		"nonsense\n":                       "line 1: ",
	} {
		path := newFile(t, text)
		if err := auth.AppendToken(path, again); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("%.20q: the file was changed to %.20q, %v", text, after, err)
		}
	}
	if err := auth.AppendToken(filepath.Join(t.TempDir(), "no", "tokens"), a); err == nil {
		t.Error("a file in a folder that does not exist was written")
	}
}
