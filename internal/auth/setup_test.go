package auth_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
)

func TestMain(m *testing.M) { servertest.Main(m) }

// issue makes a token that must be fine.
func issue(t testing.TB, name string, scopes auth.Scope, limit auth.Limit) (auth.Token, string) {
	t.Helper()
	token, secret, err := auth.Issue(name, scopes, limit)
	must(t, err)
	return token, secret
}

// limitOf reads a limit that must be fine.
func limitOf(t testing.TB, rate string) auth.Limit {
	t.Helper()
	l, err := auth.ParseLimit(rate)
	must(t, err)
	return l
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lines are tokens as in a file.
func lines(list ...auth.Token) string {
	var b strings.Builder
	for _, token := range list {
		b.WriteString(token.String() + "\n")
	}
	return b.String()
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(text), 0o600))
}

// newFile makes a file that only its owner may read.
func newFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, text)
	return path
}

// entries returns the lines of a level in a log.
func entries(log *logtest.Log, level slog.Level) (found []string) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, " level="+level.String()+" ") {
			found = append(found, line)
		}
	}
	return found
}
