package mapping

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// expression is a condition or a value in SQL over the columns of a row.
type expression struct {
	tokens  []token
	columns []string
}

// token is a part of an expression, with the blanks before it.
type token struct {
	text   string
	column bool // text is its name, without quotes
}

// aString is a literal of SQL.
const aString = `'(?:[^'\\]|''|\\.)*'`

// tokens of an expression: blanks, a string, a number, a quoted name, a word, or signs.
var tokens = regexp.MustCompile(`^(?:(\s+)|(` + aString + `)|(\d+(?:\.\d+)?\b)|` + "`([^`]+)`" +
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
func parseExpression(text string) (e expression, err error) {
	depth := 0
	for rest := text; rest != ""; {
		found := tokens.FindStringSubmatch(rest)
		if found == nil {
			return e, fmt.Errorf("cannot read %q: want an expression over the columns of the table, without its name, with strings in single quotes", rest)
		}
		rest = rest[len(found[0]):]
		name, word := found[4], strings.ToUpper(found[5])
		switch {
		case refused[word]:
			return e, fmt.Errorf("%s has no place in an expression over one row, of which a trigger sees each change;"+
				" a column of that name is `%[1]s`, with its quotes", found[5])
		case strings.HasPrefix(found[0]+rest, "--"), strings.HasPrefix(found[0]+rest, "/*"):
			return e, errors.New("has a comment: write it in a line of its own that begins with #")
		case word != "" && !keywords[word] && !strings.HasPrefix(strings.TrimLeft(rest, " "), "("):
			name = found[5]
		case found[0] == "(":
			depth++
		case found[0] == ")":
			depth--
		}
		if depth < 0 {
			break
		}
		if name != "" && !slices.Contains(e.columns, name) {
			e.columns = append(e.columns, name)
		}
		if name != "" {
			e.tokens = append(e.tokens, token{name, true})
		} else {
			e.tokens = append(e.tokens, token{found[0], false})
		}
	}
	switch {
	case depth != 0:
		return e, errors.New("its parentheses do not match")
	case len(e.tokens) == 0:
		return e, errors.New("is empty")
	}
	return e, nil
}

// of returns the expression over a row: "NEW.", "OLD.", or "" for that of a statement.
func (e expression) of(row string) string {
	var text strings.Builder
	for _, t := range e.tokens {
		if t.column {
			text.WriteString(row + schema.Quote(t.text))
		} else {
			text.WriteString(t.text)
		}
	}
	return text.String()
}
