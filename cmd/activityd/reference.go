package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/settings"
)

// newReference returns the hidden command for building packages.
func newReference() *cobra.Command {
	return &cobra.Command{
		Use:    "reference FOLDER",
		Short:  "Write the man pages, the shell completions and the example of /etc/activityd/environment",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			return writeReference(cmd.Root(), args[0])
		},
	}
}

const exampleHead = `# The settings of activityd. All are commented out, with their defaults. Put values in single
# quotes, so that systemd and shells read the same.`

// writeReference writes, into a folder, man/*.1, completions/* and environment.example. They
// follow from the texts of the commands alone.
func writeReference(root *cobra.Command, folder string) error {
	files := map[string]string{"environment.example": settings.Example(exampleHead, new(config).groups())}
	manPages(root, files)
	for name, write := range map[string]func(io.Writer) error{
		"activityd.bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
		"_activityd":     root.GenZshCompletion,
		"activityd.fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
	} {
		var text bytes.Buffer
		if err := write(&text); err != nil {
			return err
		}
		files["completions/"+name] = text.String()
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// manPages adds to files the pages of a command and all below it.
func manPages(cmd *cobra.Command, files map[string]string) {
	files["man/"+manName(cmd)+".1"] = manPage(cmd)
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			manPages(sub, files)
		}
	}
}

// manName is the name of the page of a command, as in "activityd-tasks-list".
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of a command, for man(7) of groff and of mandoc.
func manPage(cmd *cobra.Command) string {
	var page strings.Builder
	write := func(format string, args ...any) { fmt.Fprintf(&page, format, args...) }
	write(".TH %s 1 \"\" \"activityd %s\" \"activityd\"\n.ad l\n.nh\n", roff(strings.ToUpper(manName(cmd))), roff(versionNumber()))
	write(".SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	write(".SH SYNOPSIS\n")
	if cmd.Runnable() {
		write(".B %s\n", roff(cmd.UseLine()))
	}
	if cmd.HasAvailableSubCommands() {
		write(".PP\n.B %s\n[command]\n", roff(cmd.CommandPath()))
	}
	write(".SH DESCRIPTION\n%s", roffText(cmd.Long))
	if cmd.Long == "" {
		write("%s.\n", roff(cmd.Short))
	}
	if cmd.HasAvailableSubCommands() {
		write(".SH COMMANDS\n")
		for _, sub := range cmd.Commands() {
			if sub.IsAvailableCommand() {
				write(".TP\n.BR %s (1)\n%s\n", roff(manName(sub)), roff(sub.Short))
			}
		}
	}
	for _, group := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"OPTIONS", cmd.NonInheritedFlags()}, {"INHERITED OPTIONS", cmd.InheritedFlags()}} {
		var options strings.Builder
		group.flags.VisitAll(func(f *pflag.Flag) {
			if !f.Hidden && f.Name != "help" {
				options.WriteString(roffFlag(f))
			}
		})
		if options.Len() > 0 {
			write(".SH %s\n%s", group.title, options.String())
		}
	}
	if cmd.Example != "" {
		write(".SH EXAMPLES\n.nf\n%s.fi\n", roffLines(cmd.Example))
	}
	if cmd.HasParent() {
		write(".SH SEE ALSO\n.BR %s (1)\n", roff(manName(cmd.Parent())))
	}
	return page.String()
}

// roffFlag returns the paragraph of a flag.
func roffFlag(f *pflag.Flag) string {
	value, usage := pflag.UnquoteUsage(f)
	name := "\\fB" + roff("--"+f.Name) + "\\fP"
	if f.Shorthand != "" {
		name = "\\fB" + roff("-"+f.Shorthand) + "\\fP, " + name
	}
	if value != "" {
		name += " \\fI" + roff(value) + "\\fP"
	}
	switch f.DefValue {
	case "", "false", "[]", "0s":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	return ".TP\n" + name + "\n" + longWords.ReplaceAllString(roff(usage), `$1\:`) + "\n"
}

// longWords finds the commas of lists, as in a=1,b=2, where a line may be broken.
var longWords = regexp.MustCompile(`(=\w+,)`)

// roffText returns paragraphs, which empty lines divide. A paragraph with an indented line keeps its lines.
func roffText(text string) string {
	var page strings.Builder
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		switch {
		case strings.TrimSpace(paragraph) == "":
		case strings.HasPrefix(paragraph, " ") || strings.Contains(paragraph, "\n ") || strings.Contains(paragraph, "\n\t"):
			page.WriteString(".PP\n.nf\n" + roffLines(paragraph) + ".fi\n")
		default:
			page.WriteString(".PP\n" + roffLines(paragraph))
		}
	}
	return page.String()
}

// roffLines returns lines of text as they are.
func roffLines(text string) string {
	var page strings.Builder
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		page.WriteString(roff(strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), " ")) + "\n")
	}
	return page.String()
}

// roffEscapes keeps characters that roff gives a meaning. A hyphen is written as a minus, so that readers can search
// and copy it.
var roffEscapes = strings.NewReplacer(`\`, `\e`, "-", `\-`, "'", `\(aq`, "`", `\(ga`, "^", `\(ha`, "~", `\(ti`, "\n", " ")

// roff returns a line of text. A line that begins with a dot is no request.
func roff(text string) string {
	text = roffEscapes.Replace(text)
	if strings.HasPrefix(text, ".") {
		text = `\&` + text
	}
	return text
}
