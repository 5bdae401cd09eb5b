package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

var write = flag.Bool("write", false, "write docs/commands.md and docs/settings.md")

const (
	commandsHead = `# Commands

` + "`activityd COMMAND --help`" + ` says all about each, and has its flags. A command that needs a [setting](settings.md) takes it as ` + "`serve`" + ` does.

| command | does | more |
|---|---|---|
`
	commandsFoot = `
To have your shell complete commands and flags:

` + "```sh" + `
activityd completion bash > /etc/bash_completion.d/activityd      # needs the package bash-completion
activityd completion zsh  > "${fpath[1]}/_activityd"
activityd completion fish > ~/.config/fish/completions/activityd.fish
` + "```" + `

This page is written from the code by ` + "`make pages`" + `.
`
)

// morePages are the sections about commands.
var morePages = map[string]string{
	"activityd backfill":  "[Build all sets](operate.md#build-all-sets)",
	"activityd enqueue":   "[The command line](setup.md#the-command-line)",
	"activityd explain":   "[A photo is not shown](operate.md#a-photo-is-not-shown)",
	"activityd once":      "[Once](once.md)",
	"activityd push":      "[Push](push.md)",
	"activityd push show": "[Push by hand](operate.md#push)",
	"activityd reset":     "[Rebuild](operate.md#rebuild)",
	"activityd schema":    "[Your own site](setup.md), [Upgrade](deploy.md#upgrade)",
	"activityd serve":     "[Deploy](deploy.md), [settings](settings.md)",
	"activityd tasks":     "[Tasks](operate.md#tasks)",
	"activityd token":     "[Tokens](deploy.md#tokens), [viewer tokens](page.md#viewer-tokens)",
	"activityd broadcast": "[Broadcast members](deploy.md#broadcast-members)",
	"activityd verify":    "[Verify](operate.md#verify)",
}

func TestThePageOfCommands(t *testing.T) {
	t.Parallel()
	wantPage(t, "../../docs/commands.md", commandsPage())
}

// wantPage wants a page of the documentation to be what the code says. "make pages" writes it.
func wantPage(t *testing.T, file, text string) {
	t.Helper()
	if strings.Count(text, "\n| `") < 20 {
		t.Errorf("the page is short:\n%s", text)
	}
	if *write {
		must(t, os.WriteFile(file, []byte(text), 0o644))
	}
	page, err := os.ReadFile(file)
	must(t, err)
	if diff := cmp.Diff(text, string(page)); diff != "" {
		t.Errorf("%s is not what the code says (-code +page); run \"make pages\":\n%s", file, diff)
	}
}

// commandsPage returns the page of all commands.
func commandsPage() string {
	var page strings.Builder
	page.WriteString(commandsHead)
	var list func(cmd *cobra.Command)
	list = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if !sub.IsAvailableCommand() {
				continue
			}
			use := strings.ReplaceAll(strings.TrimSuffix(sub.UseLine(), " [flags]"), "|", `\|`)
			fmt.Fprintf(&page, "| `%s` | %s | %s |\n", use, sub.Short, morePages[sub.CommandPath()])
			list(sub)
		}
	}
	list(newRoot(nil, io.Discard, io.Discard))
	page.WriteString(commandsFoot)
	return strings.ReplaceAll(page.String(), "  |", " |")
}
