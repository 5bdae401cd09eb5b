package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
)

func TestThePageOfSettings(t *testing.T) {
	t.Parallel()
	wantPage(t, "../../docs/settings.md", settingsPage())
}

// settingsPage returns the page of all settings.
func settingsPage() string {
	var page strings.Builder
	page.WriteString(settingsHead)
	code := func(text string) string { return strings.ReplaceAll("`"+text+"`", "``", "") }
	for _, g := range new(config).groups() {
		fmt.Fprintf(&page, "\n## %s\n\n", g.Title)
		if text := settingsTexts[g.Title]; text != "" {
			page.WriteString(text + "\n\n")
		}
		page.WriteString("| setting | flag | default | bounds, unit | meaning |\n|---|---|---|---|---|\n")
		g.Each(func(f *pflag.Flag) {
			name := ""
			if settings.HasFlag(f) {
				name = code("--" + f.Name)
			}
			fmt.Fprintf(&page, "| %s | %s | %s | %s | %s |\n", code(settings.Variable(f.Name)), name, code(f.DefValue),
				strings.ReplaceAll(settings.Bounds(f), "|", ", "), f.Usage)
		})
	}
	page.WriteString("\nThis page is written from the code by `make pages`.\n")
	return strings.ReplaceAll(page.String(), "  |", " |")
}

const settingsHead = `# Settings

A setting has one name everywhere: ` + "`ACTIVITYD_NEED`" + `. Its value comes from the first of these that has it:

1. its flag, if it has one: ` + "`activityd serve --need 20`" + `;
2. the environment: ` + "`ACTIVITYD_NEED=20 activityd serve`" + `;
3. the file that ` + "`--config FILE` or `ACTIVITYD_CONFIG`" + ` names;
4. its default.

That is so for all commands: each takes the settings that it needs. Packages bring the file ` + "`/etc/activityd/environment`" + `.
It has the form that systemd's ` + "`EnvironmentFile=`" + ` and shells read, too:

` + "```sh" + `
# The site's database, and sets for its active members only.
ACTIVITYD_MYSQL_DSN='activityd:secret@tcp(10.0.0.5:3306)/site'
ACTIVITYD_MATERIALIZE=active
` + "```" + `

- Put a value in single quotes if it has other characters than letters, digits and ` + "`:/.,=@_-`" + `. Without quotes activityd reads
  it as systemd does, and a shell may not: ` + "`$`, `&` and `(`" + ` mean something there. Blanks, quotes and backslashes without
  quotes around them are refused. A comment has a line of its own.
- A name in the file that is no setting, and a value out of bounds, are refused at the start. Passwords are never printed.
- To change a setting, restart the process. Only the files of tokens, certificates and keys are read again.
- A user who can read the file has the database's password: give it to the service's group alone.

What is not here is a constant. A duration is as in ` + "`90s`, `10m` or `1h30m`" + `.
`

// settingsTexts stand under the headings. The file that registers a setting explains it.
var settingsTexts = map[string]string{
	"Servers": `A login that MySQL refuses is waited for, as it may be granted later. A DSN may name a socket,
` + "`user:password@unix(/socket)/name`" + `, and have parameters; one that contradicts [the session](setup.md#mysql) is refused. What
an address of Redis may be is in [setup.md](setup.md#redis), [what shares the connections](why.md#who-yields-to-whom) in
architecture.`,
	"The API": `On an address that other machines reach, tokens are needed; see [deploy.md#security](deploy.md#security). Two processes on one machine
need two addresses for metrics, too.`,
	"Tokens of viewers": `See [page.md#viewer-tokens](page.md#viewer-tokens). Give all processes with the role ` + "`api`" + ` the same.`,
	"The index": `Give all processes and commands the same ` + "`ACTIVITYD_NEED` and `ACTIVITYD_MATERIALIZE`" + `. A process with
other numbers than the sets were built with refuses to start, until ` + "`activityd reset`" + ` deletes the sets and they are built again.
With ` + "`ACTIVITYD_MATERIALIZE=active`" + ` a set is deleted 30 days after its last read or refill. The larger a set is, the fewer
reads walk, and the more memory and time each costs; with the settings of Redis as they are by default, keep need below 107: a larger set takes ten times the memory.`,
	"Push": `[Keys](push.md#keys) says where to get them. Of the settings of a platform, the first one switches it on; the devices of others are
kept and not sent to. Only processes with workers read the keys and send. **Give all of them the same ones**: any process may take a
delivery, and one without the keys puts it off, until one takes it that has them. If none did, it is skipped as ` + "`off`" + ` when its
event expires. To send from some hosts alone, give the others ` + "`ACTIVITYD_WORKERS=push=0,push_deliver=0,push_urgent=0`" + `.

All processes need ` + "`ACTIVITYD_WEBPUSH_HOSTS`" + `, as the API checks subscriptions by it, too.`,
}
