//go:build unix

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// A line reports an impossible command, and nothing is run.
func TestOnceRefuses(t *testing.T) {
	t.Parallel()
	redis := newOnceStore(t, inRedis)[0]
	bare := servertest.MySQLDSN(t)
	db, err := mysql.Open(bare)
	must(t, err)
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(t.Context(), "DROP TABLE once_keys")
	must(t, err)
	file := filepath.Join(t.TempDir(), "ran")
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"'' -- touch FILE", exitOwn, "NAME: invalid name of 0 bytes: want 1 to 200"},
		{"ü -- touch FILE", exitOwn, "NAME: invalid name"},
		{"activityd/audit -- touch FILE", exitOwn, "NAME: activityd/audit: names that begin with activityd/ are activityd's own"},
		{"--attempts 0 x -- touch FILE", exitOwn, "--attempts: is 0: want 1 to 1000000"},
		{"--lease 0 x -- touch FILE", exitOwn, "--lease: is 0s: want 100ms to 24h0m0s"},
		{"--timeout -1s x -- touch FILE", exitOwn, "--timeout: is -1s: want 0s to 8784h0m0s"},
		{"--wait -1s x -- touch FILE", exitOwn, "--wait: is -1s: want 0s to 8784h0m0s"},
		{"--wait 1s --no-wait x -- touch FILE", exitOwn, "--wait and --no-wait: want one of them"},
		{"--exit-code-done 256 x -- touch FILE", exitOwn, "--exit-code-done: is 256: want 0 to 255"},
		{"--store files x -- touch FILE", exitOwn, "want mysql, redis"},
		{"--nonsense x -- touch FILE", exitOwn, "unknown flag: --nonsense"},
		{"x", exitOwn, "want NAME -- COMMAND"},
		{"x touch FILE", exitOwn, "want NAME -- COMMAND"},
		{"forget -- touch FILE", exitOwn, "forget is a command of once, and cannot be a NAME"},
		{"show x -- touch FILE", exitOwn, "show is a command of once, and cannot be a NAME"},
		{"x -- no-such-command", exitNotFound, `COMMAND: exec: "no-such-command": executable file not found in $PATH`},
		{"x -- ./once_test.go", exitCannotRun, "COMMAND: exec: \"./once_test.go\": permission denied"},
		{"--redis-url= x -- touch FILE", exitOwn, "where are the states? want --mysql-dsn (ACTIVITYD_MYSQL_DSN) or --redis-url (ACTIVITYD_REDIS_URL)"},
		{"--store mysql x -- touch FILE", exitOwn, "--store=mysql: want --mysql-dsn"},
		{"--redis-url redis://127.0.0.1:1/0 x -- touch FILE", exitOwn, "the store of locks is unavailable"},
		{"--mysql-dsn u@tcp(127.0.0.1:1)/x x -- touch FILE", exitOwn, "the store of locks is unavailable"},
		{"--mysql-dsn " + bare + " x -- touch FILE", exitOwn, "activityd schema --apply"},
	} {
		var words []string
		for word := range strings.FieldsSeq(strings.ReplaceAll(c.args, "FILE", file)) {
			words = append(words, strings.Trim(word, "'"))
		}
		code, out, errs := command(t, nil, append([]string{"once", redis}, words...)...)
		if code != c.code || out != "" || !strings.HasPrefix(errs, "activityd: ") || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%.80s: exit code %d, %q, %q, want %q", c.args, code, out, errs, c.want)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command was run")
	}
}

