package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/spf13/pflag"

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
	if _, err := io.WriteString(e.w, escaped(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// escaped returns a text with each character that a terminal obeys or does not
// show, lines and tabs apart, as \u and its number in UTF-16. In JSON, where
// such characters are part of strings only, it changes no value.
func escaped(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, isHidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !isHidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// isHidden reports whether a character is escaped: controls (C0, DEL, C1), formats
// such as bidi overrides and zero-width joiners, odd spaces, unassigned characters,
// fillers and variation selectors.
func isHidden(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// oneLine returns a text as one line, and escaped, so that its length is known.
func oneLine(s string) string {
	return strings.Join(strings.Fields(escaped(s)), " ")
}

// shortened returns at most n characters of s.
func shortened(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// shortDuration returns a duration in two units, as in "3m12s" or "5d3h".
func shortDuration(d time.Duration) string {
	const day = 24 * time.Hour
	d = max(d, 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", d/time.Minute, d%time.Minute/time.Second)
	case d < day:
		return fmt.Sprintf("%dh%02dm", d/time.Hour, d%time.Hour/time.Minute)
	}
	return fmt.Sprintf("%dd%02dh", d/day, d%day/time.Hour)
}

// stamp returns a time as RFC 3339 in UTC with milliseconds; empty for the zero time.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
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
