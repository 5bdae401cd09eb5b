package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"
)

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

// unescaped returns the writer below an escaper, for what is meant to move the
// cursor.
func unescaped(w io.Writer) io.Writer {
	if e, ok := w.(escaper); ok {
		return e.w
	}
	return w
}

// terminal returns the terminal on which w writes; nil if it is none.
func terminal(w io.Writer) *os.File {
	if f, ok := unescaped(w).(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
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

// isHidden tells the characters that are escaped: controls (C0, DEL, C1), formats
// such as bidi overrides and zero-width joiners, odd spaces, what has no meaning
// yet, fillers and variation selectors.
func isHidden(r rune) bool {
	return r != '\n' && r != '\t' && !unicode.IsPrint(r) ||
		unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// oneLine returns a text as one line, and escaped, so that its length is known.
func oneLine(s string) string {
	return strings.Join(strings.Fields(escaped(s)), " ")
}
