package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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

// newLineEncoder returns an encoder of one JSON object a line. Its output is for
// programs and terminals, and not for pages.
func newLineEncoder(w io.Writer) *json.Encoder {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e
}

// newTable returns a writer that aligns the cells of its lines, which tabs separate,
// until it is flushed.
func newTable(w io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
}

// escaper is stdout or stderr of a command. What is written to it is [escaped]:
// names, errors and arguments of tasks may come from strangers. Each Write holds
// whole characters.
type escaper struct{ w io.Writer }

func (e escaper) Write(text []byte) (int, error) {
	if _, err := io.WriteString(e.w, inspect.Escaped(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// sheet returns a title and, below it, lines of a name and a value each, without those of an empty
// value.
func sheet(title string, lines ...[2]string) string {
	text := bytes.NewBufferString(title + "\n")
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(text, "  %-13s %s\n", line[0], line[1])
		}
	}
	return text.String()
}

// sayf prints a line, and ignores a failed write.
func sayf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
