// Package inspect has the facts that people see of queues, tasks, events and names of once, in
// words. The commands print them, and the page for operators shows them; neither has a copy of its own.
package inspect

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Table has a row of cells for each thing, below the names of the columns.
type Table struct {
	Head []string
	Rows [][]string
}

// Escaped returns a text with each character that a terminal obeys or does not
// show, lines and tabs apart, as \u and its number in UTF-16. In JSON, where
// hidden characters are part of strings only, it changes no value.
func Escaped(text string) string {
	if utf8.ValidString(text) && strings.IndexFunc(text, IsHidden) < 0 {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if !IsHidden(r) {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}
	return b.String()
}

// IsHidden reports whether a character is escaped: controls (C0, DEL, C1), formats
// like bidi overrides and zero-width joiners, odd spaces, unassigned characters,
// fillers and variation selectors.
func IsHidden(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// OneLine returns a text as a single line, and escaped, so that its length is known.
func OneLine(s string) string {
	return strings.Join(strings.Fields(Escaped(s)), " ")
}

// Shortened returns at most n characters of s.
func Shortened(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// Duration returns a duration in two units, as in "3m12s" or "5d3h".
func Duration(d time.Duration) string {
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

// Stamp returns a time as RFC 3339 in UTC with milliseconds; empty for the zero time.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
}

// Moment returns a time and how far away it is; empty for the zero time.
func Moment(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	away := Duration(now.Sub(t)) + " ago"
	if t.After(now) {
		away = "in " + Duration(t.Sub(now))
	}
	return t.UTC().Format("2006-01-02 15:04:05.000 UTC") + " (" + away + ")"
}

// Date returns unix seconds, and the date in UTC; "never" for 0.
func Date(unix uint64) string {
	if unix == 0 {
		return "never"
	}
	return fmt.Sprintf("%d (%s)", unix, time.Unix(int64(unix), 0).UTC().Format(time.DateTime))
}
