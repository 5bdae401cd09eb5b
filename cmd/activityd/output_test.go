package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/site"
)

// hostile holds an attack on a terminal: C0 and C1 controls, bidi controls, and invisible characters.
const hostile = "a\x1b[31m\x7f\u0080\u009b31m\u200e\u200f\u061c\u202a\u202e\u2066\u2069\u200b\ufeff\u00ad\u2028\u3164\ufe0f\U000e0041éя🙂z"

// hostileEscaped is the same as it is printed.
const hostileEscaped = `a\u001b[31m\u007f\u0080\u009b31m\u200e\u200f\u061c\u202a\u202e\u2066\u2069\u200b\ufeff\u00ad\u2028\u3164\ufe0f\udb40\udc41éя🙂z`

// wantNothingHidden fails for output with characters that should be escaped.
func wantNothingHidden(t *testing.T, what, out string) {
	t.Helper()
	if i := strings.IndexFunc(out, inspect.IsHidden); i >= 0 {
		t.Errorf("%s prints %+q", what, out[i:min(len(out), i+20)])
	}
}

func TestNothingIsLeftForTheTerminalToObey(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		hostile: hostileEscaped, hostileEscaped: hostileEscaped, "": "", "a\n\tb": "a\n\tb", "\xff\x9b": "\uFFFD\uFFFD", "\u202e\xff": `\u202e` + "\uFFFD",
		"\r": `\u000d`, "\u00a0": `\u00a0`, "größer, \u0938\u094d\u0924\u0947, e\u0301": "größer, \u0938\u094d\u0924\u0947, e\u0301",
	} {
		if got := inspect.Escaped(text); got != want {
			t.Errorf("%+q: %+q, want %+q", text, got, want)
		}
	}
}

// Every command that shows the texts of tasks, members and Redis prints them escaped, to people and as JSON, and the
// JSON decodes to the stored text.
func TestWhatStrangersStoredIsPrintedEscaped(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api")
	r.makeSite(t, 2)
	must(t, r.site.SetContact(t.Context(), 1, member.ID(101), site.Grant{}))
	args, err := json.Marshal(map[string]string{"x": hostile})
	must(t, err)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := r.db.ExecContext(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec("INSERT INTO tasks (type, queue, subject, args, state, last_error) VALUES (?, ?, 7, ?, 'dead', ?)", hostile, hostile, strings.ReplaceAll(string(args), `\u2028`, "\u2028"), hostile)
	exec("UPDATE users SET username = ? WHERE id = 101", hostile)
	must(t, r.client.Do(t.Context(), "ZADD", "user_1", 5, hostile, 101000, "101").Err())
	for line, shows := range map[string]string{
		"tasks list": `\u009b`, "tasks list --json": `\u009b`, "tasks list 1 2": `\u009b`, "tasks stats": `\u009b`, "tasks stats --json": `\u009b`,
		"explain 1": `\u009b`, "verify": "foreign", "verify --json": "foreign",
	} {
		flags := r.flags()
		if strings.HasPrefix(line, "tasks") {
			flags = flags[:1]
		}
		_, out, errs := command(t, nil, append(strings.Fields(line), flags...)...)
		wantNothingHidden(t, line, out)
		wantNothingHidden(t, line, errs)
		if !strings.Contains(out, shows) {
			t.Errorf("%s does not show %s:\n%s\n%s", line, shows, out, errs)
		}
	}
	out := succeed(t, "tasks", "list", "--json", "--state=dead", r.flags()[0])
	var task struct {
		Type      string            `json:"type"`
		Queue     string            `json:"queue"`
		Args      map[string]string `json:"args"`
		LastError string            `json:"last_error"`
	}
	must(t, json.Unmarshal([]byte(out), &task))
	if diff := cmp.Diff([]string{hostile, hostile, hostile, hostile}, []string{task.Type, task.Queue, task.Args["x"], task.LastError}); diff != "" {
		t.Errorf("the JSON has another value:\n%s", diff)
	}
}

// The log is escaped in every form.
func TestTheLogIsPrintedEscaped(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		newLogger(&config{logConfig: logConfig{format}}, escaper{&out}).Info("look", "name", hostile, hostile, 1, "error", errors.New(hostile))
		wantNothingHidden(t, format, out.String())
		if strings.Count(out.String(), `\u202e`) != 3 {
			t.Errorf("%s: %s", format, out.String())
		}
		if format == "text" {
			continue
		}
		var line map[string]any
		must(t, json.Unmarshal(out.Bytes(), &line))
		if line["name"] != hostile || line["error"] != hostile || line[hostile] != 1.0 {
			t.Errorf("the JSON has other values: %+q", line)
		}
	}
}

func TestTheEscaperTellsOfFailedWrites(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	if n, err := (escaper{&out}).Write([]byte(hostile)); n != len(hostile) || err != nil || out.String() != hostileEscaped {
		t.Errorf("%d, %v, %q", n, err, out.String())
	}
	if n, err := (escaper{full{}}).Write([]byte("x")); n != 0 || !errors.Is(err, errFull) {
		t.Errorf("%d, %v", n, err)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }
