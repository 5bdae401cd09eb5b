package main

import (
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/testing/servertest"
)

// A malformed command fails, and its error names the mistake.
func TestMisuseFails(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"show":                 "accepts 1 arg(s), received 0; want activityd show MEMBER",
		"explain 1 2":          "accepts 1 arg(s), received 2",
		"serve x":              `unknown command "x" for "activityd serve"`,
		"verify 1 2":           "accepts at most 1 arg(s), received 2",
		"shwo":                 "Did you mean this?\n\tshow",
		"tasks nonsense":       `unknown command "nonsense" for "activityd tasks"; see activityd tasks --help`,
		"tasks pause ''":       `queue "": want 1 to 32 bytes`,
		"tasks list ''":        `"" is no task id`,
		"enqueue upload ''":    "MEMBER: not a member id",
		"show --nonsense":      "unknown flag: --nonsense",
		"serve --walks 3":      "unknown flag: --walks",
		"serve --grace 5":      `invalid argument "5" for "--grace" flag`,
		"verify --answers few": `invalid argument "few" for "--answers" flag`,
	} {
		words := strings.Fields(args)
		for i := range words {
			words[i] = strings.Trim(words[i], "'")
		}
		environ := []string{"ACTIVITYD_MYSQL_DSN=" + servertest.MySQLDSN(t)}
		code, out, errs := command(t, environ, words...)
		if code != exitFailed || out != "" || !strings.HasPrefix(errs, "activityd: ") || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %q, %q, want %q", args, code, out, errs, want)
		}
	}
}

// By itself, the program tells how it is used.
func TestTheProgramByItself(t *testing.T) {
	t.Parallel()
	if out := succeed(t, "--help"); !strings.Contains(out, "activityd [command]") || !strings.Contains(out, "  backfill ") {
		t.Errorf("printed %q", out)
	}
}

func TestVersionAsAFlag(t *testing.T) {
	t.Parallel()
	if got := succeed(t, "--version"); got != version()+"\n" || succeed(t, "-v") != got {
		t.Errorf("it prints %q", got)
	}
}

// The order of a map would change from run to run.
func TestTheDefaultOfWorkersIsToldInOneOrder(t *testing.T) {
	t.Parallel()
	const want = "(default default=2,fan_out=2,fan_out_again=1,refill=2,backfill=3,check=1,push=32,push_deliver=32,push_urgent=8)"
	for range 10 {
		if help := succeed(t, "serve", "--help"); !strings.Contains(help, want) || strings.Contains(help, "stringToInt") {
			t.Fatalf("no %q in %s", want, help)
		}
	}
}

// Shells ask "activityd __complete", with the unfinished word as the last word.
func TestCompletion(t *testing.T) {
	t.Parallel()
	const files, words = ":0", ":4" // whether the shell shall add files
	types, states, queues := "add_contact remove_contact upload fan_out fan_out_again broadcast broadcast_look refill refill_range check_range notify target deliver burst ", "waiting scheduled running dead ", "default fan_out fan_out_again refill backfill check push push_deliver push_urgent "
	for line, want := range map[string]string{
		"serve --role |":          "all api workers " + words,
		"serve --log-format |":    "text json " + words,
		"serve --mysql-dsn |":     words,
		"verify -o |":             "table json " + words,
		"token --append |":        files,
		"token --scopes |":        "read write admin inspect work " + words,
		"tasks list --type |":     types + words,
		"tasks list --state |":    states + words,
		"tasks discard --queue |": queues + words,
		"tasks pause |":           queues + words,
		"enqueue |":               "add_contact remove_contact upload refill notify - " + words,
		"enqueue --queue |":       queues + words,
		"push |":                  "keys show " + words,
		"push keys |":             files,
		"serve --config |":        files,
		"once |":                  "forget show " + words,
		"once --store |":          "mysql redis " + words,
		"once digest -- |":        files,
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
