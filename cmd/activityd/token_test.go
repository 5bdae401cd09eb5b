package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/auth"
)

func TestTokenPrintsTheSecretAndItsLine(t *testing.T) {
	t.Parallel()
	code, out, notes := command(t, nil, "token", "homepage", "--scopes", "read,work", "--rate", "100/s", "--queues", "mail,letters")
	secret, line, _ := strings.Cut(out, "\n")
	tokens, err := auth.Parse(line)
	if code != 0 || err != nil || len(tokens) != 1 || !strings.HasPrefix(secret, "act_") {
		t.Fatalf("exit code %d, %v: %q", code, err, out)
	}
	token := tokens[0]
	if token.Name != "homepage" || token.Scopes != auth.Read|auth.Work || !slices.Equal(token.Queues, []string{"mail", "letters"}) || token.Limit.PerSecond != 100 || token.Hash != auth.HashOf(secret) {
		t.Errorf("the token of %q is %+v", secret, token)
	}
	if strings.Contains(notes, secret) || !strings.Contains(notes, "first line is the secret") {
		t.Errorf("notes: %q", notes)
	}
}

func TestTokenAppends(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "tokens")
	first := strings.TrimSpace(succeed(t, "token", "a", "--scopes=read", "--append", file))
	second := strings.TrimSpace(succeed(t, "token", "b", "--scopes=admin", "--append", file))
	code, out, errs := command(t, nil, "token", "a", "--scopes=read", "--append", file)
	if code != 1 || out != "" || !strings.Contains(errs, "a line above has the name a already") {
		t.Errorf("a name that is there: exit code %d, %q, %q", code, out, errs)
	}
	text, err := os.ReadFile(file)
	must(t, err)
	tokens, err := auth.Parse(string(text))
	if err != nil || len(tokens) != 2 || tokens[0].Hash != auth.HashOf(first) || tokens[1].Hash != auth.HashOf(second) {
		t.Errorf("%v: %q", err, text)
	}
	if strings.Contains(string(text), first) {
		t.Errorf("the file holds the secret: %q", text)
	}
}

func TestTokenRefuses(t *testing.T) {
	t.Parallel()
	file := newViewerKeys(t, "a")
	for want, args := range map[string][]string{
		"--scopes: want scopes":                 {"a"},
		"--scopes: want":                        {"a", "--scopes=all"},
		"want a name":                           {"a b", "--scopes=read"},
		"the name begins":                       {"act_a", "--scopes=read"},
		"--rate: want a rate":                   {"a", "--scopes=read", "--rate=100"},
		"--append: ":                            {"a", "--scopes=read", "--append", filepath.Join(t.TempDir(), "no", "file")},
		"accepts 1 arg(s), received 0":          {"--scopes=read"},
		"the scope work needs queues":           {"a", "--scopes=work"},
		"want queues":                           {"a", "--scopes=work", "--queues=Mail"},
		"--queues: activityd itself w":          {"a", "--scopes=work", "--queues=mail,push_urgent"},
		"MEMBER: not a member id":               {"viewer", "0", "--viewer-keys", file},
		"--viewer-keys: is missing: want the f": {"viewer", "1"},
		"--viewer-keys: open ":                  {"viewer", "1", "--viewer-keys", file + "-no"},
		"has no such key that signs":            {"viewer", "1", "--viewer-keys", file, "--key=b"},
		"a token cannot live for 25h":           {"viewer", "1", "--viewer-keys", file, "--ttl=25h"},
		"--viewer-keys: is missing: want":       {"key", "b"},
		"--viewer-keys: /":                      {"key", "a", "--viewer-keys", file},
		"ID: kid: want an id of 1 to 128":       {"key", "a b", "--viewer-keys", file},
		`invalid argument "RS256" for "--alg"`:  {"key", "b", "--alg=RS256", "--viewer-keys", file},
		"unknown flag: --ttl":                   {"name", "--scopes=read", "--ttl=1h"},
	} {
		code, out, errs := command(t, []string{"ACTIVITYD_SCOPES=admin"}, append([]string{"token"}, args...)...)
		if code != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %q, %q, want %q", args, code, out, errs, want)
		}
	}
}
