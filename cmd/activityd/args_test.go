package main

import (
	"os"
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
		"tasks nonsense":       `"nonsense" is no command of activityd tasks: want discard, list, pause, resume, retry, show or stats`,
		"help nosuch":          `"nosuch" is no command of activityd: want backfill, completion, demo, enqueue, explain, reset, schema, serve, show, tasks, token, verify or version`,
		"help tasks lst":       `"lst" is no command of activityd tasks: is list meant? activityd tasks --help lists all`,
		"help show 5":          `"5" is no command: activityd show has none`,
		"completion nosuch":    `"nosuch" is no command of activityd completion: want bash, fish, powershell or zsh`,
		"tasks pause ''":       "tasks pause: argument 1 is empty: want activityd tasks pause QUEUE [flags]; activityd tasks pause --help tells more",
		"enqueue upload ''":    "enqueue: argument 2 is empty: want activityd enqueue {TYPE USER [CONTACT] | -} [flags]; activityd enqueue --help tells more",
		"''":                   `"" is no command of activityd: want backfill, completion, demo, enqueue, explain, reset, schema, serve, show, tasks, token, verify or version`,
		"show --nonsense":      "show: unknown flag: --nonsense; activityd show --help lists the flags",
		"explain 1 --limit x":  `explain: --limit: is "x": want a whole number; activityd explain --help lists the flags`,
		"serve --grace 5":      `serve: --grace: is "5": want a duration, as in 1m30s; activityd serve --help lists the flags`,
		"verify --answers few": `verify: --answers: is "few": want a number; activityd verify --help lists the flags`,
		"--nonsense":           "unknown flag: --nonsense; activityd --help lists the flags",
	} {
		words := strings.Fields(args)
		for i := range words {
			words[i] = strings.Trim(words[i], "'")
		}
		code, out, errs := command(t, nil, words...)
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

// help tells what --help does.
func TestHelpTellsOfCommands(t *testing.T) {
	t.Parallel()
	for _, about := range []string{"", "serve", "tasks", "tasks pause", "completion bash", "help"} {
		words := strings.Fields(about)
		if got, want := succeed(t, append([]string{"help"}, words...)...), succeed(t, append(words, "--help")...); got != want {
			t.Errorf("help %s prints %q, want %q", about, got, want)
		}
	}
}

func TestVersionAsAFlag(t *testing.T) {
	t.Parallel()
	want := succeed(t, "version")
	for _, flag := range []string{"--version", "-v"} {
		if got := succeed(t, flag); got != want || !strings.HasPrefix(got, "activityd ") {
			t.Errorf("%s prints %q, version prints %q", flag, got, want)
		}
	}
	if got := succeed(t); strings.Contains(got, "[ACTIVITYD_VERSION]") {
		t.Error("the version is no setting")
	}
}

// The order of a map would change from run to run.
func TestTheDefaultOfWorkersIsToldInOneOrder(t *testing.T) {
	t.Parallel()
	const want = "(default default=2,fan_out=2,refill=2)"
	for range 10 {
		if help := succeed(t, "serve", "--help"); !strings.Contains(help, want) || strings.Contains(help, "stringToInt") {
			t.Fatalf("no %q in %s", want, help)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	must(t, err)
	if !strings.Contains(string(readme), "| `--workers` | `ACTIVITYD_WORKERS` | `default=2,fan_out=2,refill=2` |") {
		t.Error("the README tells another one")
	}
}

// Shells ask "activityd __complete", with the word that is begun as the last one.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const files, words = ":0", ":4" // whether the shell shall add files
	types, states, queues := "add_contact remove_contact upload fan_out refill ", "waiting scheduled running dead done ", "default fan_out refill "
	for line, want := range map[string]string{
		"serve --role |":                    "all api workers " + words,
		"serve --role=w|":                   "all api workers " + words,
		"serve --log-level |":               "debug info warn error " + words,
		"serve --log-format |":              "text json " + words,
		"serve --materialize |":             "all active " + words,
		"demo --materialize |":              "all active " + words,
		"serve --mysql-dsn |":               words,
		"serve --tls-key |":                 files,
		"serve --token-file |":              files,
		"serve |":                           words,
		"backfill --resume |":               files,
		"verify --output |":                 "table json " + words,
		"verify -o |":                       "table json " + words,
		"backfill --progress |":             "auto always never " + words,
		"token --append |":                  files,
		"token --scopes read,|":             "read,read read,write read,admin " + words,
		"tasks list --type |":               types + words,
		"tasks list --state |":              states + words,
		"tasks list --state dead,|":         "dead,waiting dead,scheduled dead,running dead,dead dead,done " + words,
		"tasks retry --state |":             "dead scheduled " + words,
		"tasks discard --queue |":           queues + words,
		"tasks pause |":                     queues + words,
		"tasks resume f|":                   "fan_out " + words,
		"tasks pause fan_out |":             words,
		"tasks show |":                      words,
		"enqueue |":                         "add_contact remove_contact upload refill - " + words,
		"enqueue upload |":                  words,
		"enqueue --queue |":                 queues + words,
		"tasks p|":                          "pause " + words,
		"help tasks re|":                    "resume retry " + words,
		"completion |":                      "bash fish powershell zsh " + words,
		"show |":                            words,
		"tasks list --mysql-connections 4|": words,
	} {
		arguments := append([]string{"__completeNoDesc"}, strings.Split(strings.TrimSuffix(line, "|"), " ")...)
		out := succeed(t, arguments...)
		if got := strings.Join(strings.Fields(out), " "); got != want {
			t.Errorf("%s\n%s, want\n%s", line, got, want)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out := succeed(t, "completion", shell); !strings.Contains(out, "__complete") {
			t.Errorf("%s: %q", shell, out)
		}
	}
}
