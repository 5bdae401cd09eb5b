package schema

import "strings"

// split cuts SQL text at the semicolons that end statements: those outside
// quotes and comments. Comments are dropped, so that an apostrophe or a
// semicolon in one cannot be mistaken for SQL. Text that ends within a quote
// becomes the last statement as it stands, for the server to refuse.
//
// A line that begins with DELIMITER, between two statements, says what ends
// those that follow: so the MySQL client does it, too, for bodies of triggers,
// which hold semicolons of their own.
func split(text string) []string {
	var statements []string
	var current strings.Builder
	delimiter, lineStart := ";", true
	flush := func() {
		if s := strings.TrimSpace(current.String()); s != "" {
			statements = append(statements, s)
		}
		current.Reset()
	}
	for text != "" {
		n := tokenLen(text)
		next, line := delimiterLine(text)
		switch {
		case line > 0 && lineStart && strings.TrimSpace(current.String()) == "":
			delimiter, n = next, line
		case strings.HasPrefix(text, delimiter):
			n = len(delimiter)
			flush()
		case isComment(text):
			// A comment separates words as a space does.
			current.WriteByte(' ')
		default:
			current.WriteString(text[:n])
		}
		lineStart = text[n-1] == '\n'
		text = text[n:]
	}
	flush()
	return statements
}

// delimiterLine returns what ends statements from now on, and the length of the
// line, if text begins with one that says so.
func delimiterLine(text string) (delimiter string, length int) {
	const word = "DELIMITER"
	if len(text) < len(word) || !strings.EqualFold(text[:len(word)], word) {
		return "", 0
	}
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 2 || !strings.EqualFold(fields[0], word) {
		return "", 0
	}
	return fields[1], len(line)
}

// tokenLen is the length of the quoted text or comment that text begins with,
// and 1 for anything else.
func tokenLen(text string) int {
	switch {
	case strings.HasPrefix(text, "/*"):
		return lenWith(text, "*/")
	case isComment(text):
		// The line end is no part of it: it still separates words.
		line, _, _ := strings.Cut(text, "\n")
		return len(line)
	case strings.ContainsRune("'\"`", rune(text[0])):
		return quotedLen(text)
	}
	return 1
}

// isComment reports whether text begins a comment. MySQL takes -- for one only
// when white space, or the end, follows.
func isComment(text string) bool {
	if strings.HasPrefix(text, "#") || strings.HasPrefix(text, "/*") {
		return true
	}
	rest, dashes := strings.CutPrefix(text, "--")
	return dashes && (rest == "" || strings.ContainsRune(" \t\r\n", rune(rest[0])))
}

// lenWith is the length of text up to and with the first end, or all of it.
func lenWith(text, end string) int {
	before, _, found := strings.Cut(text, end)
	if !found {
		return len(text)
	}
	return len(before) + len(end)
}

// quotedLen is the length of the quoted text that text begins with. A doubled
// quote needs no care: it reads as two quoted texts side by side.
func quotedLen(text string) int {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return len(text)
}