// The command finds no secret of activityd, unless it is asked for.
func TestOncePassesNoSecrets(t *testing.T) {
	t.Parallel()
	store, file := newOnceStore(t, inRedis)[0], filepath.Join(t.TempDir(), "environment")
	environ := []string{"PATH=" + os.Getenv("PATH"), "ACTIVITYD_NEED=9"}
	for _, flag := range secretSettings {
		environ = append(environ, settings.Variable(flag)+"=the secret")
	}
	found := func(flags ...string) string {
		t.Helper()
		args := append(append([]string{"once", "--mysql-dsn=", store}, flags...), "--", "sh", "-c", "env > "+file)
		if code, _, errs := command(t, environ, args...); code != exitOK {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		text, err := os.ReadFile(file)
		must(t, err)
		return string(text)
	}
	if got := found("a"); strings.Contains(got, "the secret") || !strings.Contains(got, "ACTIVITYD_NEED=9\n") || !strings.Contains(got, "ACTIVITYD_ATTEMPT=1\n") {
		t.Errorf("found %s", got)
	}
	if got := found("b", "--pass-secrets"); strings.Count(got, "=the secret\n") != len(secretSettings) {
		t.Errorf("found %s", got)
	}
}

// A setting that may have a password in it is in the list of secrets, and all in the list are
// settings.
func TestSecretSettings(t *testing.T) {
	t.Parallel()
	all := allSettings()
	for _, name := range secretSettings {
		if all.Lookup(name) == nil {
			t.Errorf("--%s is no setting", name)
		}
	}
	known := []string{"apns-url", "fcm-url"} // addresses for tests
	suspicious := regexp.MustCompile(`dsn|url|password|secret|token|key|credential`)
	all.VisitAll(func(f *pflag.Flag) {
		kind, _ := pflag.UnquoteUsage(f)
		if suspicious.MatchString(f.Name) && f.Value.Type() == "string" && kind != "file" && kind != "id" && !slices.Contains(known, f.Name) && !slices.Contains(secretSettings, f.Name) {
			t.Errorf("--%s may have a secret in it: want it in secretSettings", f.Name)
		}
	})
}

// A name that is held, free, done or exhausted can be looked at, and forgotten.
func TestOnceListShowForget(t *testing.T) {
	t.Parallel()
	onStores(t, []string{inMySQL, inRedis}, func(t *testing.T, flags []string) {
		run := func(args ...string) (code int, out, errs string) {
			t.Helper()
			return command(t, nil, append(append([]string{"once"}, flags...), args...)...)
		}
		holder := startOnce(t, append(flags, "--lease=1h", "--attempts=2"), "begun", "echo runs; exec sleep 1000")
		holder.says(t, "runs")
		run("all-done", "--", "true")
		for _, want := range []int{9, exitExhausted} {
			if code, _, errs := run("out", "--attempts=1", "--", "sh", "-c", "exit 9"); code != want {
				t.Errorf("exit code %d, want %d: %s", code, want, errs)
			}
		}
		list := succeed(t, append([]string{"once", "show"}, flags...)...)
		for _, row := range []string{`all-done +done +1/5 .* - `, `begun +held +1/2 .* 59m5\ds +1d00h `, `out +exhausted +1/1 .* attempt 1 of 1: exit status 9`} {
			if !regexp.MustCompile("(?m)^" + row).MatchString(list) {
				t.Errorf("no row %s in\n%s", row, list)
			}
		}
		code, out, errs := command(t, nil, append([]string{"once", "show", "begun"}, flags...)...)
		sheet := regexp.MustCompile(`^begun
  state         held
  attempts      1 of 2
  fence         \d+
  owner         \S+/\d+@\S+
  lease         1h0m0s
  lease ends    \S+ \S+ UTC \(in 59m5\ds\)
  kept for      24h0m0s
  attempt began \S+ \S+ UTC \(\d+m?s ago\)
  forgotten     \S+ \S+ UTC \(in 1d00h\)
$`)
		if code != exitBusy || errs != "" || !sheet.MatchString(out) {
			t.Errorf("exit code %d, %s\n%s", code, errs, out)
		}
		for name, want := range map[string]struct {
			code int
			said string
		}{"begun": {exitBusy, "state         held"}, "all-done": {exitOK, "state         done"}, "out": {exitExhausted, "state         exhausted"}, "never": {exitFree, "never has no state"}} {
			if code, out, errs := command(t, nil, append([]string{"once", "show", name}, flags...)...); code != want.code || !strings.Contains(out+errs, want.said) {
				t.Errorf("%s: exit code %d, %q, %q", name, code, out, errs)
			}
		}
		forget := func(args ...string) (code int, out, errs string) {
			t.Helper()
			return command(t, nil, append(append([]string{"once", "forget"}, flags...), args...)...)
		}
		if code, out, errs := forget("begun"); code != exitFailed || out != "" || !strings.HasPrefix(errs, "activityd: begun is held by ") || !strings.Contains(errs, "with --force") {
			t.Errorf("exit code %d, %q, %q", code, out, errs)
		}
		for _, name := range []string{"all-done", "out"} {
			if code, out, errs := forget(name); code != exitOK || out != "forgot "+name+"\n" || errs != "" {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
			if code, out, errs := forget(name); code != exitFailed || out != "" || !strings.Contains(errs, name+" has no state") {
				t.Errorf("exit code %d, %q, %q", code, out, errs)
			}
		}
		if code, _, errs := command(t, nil, append([]string{"once", "show", "out"}, flags...)...); code != exitFree || !strings.Contains(errs, "out has no state") {
			t.Errorf("exit code %d, %q", code, errs)
		}
		if code, _, errs := forget("begun", "--force"); code != exitOK {
			t.Errorf("exit code %d, %q", code, errs)
		}
		if code, _, errs := forget("a b"); code != exitFailed || !strings.Contains(errs, "NAME: invalid name") {
			t.Errorf("exit code %d, %q", code, errs)
		}
	})
}

// hosts are two hosts that share a database, for the examples of the page.
type hosts struct {
	activityd, command, environment string // files
	runs                            string // the command adds a line to it
}

func newHosts(t *testing.T) hosts {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	dir := t.TempDir()
	h := hosts{filepath.Join(dir, "activityd"), filepath.Join(dir, "send-digest"), filepath.Join(dir, "environment"), filepath.Join(dir, "runs")}
	for file, text := range map[string]string{
		h.activityd:   fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asProgram, self),
		h.command:     fmt.Sprintf("#!/bin/sh\necho $ACTIVITYD_ATTEMPT \"$@\" >> '%s'\n", h.runs),
		h.environment: fmt.Sprintf("ACTIVITYD_MYSQL_DSN='%s'\nACTIVITYD_REDIS_URL='%s'\n", servertest.MySQLDSN(t), servertest.Redis(t).URL()),
	} {
		must(t, os.WriteFile(file, []byte(text), 0o700))
	}
	return h
}

// replaced returns a text of the page with the files that there are.
func (h hosts) replaced(text string) string {
	return strings.NewReplacer("/usr/local/bin/activityd", h.activityd, "/usr/local/bin/send-digest", h.command, "/etc/activityd/environment", h.environment).Replace(text)
}

// runOnTwo runs a line of sh on two hosts, as cron does: the command runs on a single host.
func (h hosts) runOnTwo(t *testing.T, line string) {
	t.Helper()
	must(t, os.RemoveAll(h.runs))
	var running sync.WaitGroup
	for range 2 {
		running.Go(func() {
			cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", line)
			cmd.Env = []string{"PATH=/usr/bin:/bin", "HOME=/", "LOGNAME=deploy", "SHELL=/bin/sh"}
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s: %v: %s", line, err, out)
			}
		})
	}
	running.Wait()
	if text, err := os.ReadFile(h.runs); err != nil || string(text) != "1 --all\n" {
		t.Errorf("%s: it ran so: %q, %v", line, text, err)
	}
}

