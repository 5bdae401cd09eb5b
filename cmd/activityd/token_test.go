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
	code, out, notes := command(t, nil, "token", "homepage", "--scopes", "read,write", "--rate", "100/s")
	secret, line, _ := strings.Cut(out, "\n")
	tokens, err := auth.Parse(line)
	if code != 0 || err != nil || len(tokens) != 1 || !strings.HasPrefix(secret, "act_") {
		t.Fatalf("exit code %d, %v: %q", code, err, out)
	}
	token := tokens[0]
	if token.Name != "homepage" || token.Scopes != auth.Read|auth.Write || token.Limit.PerSecond != 100 || token.Hash != auth.HashOf(secret) {
		t.Errorf("the token of %q is %+v", secret, token)
	}
	if strings.Contains(notes, secret) || !strings.Contains(notes, "first line is the secret") {
		t.Errorf("notes: %q", notes)
	}
}

func TestTokenOfAWorker(t *testing.T) {
	t.Parallel()
	_, line, _ := strings.Cut(succeed(t, "token", "mailer", "--scopes", "work", "--queues", "mail,letters"), "\n")
	tokens, err := auth.Parse(line)
	if err != nil || len(tokens) != 1 || tokens[0].Scopes != auth.Work || !slices.Equal(tokens[0].Queues, []string{"mail", "letters"}) {
		t.Errorf("%q: %+v, %v", line, tokens, err)
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
	for want, args := range map[string][]string{
		"--scopes: want scopes":        {"a"},
		"--scopes: want":               {"a", "--scopes=all"},
		"want a name":                  {"a b", "--scopes=read"},
		"the name begins":              {"act_a", "--scopes=read"},
		"--rate: want a rate":          {"a", "--scopes=read", "--rate=100"},
		"--append: ":                   {"a", "--scopes=read", "--append", filepath.Join(t.TempDir(), "no", "file")},
		"accepts 1 arg(s), received 0": {"--scopes=read"},
		"the scope work needs queues":  {"a", "--scopes=work"},
		"want queues":                  {"a", "--scopes=work", "--queues=Mail"},
		"--queues: activityd itself w": {"a", "--scopes=work", "--queues=mail,push_urgent"},
	} {
		code, out, errs := command(t, []string{"ACTIVITYD_SCOPES=admin"}, append([]string{"token"}, args...)...)
		if code != 1 || out != "" || !strings.Contains(errs, want) {
			t.Errorf("%v: exit code %d, %q, %q, want %q", args, code, out, errs, want)
		}
	}
}
