package main

import (
	"io"
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
		{args: []string{"serve", dsn, "--redis-url=http://:s3cret@host"}, want: "--redis-url (ACTIVITYD_REDIS_URL)"},
		{args: []string{"serve", dsn, "--redis-url=redis+raft://:s3cret@host"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--redis-url=redis+sentinel://:s3cret@host"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--redis-url=redis+cluster://:s3cret@ho st"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--redis-url=redis+cluster://:s3cret@host/3"}, want: "a cluster has database 0 only"},
		{args: []string{"serve", dsn, "--redis-url=redis://:s3cret@host/-1"}, want: "--redis-url"},
		{args: []string{"serve", dsn, "--role=both"}, want: "--role (ACTIVITYD_ROLE): is \"both\""},
		{args: []string{"serve", dsn, "--need=0"}, want: "--need (ACTIVITYD_NEED)"},
		{args: []string{"serve", dsn, "--min=13"}, want: "--min (ACTIVITYD_MIN): min is 13: want 1 to 12"},
		{args: []string{"serve", dsn, "--headroom=-1"}, want: "--headroom (ACTIVITYD_HEADROOM): headroom is -1"},
		{args: []string{"serve", dsn, "--workers=default=0,fan_out=0,refill=0"}, want: "--workers (ACTIVITYD_WORKERS): there is none"},
		{args: []string{"serve", dsn, "--materialize=some"}, want: "--materialize"},
		{args: []string{"serve", dsn, "--lease=0s"}, want: "--lease (ACTIVITYD_LEASE): is 0s"},
		{args: []string{"serve", dsn, "--workers=" + strings.Repeat("q", 33) + "=3"}, want: "--workers (ACTIVITYD_WORKERS): queue "},
		{args: []string{"serve", dsn, "--task-limit=0"}, want: "--task-limit (ACTIVITYD_TASK_LIMIT): is 0s"},
		{args: []string{"serve", dsn, "--keep-tasks=-1s"}, want: "--keep-tasks (ACTIVITYD_KEEP_TASKS): is -1s"},
		{args: []string{"serve", dsn, "--max-waiting=-1"}, want: "--max-waiting (ACTIVITYD_MAX_WAITING): is -1"},
		{args: []string{"serve", dsn, "--walks=0"}, want: "--walks"},
		{args: []string{"serve", dsn, "--log-format=xml"}, want: "--log-format"},
		{args: []string{"serve", dsn, "--max-body=-1"}, want: "--max-body"},
		{args: []string{"serve", dsn, "--listen=nonsense"}, want: "--listen (ACTIVITYD_LISTEN)"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_WORKERS=ten"}, want: "ACTIVITYD_WORKERS: cannot be read: want names with numbers, as in a=1,b=2, as for --workers"},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_LOG_LEVEL=loud"}, want: `--log-level (ACTIVITYD_LOG_LEVEL): is "loud": want debug, info, warn or error`},
		{args: []string{"serve", dsn}, environ: []string{"ACTIVITYD_NEED=ten"}, want: "ACTIVITYD_NEED: cannot be read: want a whole number, as for --need"},
		{args: []string{"serve", dsn, "extra"}, want: "extra"},
		{args: []string{"enqueue", "upload", "abc", dsn}, want: "USER: not a member id"},
		{args: []string{"enqueue", "add_contact", "1", "0", dsn}, want: "CONTACT: not a member id"},
		{args: []string{"enqueue", "add_contact", "1", dsn}, want: "the contact is missing"},
		{args: []string{"enqueue", "upload", "1", "2", dsn}, want: "takes no contact"},
		{args: []string{"enqueue", "fan_out", "1", dsn}, want: "unknown type"},
		{args: []string{"enqueue", "upload"}, want: "USER is missing"},
		{args: []string{"show", "-1", dsn}, want: "unknown shorthand flag"},
		{args: []string{"show", "1e3", dsn}, want: "USER: not a member id"},
		{args: []string{"reset"}, want: "--yes"},
		{args: []string{"schema", "--apply"}, want: "--mysql-dsn"},
		{args: []string{"demo", "--listen=nonsense"}, want: "--listen (ACTIVITYD_LISTEN)"},
		{args: []string{"serve", dsn, "--listen="}, want: "--listen (ACTIVITYD_LISTEN): is empty"},
		{args: []string{"serve", dsn, "--role="}, want: `--role (ACTIVITYD_ROLE): is "": want all, api or workers`},
		{args: []string{"serve", dsn, "--role=api|workers"}, want: "want all, api or workers"},
		{args: []string{"serve", dsn, "--log-level=debug|info"}, want: "want debug, info, warn or error"},
		{args: []string{"tasks", "list", dsn, "--output=table|json"}, want: "--output (ACTIVITYD_OUTPUT): is \"table|json\": want "},
		{args: []string{"enqueue", "--check", "upload", "1", "--progress=auto|always"}, want: "want auto, always or never"},
		{args: []string{"enqueue", "--check", "upload", "1", "--progress=maybe"}, want: `--progress (ACTIVITYD_PROGRESS): is "maybe": want auto, always or never`},
		{args: []string{"nonsense"}, want: `"nonsense" is no command of activityd`},
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
	_, _, errs := command(t, nil, "serve", "--walks=0", "--role=x")
	for _, flag := range []string{"--mysql-dsn", "--walks", "--role"} {
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
	if err := f.Parse([]string{"--walks=3"}); err != nil {
		t.Fatal(err)
	}
	if err := fromEnvironment(f, []string{"ACTIVITYD_WALKS=5", "ACTIVITYD_POLL=2s", "ACTIVITYD_WORKERS=default=7,fan_out=0", "NEED=99", "ACTIVITYD_NEED=20"}); err != nil {
		t.Fatal(err)
	}
	if c.walks != 3 || c.poll != 2*time.Second || c.need != 20 {
		t.Errorf("walks %d, poll %v, need %d", c.walks, c.poll, c.need)
	}
	for _, w := range c.poolOptions().Workers {
		if want := map[string]int{"default": 7, "fan_out": 0, "refill": 2}[w.Queue]; w.Count != want {
			t.Errorf("workers of %s: %d, want %d", w.Queue, w.Count, want)
		}
	}
}

func TestHelpTellsEveryFlagWithItsVariable(t *testing.T) {
	t.Parallel()
	for _, cmd := range newRoot(nil, io.Discard, io.Discard).Commands() {
		help := succeed(t, cmd.Name(), "--help")
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && !isDeed(f) && !strings.Contains(help, "["+environmentName(f.Name)+"]") {
				t.Errorf("%s --help does not name %s", cmd.Name(), environmentName(f.Name))
			}
		})
	}
}

// What was meant for one command must not be done by every later one.
func TestDeedsAreNotTakenFromTheEnvironment(t *testing.T) {
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
