package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/settings"
)

// The choices of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

const outputHelp = "\n\nWith --output=json every object is one line; ids are strings, times are RFC 3339 in UTC with\n" +
	"milliseconds, and fields without a value are left out."

func outputFlag(f *pflag.FlagSet, output *string) {
	f.VarP(settings.NewChoice(output, outputTable, outputJSON), "output", "o", "form of the output")
}

// newLineEncoder returns an encoder of a JSON object a line, for programs and terminals: it leaves <, > and & alone.
func newLineEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// printList writes a list as lines of JSON, or as a table.
func printList[T, J any](w io.Writer, output string, list []T, toJSON func(T) J, toTable func([]T) inspect.Table) error {
	if output != outputJSON {
		return printTable(w, toTable(list))
	}
	lines := newLineEncoder(w)
	for _, item := range list {
		if err := lines.Encode(toJSON(item)); err != nil {
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

// sheet returns a title, and below it a line for each name that has a value.
func sheet(title string, lines ...[2]string) string {
	var text strings.Builder
	text.WriteString(title + "\n")
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(&text, "  %-13s %s\n", line[0], line[1])
		}
	}
	return text.String()
}

// escaper is stdout or stderr of a command. It escapes characters that a terminal would obey: names, errors and
// arguments of tasks may come from strangers. Each Write holds whole characters.
type escaper struct{ w io.Writer }

func (e escaper) Write(text []byte) (int, error) {
	if _, err := io.WriteString(e.w, inspect.Escaped(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}