// The line of a crontab and the units of docs/once.md do their work; systemd takes the units, where it is installed.
func TestTheSchedulesOfThePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/once.md")
	must(t, err)
	h, dir := newHosts(t), t.TempDir()
	line := regexp.MustCompile(`(?m)^[0-9*/,-]+ [0-9*/,-]+ [0-9*/,-]+ [0-9*/,-]+ [0-9*/,-]+  (\w+)  (.*)$`).FindStringSubmatch(string(page))
	if line == nil {
		t.Fatal("no line of a crontab")
	}
	h.runOnTwo(t, h.replaced(strings.ReplaceAll(line[2], `\%`, "%")))
	h = newHosts(t) // with another store: the name is the same
	verify := []string{"verify", "--man=no", "--recursive-errors=no"}
	for _, unit := range regexp.MustCompile("(?s)# /etc/systemd/system/(\\S+)\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		text := h.replaced(unit[2])
		if start := regexp.MustCompile(`(?m)^ExecStart=(.+)$`).FindStringSubmatch(text); start != nil {
			h.runOnTwo(t, "exec "+strings.NewReplacer("$$", "$", "%%", "%").Replace(start[1]))
		}
		path := filepath.Join(dir, unit[1])
		must(t, os.WriteFile(path, []byte(strings.ReplaceAll(text, "User=deploy\n", "")), 0o600))
		verify = append(verify, path)
	}
	if len(verify) != 5 {
		t.Fatalf("want a service and a timer: %v", verify)
	}
	if analyze, err := exec.LookPath("systemd-analyze"); err == nil {
		if out, err := exec.CommandContext(t.Context(), analyze, verify...).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v: %s", err, out)
		}
	}
}
