package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const dsn = "--mysql-dsn=root:s3cret@tcp(127.0.0.1:1)/site"

func TestWrongValuesAreRefusedByName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args    []string
		environ []string
		want    string
	}{
		{args: []string{"serve"}, want: "--mysql-dsn (ACTIVITYD_MYSQL_DSN)"},
		{args: []string{"serve", "--mysql-dsn=s3cret"}, want: "--mysql-dsn (ACTIVITYD_MYSQL_DSN)"},
		{args: []string{"serve"}, environ: []string{"ACTIVITYD_MYSQL_DSN=root:s3cret@tcp(127.0.0.1:1)/"}, want: "--mysql-dsn (ACTIVITYD_MYSQL_DSN)"},
		{args: []string{"serve", dsn, "--redis-url=http://:s3cret@host"}, want: "--redis-url (ACTIVITYD_REDIS_URL)"},
		{args: []string{"serve", dsn, "--redis-url=redis+cluster://:s3cret@host/3"}, want: "a cluster has database 0 only"},
		{args: []string{"serve", dsn, "--redis-url=redis://:s3cret@host/-1"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--role=both"}, want: `invalid argument "both" for "--role" flag: want all, api, workers`},
		{args: []string{"serve", dsn, "--need=10001"}, want: "--need (ACTIVITYD_NEED): is 10001: want 1 to 10000 candidates"},
		{args: []string{"serve", dsn, "--workers=default=0,fan_out=0,fan_out_again=0,refill=0,backfill=0,check=0,push=0,push_deliver=0,push_urgent=0"}, want: "--workers (ACTIVITYD_WORKERS): there is none"},
		{args: []string{"serve", dsn, "--workers=" + strings.Repeat("q", 33) + "=3"}, want: "--workers (ACTIVITYD_WORKERS): queue "},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_MYSQL_CONNECTIONS=0"}, want: "ACTIVITYD_MYSQL_CONNECTIONS: is 0"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_AUDIT_SWEEP_RATE=-1"}, want: "ACTIVITYD_AUDIT_SWEEP_RATE: is -1: want 0 to 100000 sets/s"},
		{args: []string{"serve", dsn, "--viewer-keys=/no/file"}, want: "--viewer-keys (ACTIVITYD_VIEWER_KEYS): stat /no/file"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_VIEWER_AUDIENCE=a"}, want: "ACTIVITYD_VIEWER_AUDIENCE: needs --viewer-keys"},
		{args: []string{"serve", dsn, "--allow-origin=https://photos.example"}, want: "--allow-origin (ACTIVITYD_ALLOW_ORIGIN): needs --viewer-keys"},
		{args: []string{"serve", dsn, "--viewer-keys=a"}, environ: []string{"ACTIVITYD_ALLOW_ORIGIN=https://a.example,https://photos.example/a"}, want: `"https://photos.example/a": want https://host`},
		{args: []string{"serve", dsn, "--listen=nonsense"}, want: "--listen (ACTIVITYD_LISTEN)"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_POLL=ten"}, want: "ACTIVITYD_POLL: cannot be read: want 1ms to 1h\n"},
		{args: []string{"serve", dsn, "--webpush-key=s3cret"}, want: "unknown flag: --webpush-key; it is the setting ACTIVITYD_WEBPUSH_KEY, for the environment or the file of --config"},
		{args: []string{"serve", dsn, "--config=/no/file"}, want: "--config (ACTIVITYD_CONFIG): open /no/file"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_CONFIG=/no/file"}, want: "--config (ACTIVITYD_CONFIG): open /no/file"},
		{args: []string{"serve", dsn, "extra"}, want: "extra"},
		{args: []string{"serve", dsn, "--lisen=:80"}, want: "unknown flag: --lisen; want activityd serve [flags]"},
		{args: []string{"serve", dsn, "--workers=abc"}, want: `invalid argument "abc" for "--workers" flag`},
		{args: []string{"enqueue", "upload", "abc", dsn}, want: "MEMBER: not a member id"},
		{args: []string{"enqueue", "add_contact", "1", "0", dsn}, want: "CONTACT: not a member id"},
		{args: []string{"enqueue", "add_contact", "1", dsn}, want: "the contact is missing"},
		{args: []string{"enqueue", "upload", "1", "2", dsn}, want: "takes no contact"},
		{args: []string{"enqueue", "notify", "1", dsn}, want: "EVENT: is missing"},
		{args: []string{"enqueue", "notify", "1", "{}", dsn}, want: "EVENT: type: is missing"},
		{args: []string{"enqueue"}, want: "accepts between 2 and 3 arg(s), received 0; want activityd enqueue {TYPE MEMBER [CONTACT | EVENT] | TYPE KEY [JSON] | -}"},
		{args: []string{"enqueue", "receipt", "18446744073709551616", dsn}, want: "KEY: 18446744073709551616 is more than"},
		{args: []string{"enqueue", "receipt", "7", "{", dsn}, want: "JSON: is none"},
		{args: []string{"enqueue", "receipt", "7", `"` + strings.Repeat("x", 32<<10) + `"`, dsn}, want: "JSON: has 32770 bytes: want at most 32768"},
		{args: []string{"enqueue", strings.Repeat("x", 33), "7", dsn}, want: "want a name of 1 to 32 bytes"},
		{args: []string{"enqueue", "upload"}, want: "want a KEY after TYPE"},
		{args: []string{"explain", "-1", dsn}, want: "unknown shorthand flag"},
		{args: []string{"explain", "1e3", dsn}, want: "MEMBER: not a member id"},
		{args: []string{"reset"}, want: "--yes"},
		{args: []string{"serve", dsn, "--listen="}, want: "--listen (ACTIVITYD_LISTEN): is empty"},
		{args: []string{"explain", dsn}, want: "accepts 1 arg(s), received 0; want activityd explain MEMBER"},
		{args: []string{"verify", "1", "2"}, want: "accepts at most 1 arg(s), received 2"},
		{args: []string{"verify", dsn, "--answers", "few"}, want: `invalid argument "few" for "--answers" flag`},
		{args: []string{"verify", dsn, "--rate=-1"}, want: "--rate: is -1"},
		{args: []string{"verify", dsn, "--answers=2"}, want: "--answers: is 2: want 0 to 1"},
		{args: []string{"backfill", dsn, "--rate=-1"}, want: "--rate: is -1"},
		{args: []string{"backfill", dsn, "9-7"}, want: "MEMBER or FROM-TO: 9-7 ends before it begins"},
		{args: []string{"backfill", dsn, "--need=0"}, want: "--need"},
		{args: []string{"explain", "1", dsn, "--redis-url=redis://127.0.0.1:1"}, want: "start MySQL, or correct --mysql-dsn (ACTIVITYD_MYSQL_DSN)"},
		{args: []string{"verfy"}, want: "Did you mean this?\n\tverify"},
		{args: []string{"tasks", "nonsense"}, want: `unknown command "nonsense" for "activityd tasks"; see activityd tasks --help`},
		{args: []string{"tasks", "list", "", dsn}, want: `"" is no task id`},
		{args: []string{"tasks", "list"}, want: "--mysql-dsn (ACTIVITYD_MYSQL_DSN)"},
		{args: []string{"tasks", "list", "--state=deed", dsn}, want: `--state: is "deed": want one of [waiting scheduled running dead]`},
		{args: []string{"tasks", "list", "--member=0", dsn}, want: "--member: not a member id"},
		{args: []string{"tasks", "list", "--limit=-1", dsn}, want: "--limit: is -1"},
		{args: []string{"tasks", "list", "x", dsn}, want: `"x" is no task id`},
		{args: []string{"tasks", "list", "0", dsn}, want: `"0" is no task id`},
		{args: []string{"tasks", "list", "18446744073709551616", dsn}, want: `"18446744073709551616" is no task id`},
		{args: []string{"tasks", "list", "5", "--state=dead", dsn}, want: "--state: want either ids or a filter"},
		{args: []string{"tasks", "list", "--type=", dsn}, want: "--type: is empty"},
		{args: []string{"tasks", "retry", dsn}, want: "retry which tasks? Name them by id, --type, --queue, --member, --dedupe-key or --error, or say --all"},
		{args: []string{"tasks", "retry", "--state=dead", dsn}, want: "retry which tasks?"},
		{args: []string{"tasks", "retry", "--all", "--state=waiting", dsn}, want: `--state: is "waiting": want one of [dead scheduled]`},
		{args: []string{"tasks", "retry", "--all", "--yes", dsn}, want: "unknown flag: --yes"},
		{args: []string{"tasks", "retry", "--type=upload", "--member=", dsn}, want: "--member: is empty"},
		{args: []string{"tasks", "discard", "--all", "--state=running", dsn}, want: `--state: is "running": want one of [dead waiting scheduled]`},
		{args: []string{"tasks", "discard", "--yes", dsn}, want: "discard which tasks?"},
		{args: []string{"tasks", "discard", "--type=upload", dsn}, want: "repeat with --yes"},
		{args: []string{"tasks", "pause", dsn}, want: "accepts 1 arg(s), received 0"},
		{args: []string{"tasks", "discard", "--yes", "--all", "--queue=", dsn}, want: "--queue: is empty"},
		{args: []string{"tasks", "discard", "five", "--mysql-dsn=s3cret@tcp(h)"}, want: `"five" is no task id`},
		{args: []string{"nonsense"}, want: `unknown command "nonsense" for "activityd"`},
	} {
		code, out, errs := command(t, c.environ, c.args...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("%v %v: exit code %d, %q, want %q", c.environ, c.args, code, errs, c.want)
		}
		if strings.Contains(out+errs, "s3cret") {
			t.Errorf("%v %v: printed the secret: %q", c.environ, c.args, out+errs)
		}
	}
}

func TestAllWrongValuesAreToldAtOnce(t *testing.T) {
	t.Parallel()
	_, _, errs := command(t, nil, "serve", "--grace=0", "--workers=default=-1")
	for _, flag := range []string{"--mysql-dsn", "--grace", "--workers"} {
		if !strings.Contains(errs, flag) {
			t.Errorf("%q does not name %s", errs, flag)
		}
	}
}

// The setting names some queues. The rest keep their workers.
func TestWorkersOfQueues(t *testing.T) {
	t.Parallel()
	c, _ := parseServe(t, "ACTIVITYD_WORKERS=default=7,fan_out=0,mail=1")
	want := map[string]int{"default": 7, "fan_out": 0, "fan_out_again": 1, "refill": 2, "backfill": 3, "check": 1, "push": 32, "push_deliver": 32, "push_urgent": 8, "mail": 1}
	got := make(map[string]int)
	for _, w := range c.poolOptions().Workers {
		got[w.Queue] = w.Count
	}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A single file serves all commands. Each command takes the settings that it needs.
func TestCommandsReadTheFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "environment")
	must(t, os.WriteFile(file, []byte("ACTIVITYD_MYSQL_DSN='root:s3cret@tcp(127.0.0.1:1)/site'\nACTIVITYD_NEED=0\n"), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"serve"}, "--need (ACTIVITYD_NEED): is 0"},
		{[]string{"tasks", "list"}, "127.0.0.1:1"},
		{[]string{"once", "digest", "--", "true"}, "127.0.0.1:1"},
	} {
		for _, given := range []struct{ flags, environ []string }{{flags: []string{"--config=" + file}}, {environ: []string{"ACTIVITYD_CONFIG=" + file}}} {
			code, out, errs := command(t, given.environ, slices.Insert(slices.Clone(c.args), 1, given.flags...)...)
			if code == 0 || !strings.Contains(errs, c.want) || strings.Contains(out+errs, "s3cret") {
				t.Errorf("%v: exit code %d, %q, want %q", c.args, code, errs, c.want)
			}
		}
	}
	if out := succeed(t, "tasks", "--config=/no/file"); out == "" {
		t.Error("a command without settings does not need it")
	}
}

// The help of serve fits a page, and names the variables. The workers are in one order: that of a map would change.
func TestTheHelpOfServe(t *testing.T) {
	t.Parallel()
	help := succeed(t, "serve", "--help")
	if flags := regexp.MustCompile(`(?m)^ +(-\w, )?--`).FindAllString(help, -1); len(flags) < 10 || len(flags) > 15+2 /* --help and --config */ {
		t.Errorf("%d flags: %s", len(flags), help)
	}
	for _, want := range []string{
		"[ACTIVITYD_NEED]", "[ACTIVITYD_CONFIG]",
		"(default default=2,fan_out=2,fan_out_again=1,refill=2,backfill=3,check=1,push=32,push_deliver=32,push_urgent=8)",
	} {
		if !strings.Contains(help, want) {
			t.Errorf("no %q in %s", want, help)
		}
	}
}
