package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Group is a part of the settings, under a heading.
type Group struct {
	Title string
	Text  string // Markdown, between the heading and the table
	Flags *pflag.FlagSet
}

// each calls a function with each setting, in the order in which they were declared.
func (g Group) each(visit func(f *pflag.Flag)) {
	g.Flags.SortFlags = false
	g.Flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden && HasFlag(f) {
			return // for tests
		}
		visit(f)
	})
}

// Page returns the groups in Markdown.
func Page(intro string, groups []Group) string {
	var text strings.Builder
	text.WriteString(intro)
	for _, g := range groups {
		fmt.Fprintf(&text, "\n## %s\n\n", g.Title)
		if g.Text != "" {
			text.WriteString(g.Text + "\n\n")
		}
		text.WriteString("| setting | flag | default | bounds, unit | meaning |\n|---|---|---|---|---|\n")
		g.each(func(f *pflag.Flag) {
			flag := ""
			if HasFlag(f) {
				flag = code("--" + f.Name)
			}
			row := []string{code(Variable(f.Name)), flag, code(f.DefValue), boundsOf(f), f.Usage}
			for i, cell := range row {
				row[i] = strings.ReplaceAll(cell, "|", `\|`)
			}
			fmt.Fprintf(&text, "| %s |\n", strings.Join(row, " | "))
		})
	}
	return text.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// Example returns the groups in the form of the file, as comments with their defaults.
func Example(intro string, groups []Group) string {
	var text strings.Builder
	text.WriteString(intro)
	for _, g := range groups {
		fmt.Fprintf(&text, "\n\n## %s\n", g.Title)
		g.each(func(f *pflag.Flag) {
			text.WriteString("\n")
			_, usage := pflag.UnquoteUsage(f)
			if bounds := boundsOf(f); bounds != "" {
				usage += " (" + bounds + ")"
			}
			for _, line := range wrapped(usage, 96) {
				fmt.Fprintf(&text, "# %s\n", line)
			}
			fmt.Fprintf(&text, "#%s='%s'\n", Variable(f.Name), f.DefValue)
		})
	}
	return text.String()
}

// wrapped returns the words of a text in lines of at most width bytes, if the words are not
// longer.
func wrapped(text string, width int) []string {
	var lines []string
	for word := range strings.FieldsSeq(text) {
		if n := len(lines); n > 0 && len(lines[n-1])+1+len(word) <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
