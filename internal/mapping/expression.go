package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// expression is a condition or a value in SQL over the columns of a row, whose names are in backquotes.
type expression string

// aString is a literal of SQL.
const aString = `'(?:[^'\\]|''|\\.)*'`

// tokens of an expression: blanks, a string, a number, a quoted name, a word, or signs.
var tokens = regexp.MustCompile(`^(?:(\s+)|(` + aString + `)|(\d+(?:\.\d+)?\b)|` + "`[^`]+`" +
	`|([\pL_$][\pL\d_$]*)|(<=>|<>|!=|<=|>=|&&|\|\||<<|>>|[-+*/%&|^~!=<>(),]))`)

// keywords are the words that are no columns.
var keywords = words("AND OR NOT XOR IS NULL TRUE FALSE UNKNOWN IN BETWEEN LIKE REGEXP RLIKE ESCAPE DIV MOD CASE WHEN THEN ELSE END BINARY COLLATE")

// refused are the words of statements, and the functions whose values change while the row stays as it is, so that
// no trigger sees it, or depend on the user.
var refused = words("SELECT FROM WHERE INSERT UPDATE DELETE SET NEW OLD INTO UNION EXISTS INTERVAL" +
	" NOW CURDATE CURTIME CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP LOCALTIME LOCALTIMESTAMP SYSDATE UTC_DATE UTC_TIME" +
	" UTC_TIMESTAMP UNIX_TIMESTAMP FROM_UNIXTIME RAND UUID USER CURRENT_USER SESSION_USER DATABASE CONNECTION_ID LAST_INSERT_ID")

func words(list string) map[string]bool {
	set := make(map[string]bool)
	for word := range strings.FieldsSeq(list) {
		set[word] = true
	}
	return set
}

// parseExpression returns the expression of a text. Words that are neither keywords nor functions
// are columns.
func parseExpression(text string) (expression, error) {
	var e strings.Builder
	depth := 0
	for rest := text; rest != "" && depth >= 0; {
		found := tokens.FindStringSubmatch(rest)
		if found == nil {
			return "", fmt.Errorf("cannot read %q: want an expression over the columns of the table, without its name, with strings in single quotes", rest)
		}
		token, word := found[0], strings.ToUpper(found[4])
		rest = rest[len(token):]
		switch {
		case refused[word]:
			return "", fmt.Errorf("%s has no place in an expression over one row, of which a trigger sees each change;"+
				" a column of that name is `%[1]s`, with its quotes", token)
		case strings.HasPrefix(token+rest, "--"), strings.HasPrefix(token+rest, "/*"):
			return "", errors.New("has a comment: write it in a line of its own that begins with #")
		case word != "" && !keywords[word] && !strings.HasPrefix(strings.TrimLeft(rest, " "), "("):
			token = schema.Quote(token)
		case token == "(":
			depth++
		case token == ")":
			depth--
		}
		e.WriteString(token)
	}
	switch {
	case depth != 0:
		return "", errors.New("its parentheses do not match")
	case e.Len() == 0:
		return "", errors.New("is empty")
	}
	return expression(e.String()), nil
}

// columnsIn finds strings, and columns.
var columnsIn = regexp.MustCompile(aString + "|`[^`]+`")

// columns returns the columns of the expression.
func (e expression) columns() (names []string) {
	for _, found := range columnsIn.FindAllString(string(e), -1) {
		if found[0] == '`' {
			names = append(names, strings.Trim(found, "`"))
		}
	}
	return names
}

// isColumn reports whether the expression is the name of one column.
func (e expression) isColumn() bool {
	return columnsIn.FindString(string(e)) == string(e) && e[0] == '`'
}

// of returns the expression over a row: "NEW.", "OLD.", or "" for that of a statement.
func (e expression) of(row string) string {
	return columnsIn.ReplaceAllStringFunc(string(e), func(found string) string {
		if found[0] == '`' {
			return row + found
		}
		return found
	})
}
