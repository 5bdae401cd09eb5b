package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
)

// textTable aligns columns. It may be flushed in between, to write any number of
// rows with little memory: columns keep their width then, or grow.
type textTable struct {
	w      io.Writer
	widths []int
	rows   [][]string
	width  int // of the terminal; 0: there is none
}

// How long the last column may be.
const (
	leastLast = 24 // on a narrow terminal
	mostLast  = 80 // where there is no terminal
)

// newTextTable returns a table that fits on w if that is a terminal.
func newTextTable(w io.Writer, header ...string) *textTable {
	t := &textTable{w: w, widths: make([]int, len(header))}
	if tty := terminal(w); tty != nil {
		if width, _, err := term.GetSize(int(tty.Fd())); err == nil {
			t.width = width
		}
	}
	t.add(header...)
	return t
}

// add appends a row, which has as many cells as the header.
func (t *textTable) add(cells ...string) {
	t.rows = append(t.rows, cells)
	for i, cell := range cells {
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
	}
}

// flush writes the rows that were added since the last one.
func (t *textTable) flush() error {
	var text strings.Builder
	most := t.lastWidth()
	for _, row := range t.rows {
		var line strings.Builder
		last := len(row) - 1
		for i, cell := range row[:last] {
			fmt.Fprintf(&line, "%-*s  ", t.widths[i], cell)
		}
		line.WriteString(shortened(row[last], most))
		text.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	t.rows = t.rows[:0]
	_, err := io.WriteString(t.w, text.String())
	return err
}

func (t *textTable) lastWidth() int {
	if t.width == 0 {
		return mostLast
	}
	left := t.width
	for _, width := range t.widths[:len(t.widths)-1] {
		left -= width + 2
	}
	return max(left, leastLast)
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
