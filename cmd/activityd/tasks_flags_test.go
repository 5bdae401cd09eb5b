package main

import (
	"strings"
	"testing"
)

func TestWrongTasksFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"list", "--mysql-dsn (ACTIVITYD_MYSQL_DSN)"},
		{"list --state=deed " + dsn, `--state: is "deed": want waiting, scheduled, running, dead`},
		{"list --member=0 " + dsn, "--member: not a member id"},
		{"list --limit=-1 " + dsn, "--limit: is -1"},
		{"list --output=xml " + dsn, `invalid argument "xml" for "-o, --output" flag: want table, json`},
		{"list x " + dsn, `"x" is no task id`},
		{"list 5 --state=dead " + dsn, "--state: want either ids or a filter"},
		{"show " + dsn, "requires at least 1 arg(s)"},
		{"show 5-9 " + dsn, `"5-9" is no task id`},
		{"show 0 " + dsn, `"0" is no task id`},
		{"show 18446744073709551616 " + dsn, `"18446744073709551616" is no task id`},
		{"retry " + dsn, "retry which tasks? Name them by id, --type, --queue, --member or --error, or say --all"},
		{"retry --state=dead " + dsn, "retry which tasks?"},
		{"retry --all --state=waiting " + dsn, `--state: is "waiting": want dead, scheduled`},
		{"retry --all --progress=maybe " + dsn, `for "--progress" flag`},
		{"retry --all --yes " + dsn, "unknown flag: --yes"},
		{"retry --id=5 " + dsn, "unknown flag: --id"},
		{"retry 5 --type=upload " + dsn, "--type: want either ids or a filter"},
		{"discard --yes " + dsn, "discard which tasks?"},
		{"discard --type=upload " + dsn, "repeat with --yes"},
		{"pause " + dsn, "accepts 1 arg(s), received 0"},
		{"discard five " + dsn, `"five" is no task id`},
		{"stats --watch=5ms " + dsn, "--watch: is 5ms: want 100ms to 30s, or 0"},
		{"stats --over=5ms " + dsn, "--over: is 5ms: want 100ms to 30s, or 0"},
		{"retry --error= " + dsn, "--error: is empty"},
		{"priority " + dsn, "priority which tasks?"},
		{"priority --all --to=40000 " + dsn, "--to: is 40000: want -32768 to 32767"},
		{"list --type= " + dsn, "--type: is empty"},
		{"discard --yes --type=upload --queue= " + dsn, "--queue: is empty"},
		{"retry --type=upload --member= " + dsn, "--member: is empty"},
	} {
		code, out, errs := command(t, nil, append([]string{"tasks"}, strings.Fields(c.args)...)...)
		if code != 1 || !strings.Contains(errs, c.want) {
			t.Errorf("tasks %s: exit code %d, %q, want %q", c.args, code, errs, c.want)
		}
		if strings.Contains(out+errs, "s3cret") {
			t.Errorf("tasks %s: printed the secret", c.args)
		}
	}
}

// Which tasks were meant once must not decide about later ones.
func TestTasksAreNotChosenByTheEnvironment(t *testing.T) {
	t.Parallel()
	environ := []string{"ACTIVITYD_ALL=true", "ACTIVITYD_TYPE=upload", "ACTIVITYD_STATE=nonsense", "ACTIVITYD_YES=true"}
	if code, _, errs := command(t, environ, "tasks", "discard", "--yes", dsn); code != 1 || !strings.Contains(errs, "discard which tasks?") {
		t.Errorf("exit code %d, %q", code, errs)
	}
}

func TestTasksHelp(t *testing.T) {
	t.Parallel()
	if out := succeed(t, "tasks"); !strings.Contains(out, "activityd tasks list --state dead") {
		t.Errorf("printed %q", out)
	}
	for _, cmd := range newTasks().Commands() {
		help := succeed(t, "tasks", cmd.Name(), "--help")
		if !strings.Contains(help, "Examples:\n  activityd tasks "+cmd.Name()) {
			t.Errorf("the help of %s has no example", cmd.Name())
		}
	}
}
