package settings

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// Group is a part of the settings, under a heading.
type Group struct {
	Title string
	Flags *pflag.FlagSet
}

// NewGroup returns a group of the settings that the functions register, in their order.
func NewGroup(title string, register ...func(*pflag.FlagSet)) Group {
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.SortFlags = false
	for _, add := range register {
		add(flags)
	}
	return Group{title, flags}
}

// Each calls a function with each setting that operators know.
func (g Group) Each(visit func(f *pflag.Flag)) {
	g.Flags.VisitAll(func(f *pflag.Flag) {
		if _, hidden := f.Annotations[forTests]; !hidden {
			visit(f)
		}
	})
}

// Example returns the groups in the form of the file, as comments with their defaults.
func Example(intro string, groups []Group) string {
	var text strings.Builder
	text.WriteString(intro)
	for _, g := range groups {
		fmt.Fprintf(&text, "\n\n## %s\n", g.Title)
		g.Each(func(f *pflag.Flag) {
			text.WriteString("\n")
			_, usage := pflag.UnquoteUsage(f)
			if bounds := Bounds(f); bounds != "" {
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
