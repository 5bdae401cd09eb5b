package main

import (
	"strings"
	"testing"
)

// Whoever calls a command in a way that cannot be is told which one it was, what is
// wrong, and how it is called.
func TestMisuseIsTold(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"show":                 "show: USER is missing: want activityd show USER [flags]; activityd show --help tells more",
		"explain 1 2":          `explain: "2" is one argument too many: want activityd explain USER [flags]; activityd explain --help tells more`,
		"serve x":              `serve: takes no arguments, and "x" is one: want activityd serve [flags]; activityd serve --help tells more`,
		"verify 1 2":           `verify: "2" is one argument too many: want activityd verify [USER | FROM-TO | --all] [flags]; activityd verify --help tells more`,
		"tasks show":           "tasks show: ID is missing: want activityd tasks show ID... [flags]; activityd tasks show --help tells more",
		"tasks retry 7":        "tasks retry: tasks are named by a flag: want activityd tasks retry --id 7",
		"shwo":                 `"shwo" is no command of activityd: is show meant? activityd --help lists all`,
		"tasks nonsense":       `"nonsense" is no command of activityd tasks: activityd tasks --help lists them`,
		"show --nonsense":      "show: unknown flag: --nonsense; activityd show --help lists the flags",
		"explain 1 --limit x":  `explain: --limit: is "x": want a whole number; activityd explain --help lists the flags`,
		"serve --grace 5":      `serve: --grace: is "5": want a duration, as in 1m30s; activityd serve --help lists the flags`,
		"verify --answers few": `verify: --answers: is "few": want a number; activityd verify --help lists the flags`,
		"--nonsense":           "unknown flag: --nonsense; activityd --help lists the flags",
	} {
		code, out, errs := command(t, nil, strings.Fields(args)...)
		if code != exitFailed || out != "" || errs != "activityd: "+want+"\n" {
			t.Errorf("%s: exit code %d, %q, %q, want %q", args, code, out, errs, want)
		}
	}
}

// By itself, the program tells how it is used.
func TestTheProgramByItself(t *testing.T) {
	t.Parallel()
	if out := succeed(t); !strings.Contains(out, "activityd [command]") || !strings.Contains(out, "  backfill ") {
		t.Errorf("printed %q", out)
	}
}

func TestTheDemoSaysNothingOfTokens(t *testing.T) {
	t.Parallel()
	if out := succeed(t, "demo", "--help"); strings.Contains(out, "token") {
		t.Errorf("there are none: %s", out)
	}
}
