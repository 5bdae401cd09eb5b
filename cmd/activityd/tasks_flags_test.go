package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

func TestWrongTasksFlagsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ args, want string }{
		{"list", "--mysql-dsn (ACTIVITYD_MYSQL_DSN)"},
		{"list --state=deed " + dsn, `--state: unknown state "deed": want waiting, scheduled, running, dead or done`},
		{"list --id=x " + dsn, `--id: "x" is no task id`},
		{"list --subject=0 " + dsn, "--subject: not a member id"},
		{"list --limit=-1 " + dsn, "--limit: is -1"},
		{"list --output=xml " + dsn, `--output (ACTIVITYD_OUTPUT): is "xml"`},
		{"list 5 " + dsn, `takes no arguments, and "5" is one`},
		{"show " + dsn, "tasks show: ID is missing"},
		{"show five " + dsn, `ID: "five" is no task id`},
		{"retry " + dsn, "retry which tasks? Name them by --id, --type, --queue or --subject, or say --all"},
		{"retry --state=dead " + dsn, "retry which tasks?"},
		{"retry --all --state=deed " + dsn, `--state: unknown state "deed": want dead or scheduled`},
		{"retry --all --state=waiting " + dsn, "cannot be done to waiting tasks: want dead or scheduled"},
		{"retry --all --progress=maybe " + dsn, "--progress (ACTIVITYD_PROGRESS)"},
		{"retry --all --yes " + dsn, "unknown flag: --yes"},
		{"discard --yes " + dsn, "discard which tasks?"},
		{"discard --type=upload " + dsn, "repeat with --yes"},
		{"pause " + dsn, "tasks pause: QUEUE is missing"},
		{"resume a b " + dsn, `tasks resume: "b" is one argument too many`},
		{"retry 5 7-9 " + dsn, "want activityd tasks retry --id 5,7-9"},
		{"discard five " + dsn, `takes no arguments, and "five" is one`},
		{"stats --watch=5ms " + dsn, "--watch: is 5ms: want at least 100ms"},
		{"list --type= " + dsn, "--type: is empty"},
		{"discard --yes --type=upload --queue= " + dsn, "--queue: is empty"},
		{"retry --id=5 --state= --subject= " + dsn, "--state: is empty\n--subject: is empty"},
		{"nonsense", `"nonsense" is no command of activityd tasks`},
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

func TestAllWrongTasksFlagsAreToldAtOnce(t *testing.T) {
	t.Parallel()
	_, _, errs := command(t, nil, "tasks", "list", "--state=x", "--id=x", "--output=x", "--limit=-1")
	for _, flag := range []string{"--state", "--id", "--output", "--limit", "--mysql-dsn"} {
		if !strings.Contains(errs, flag) {
			t.Errorf("%q does not name %s", errs, flag)
		}
	}
}

// Which tasks were meant once must not decide about later ones.
func TestTasksAreNotChosenByTheEnvironment(t *testing.T) {
	t.Parallel()
	environ := []string{"ACTIVITYD_ALL=true", "ACTIVITYD_TYPE=upload", "ACTIVITYD_ID=5", "ACTIVITYD_STATE=nonsense", "ACTIVITYD_YES=true"}
	if code, _, errs := command(t, environ, "tasks", "discard", dsn); code != 1 || !strings.Contains(errs, "discard which tasks?") {
		t.Errorf("exit code %d, %q", code, errs)
	}
	if code, _, errs := command(t, []string{"ACTIVITYD_OUTPUT=nonsense", "ACTIVITYD_MYSQL_DSN=" + dsn}, "tasks", "list"); code != 1 || !strings.Contains(errs, "ACTIVITYD_OUTPUT") {
		t.Errorf("settings do come from it: exit code %d, %q", code, errs)
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
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if named := strings.Contains(help, "["+environmentName(f.Name)+"]"); named == isDeed(f) {
				t.Errorf("%s --help: names the variable of --%s: %v", cmd.Name(), f.Name, named)
			}
		})
	}
}
