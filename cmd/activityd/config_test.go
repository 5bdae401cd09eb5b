package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
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
		{args: []string{"serve", dsn, "--queue-dsn=s3cret"}, want: "--queue-dsn (ACTIVITYD_QUEUE_DSN)"},
		{args: []string{"schema", "--triggers", "--queue-dsn=s3cret"}, want: "--queue-dsn (ACTIVITYD_QUEUE_DSN)"},
		{args: []string{"serve", dsn, "--redis-url=http://:s3cret@host"}, want: "--redis-url (ACTIVITYD_REDIS_URL)"},
		{args: []string{"serve", dsn, "--redis-url=redis+raft://:s3cret@host"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--redis-url=redis+sentinel://:s3cret@host"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--redis-url=redis+cluster://:s3cret@ho st"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--redis-url=redis+cluster://:s3cret@host/3"}, want: "a cluster has database 0 only"},
		{args: []string{"serve", dsn, "--redis-url=redis://:s3cret@host/-1"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--role=both"}, want: `invalid argument "both" for "--role" flag: want all, api, workers`},
		{args: []string{"serve", dsn, "--need=0"}, want: "--need (ACTIVITYD_NEED)"},
		{args: []string{"serve", dsn, "--min=13"}, want: "min is 13: want 1 to 12"},
		{args: []string{"serve", dsn, "--headroom=-1"}, want: "headroom is -1"},
		{args: []string{"serve", dsn, "--workers=default=0,fan_out=0,fan_out_slots=0,refill=0,notify=0,push=0,push_urgent=0"}, want: "--workers (ACTIVITYD_WORKERS): there is none"},
		{args: []string{"serve", dsn, "--materialize=some"}, want: "--materialize"},
		{args: []string{"serve", dsn, "--workers=" + strings.Repeat("q", 33) + "=3"}, want: "--workers (ACTIVITYD_WORKERS): queue "},
		{args: []string{"serve", dsn, "--keep-tasks=-1s"}, want: "--keep-tasks (ACTIVITYD_KEEP_TASKS): is -1s"},
		{args: []string{"serve", dsn, "--mysql-connections=0"}, want: "--mysql-connections (ACTIVITYD_MYSQL_CONNECTIONS): is 0"},
		{args: []string{"serve", dsn, "--audit-sweep-rate=-1"}, want: "--audit-sweep-rate (ACTIVITYD_AUDIT_SWEEP_RATE): is -1"},
		{args: []string{"serve", dsn, "--log-format=xml"}, want: "--log-format"},
		{args: []string{"serve", dsn, "--viewer-keys=/no/file"}, want: "--viewer-keys (ACTIVITYD_VIEWER_KEYS): the viewer keys cannot be used"},
		{args: []string{"serve", dsn, "--viewer-audience=a"}, want: "--viewer-audience (ACTIVITYD_VIEWER_AUDIENCE): needs --viewer-keys"},
		{args: []string{"serve", dsn, "--viewer-rate=10"}, want: "--viewer-rate (ACTIVITYD_VIEWER_RATE): with --viewer-burst: want a rate"},
		{args: []string{"serve", dsn, "--viewer-burst=-1"}, want: "with --viewer-burst: want a burst"},
		{args: []string{"serve", dsn, "--allow-origin=https://photos.example"}, want: "--allow-origin (ACTIVITYD_ALLOW_ORIGIN): needs --viewer-keys"},
		{args: []string{"serve", dsn, "--viewer-keys=a", "--allow-origin=https://photos.example,*"}, want: `--allow-origin (ACTIVITYD_ALLOW_ORIGIN): "*": want https://host`},
		{args: []string{"serve", dsn, "--viewer-keys=a"}, environ: []string{"ACTIVITYD_ALLOW_ORIGIN=https://a.example,https://photos.example/a"}, want: `"https://photos.example/a": want https://host`},
		{args: []string{"serve", dsn, "--listen=nonsense"}, want: "--listen (ACTIVITYD_LISTEN)"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_WORKERS=ten"}, want: "ACTIVITYD_WORKERS: cannot be read: want queue=number,…, as for --workers"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_LOG_LEVEL=loud"}, want: "ACTIVITYD_LOG_LEVEL: cannot be read: want debug|info|warn|error, as for --log-level"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_NEED=ten"}, want: "ACTIVITYD_NEED: cannot be read: want int, as for --need"},
		{args: []string{"serve", dsn, "extra"}, want: "extra"},
		{args: []string{"serve", dsn, "--lisen=:80"}, want: "unknown flag: --lisen; did you mean --listen?"},
		{args: []string{"serve", dsn, "--workers=abc"}, want: `--workers: "abc": want queue=number,…`},
		{args: []string{"enqueue", "upload", "abc", dsn}, want: "MEMBER: not a member id"},
		{args: []string{"enqueue", "add_contact", "1", "0", dsn}, want: "CONTACT: not a member id"},
		{args: []string{"enqueue", "add_contact", "1", dsn}, want: "the contact is missing"},
		{args: []string{"enqueue", "upload", "1", "2", dsn}, want: "takes no contact"},
		{args: []string{"enqueue", "fan_out", "1", dsn}, want: "unknown type"},
		{args: []string{"enqueue", "notify", "1", dsn}, want: "EVENT: is missing"},
		{args: []string{"enqueue", "notify", "x", "{}", dsn}, want: "MEMBER: not a member id"},
		{args: []string{"enqueue", "notify", "1", "{", dsn}, want: "EVENT: malformed"},
		{args: []string{"enqueue", "notify", "1", "{}", dsn}, want: "EVENT: type: is missing"},
		{args: []string{"enqueue", "upload"}, want: "accepts between 2 and 3 arg(s), received 1; want activityd enqueue {TYPE MEMBER [CONTACT | EVENT] | -}"},
		{args: []string{"show", "-1", dsn}, want: "unknown shorthand flag"},
		{args: []string{"show", "1e3", dsn}, want: "MEMBER: not a member id"},
		{args: []string{"reset"}, want: "--yes"},
		{args: []string{"schema", "--apply"}, want: "--mysql-dsn"},
		{args: []string{"demo", "--listen=nonsense"}, want: "--listen (ACTIVITYD_LISTEN)"},
		{args: []string{"serve", dsn, "--listen="}, want: "--listen (ACTIVITYD_LISTEN): is empty"},
		{args: []string{"serve", dsn, "--role="}, want: "want all, api, workers"},
		{args: []string{"serve", dsn, "--role=api|workers"}, want: "want all, api, workers"},
		{args: []string{"serve", dsn, "--log-level=debug|info"}, want: "want debug, info, warn, error"},
		{args: []string{"tasks", "list", dsn, "--output=table|json"}, want: "want table, json"},
		{args: []string{"enqueue", "--check", "upload", "1", "--progress=maybe"}, want: `invalid argument "maybe" for "--progress" flag`},
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

func TestTheCommandLineWinsOverTheEnvironment(t *testing.T) {
	t.Parallel()
	c := &config{}
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.serverFlags(f)
	c.indexFlags(f)
	must(t, f.Parse([]string{"--headroom=3"}))
	var warnings strings.Builder
	environ := []string{"ACTIVITYD_HEADROOM=5", "ACTIVITYD_GRACE=2s", "ACTIVITYD_WORKERS=default=7,fan_out=0", "NEED=99", "ACTIVITYD_NEED=20", "ACTIVITYD_TEST_X=1", "ACTIVITYD_WALKS=s3cret"}
	must(t, fromEnvironment(f, f, environ, &warnings))
	if c.headroom != 3 || c.grace != 2*time.Second || c.need != 20 {
		t.Errorf("headroom %d, grace %v, need %d", c.headroom, c.grace, c.need)
	}
	if got, want := warnings.String(), "activityd: ACTIVITYD_WALKS has no effect: there is no such setting\n"; got != want {
		t.Errorf("warned %q, want %q", got, want)
	}
	for _, w := range c.poolOptions().Workers {
		if want := map[string]int{"default": 7, "fan_out": 0, "fan_out_slots": 2, "refill": 2, "notify": 2, "push": 6, "push_urgent": 3}[w.Queue]; w.Count != want {
			t.Errorf("workers of %s: %d, want %d", w.Queue, w.Count, want)
		}
	}
}

func TestHelpNamesTheVariableOfEverySetting(t *testing.T) {
	t.Parallel()
	settings := newServe().Flags()
	for _, cmd := range newRoot(nil, io.Discard, io.Discard).Commands() {
		help := succeed(t, cmd.Name(), "--help")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if isSetting := settings.Lookup(f.Name) != nil; !f.Hidden && strings.Contains(help, "["+environmentName(f.Name)+"]") != isSetting {
				t.Errorf("%s --help names %s: %v, want %v", cmd.Name(), environmentName(f.Name), !isSetting, isSetting)
			}
		})
	}
}

// The tables of the settings in docs/settings.md have each flag of serve and no other,
// with its variable and its default: those of push, those of viewers, and all others.
func TestTheDocsListTheSettings(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/settings.md")
	must(t, err)
	ofPush := pflag.NewFlagSet("push", pflag.ContinueOnError)
	new(pushConfig).flags(ofPush)
	ofViewers := pflag.NewFlagSet("viewers", pflag.ContinueOnError)
	new(viewerConfig).flags(ofViewers)
	serve := newServe().Flags()
	ofPush.VisitAll(func(f *pflag.Flag) {
		if serve.Lookup(f.Name) == nil {
			t.Errorf("serve has no --%s", f.Name)
		}
	})
	for _, table := range []struct {
		heading string
		is      func(name string) bool
		most    int
	}{
		{"Settings", func(name string) bool { return ofPush.Lookup(name) == nil && ofViewers.Lookup(name) == nil }, 21},
		{"Settings of viewer tokens", func(name string) bool { return ofViewers.Lookup(name) != nil }, 5},
		{"Settings of push", func(name string) bool { return ofPush.Lookup(name) != nil }, 11},
	} {
		_, rest, _ := strings.Cut(string(page), "\n### "+table.heading+"\n")
		section, _, _ := strings.Cut(rest, "\n### ")
		listed := make(map[string]string)
		for _, row := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| `([A-Z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(section, -1) {
			if row[2] != environmentName(row[1]) {
				t.Errorf("--%s is listed with the variable %s", row[1], row[2])
			}
			listed[row[1]] = strings.Trim(row[3], " `")
		}
		settings := 0
		serve.VisitAll(func(f *pflag.Flag) {
			if f.Hidden || !table.is(f.Name) {
				return
			}
			settings++
			got, ok := listed[f.Name]
			if want := f.DefValue; !ok || got != want {
				t.Errorf("--%s: listed %v, with the default %q, want %q", f.Name, ok, got, want)
			}
			delete(listed, f.Name)
		})
		for name := range listed {
			t.Errorf("--%s is listed under %s, and does not belong there", name, table.heading)
		}
		if settings == 0 || settings > table.most {
			t.Errorf("%s: %d, want %d at most", table.heading, settings, table.most)
		}
	}
}

// Flags that are no settings say what one command does, and no later one.
func TestTheEnvironmentHasSettingsOnly(t *testing.T) {
	t.Parallel()
	environ := []string{"ACTIVITYD_YES=true", "ACTIVITYD_APPLY=true", "ACTIVITYD_HELP=true"}
	if code, _, errs := command(t, environ, "reset"); code != 1 || !strings.Contains(errs, "--yes") {
		t.Errorf("reset: exit code %d: %s", code, errs)
	}
	if code, out, _ := command(t, environ, "schema"); code != 0 || !strings.Contains(out, "CREATE TABLE") {
		t.Errorf("schema: exit code %d: %s", code, out)
	}
}

func TestVersion(t *testing.T) {
	t.Parallel()
	if out := succeed(t, "version"); !strings.HasPrefix(out, "activityd") {
		t.Errorf("version prints %q", out)
	}
}

func TestRedisURLs(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"redis://127.0.0.1:6379/0", "rediss://user:password@host:6380/1", "unix:///run/redis.sock",
		"redis+sentinel://host:26379/0?master_name=index&addr=other:26379", "redis+cluster://host:6379?addr=other:6379",
	} {
		client, err := openRedis(url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	}
}
