package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/inspect"
)

func jsonFlag(f *pflag.FlagSet, asJSON *bool) {
	f.BoolVar(asJSON, "json", false, "a JSON object a line: ids are strings, times are RFC 3339, and what has no value is left out")
}

// printJSON writes objects as lines, for programs and terminals: it leaves <, > and & alone.
func printJSON(w io.Writer, objects ...any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, o := range objects {
		if err := e.Encode(o); err != nil {
			return err
		}
	}
	return nil
}

// printTable writes a table, and its head if there is a head.
func printTable(w io.Writer, t inspect.Table) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	if len(t.Head) > 0 {
		t.Rows = append([][]string{t.Head}, t.Rows...)
	}
	for _, row := range t.Rows {
		fmt.Fprintln(table, strings.Join(row, "\t")) // Flush returns the error
	}
	return table.Flush()
}

// printSheet writes a title, and below it a line for each name that has a value.
func printSheet(w io.Writer, title string, lines [][2]string) error {
	var text strings.Builder
	text.WriteString(title + "\n")
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(&text, "  %-13s %s\n", line[0], line[1])
		}
	}
	_, err := io.WriteString(w, text.String())
	return err
}

// sayf prints a line, and ignores a failed write.
func sayf(out io.Writer, format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }

// escaper is stdout or stderr of a command. It escapes characters that a terminal would obey: names, errors and
// arguments of tasks may come from strangers. Each Write holds whole characters.
type escaper struct{ w io.Writer }

func (e escaper) Write(text []byte) (int, error) {
	if _, err := io.WriteString(e.w, inspect.Escaped(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
