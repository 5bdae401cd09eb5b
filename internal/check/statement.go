package check

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Statement is a site's own statement. Its first column is the id of a photo that a viewer is shown.
type Statement struct {
	text  string   // with a question mark for each placeholder
	names []string // of the placeholders, in order
}

// The placeholders.
const (
	viewerName = ":viewer"
	limitName  = ":limit"
)

// token is a string, a quoted name, a comment, a placeholder, a word, or any character.
var token = regexp.MustCompile(`(?s)'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|` + "`[^`]*`" + `|#[^\n]*|--(?:\n|$|[\x00-\x20\x7f][^\n]*)|/\*.*?\*/|:?\w+|.`)

// refusals are tokens that a statement must not have. A transaction that is read-only refuses other writes.
var refusals = []struct {
	token *regexp.Regexp
	why   string
}{
	{regexp.MustCompile(`^(\?|:\w.*)$`), "is no placeholder: want :viewer and :limit"},
	{regexp.MustCompile(`^;$`), "is not at the end: want one statement"},
	{regexp.MustCompile("^['\"`]$"), "is not closed"},
	{regexp.MustCompile(`(?is)^/\*(M?!|\+.*(max_execution_time|set_var))`), "is a comment that servers obey: leave it out"},
	{regexp.MustCompile(`(?i)^(into|update|share|lock|get_lock|nextval)$`), "locks or writes: if it is a name, quote it with backticks"},
}

var startsRead = regexp.MustCompile(`(?i)^[\s(]*(select|with)\b`)

// ParseStatement reads a statement: one SELECT with the placeholders :viewer, at least once, and :limit.
func ParseStatement(text string) (s Statement, err error) {
	text = strings.TrimRight(text, "; \t\r\n")
	if !startsRead.MatchString(text) {
		return s, fmt.Errorf("begins with %.20q: want a SELECT", text)
	}
	s.text = token.ReplaceAllStringFunc(text, func(t string) string {
		if t == viewerName || t == limitName {
			s.names = append(s.names, t)
			return "?"
		}
		for _, r := range refusals {
			if r.token.MatchString(t) {
				err = errors.Join(err, fmt.Errorf("%.40s %s", t, r.why))
			}
		}
		return t
	})
	if err == nil && !slices.Contains(s.names, viewerName) {
		err = errors.New("has no :viewer: want :viewer, without quotes, where the id of the member belongs")
	}
	return s, err
}
