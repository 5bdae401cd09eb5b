package mapping

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// comparison is a part of a condition, between two connectives, in which one column is compared with literals.
type comparison struct {
	column   string
	literals []string
}

var (
	connectives = words("AND OR XOR && || CASE WHEN THEN ELSE END")
	comparing   = words("= <=> <> != IN NOT ( ) ,")
)

// comparisons returns the parts of an expression that are such.
func (e expression) comparisons() (list []comparison) {
	var c comparison
	plain := true
	end := func() {
		if plain && c.column != "" {
			list = append(list, c)
		}
		c, plain = comparison{}, true
	}
	for _, t := range e.tokens {
		word := strings.ToUpper(strings.TrimSpace(t.text))
		switch {
		case t.column:
			plain = plain && c.column == ""
			c.column = t.text
		case connectives[word]:
			end()
		case word != "" && (word[0] == '\'' || '0' <= word[0] && word[0] <= '9'):
			c.literals = append(c.literals, t.text)
		case word != "" && !comparing[word]:
			plain = false
		}
	}
	end()
	return list
}

// unquoted returns the string of a literal of SQL; isString is false for a number.
func unquoted(literal string) (text string, isString bool) {
	if literal[0] != '\'' {
		return literal, false
	}
	text = strings.ReplaceAll(literal[1:len(literal)-1], "''", "'")
	return strings.NewReplacer(`\\`, `\`, `\'`, "'").Replace(text), true
}

// values finds literals that a column cannot have: no row meets a misspelt word. A word in the place
// of a number is worse, as MySQL takes it for 0.
func (f *fitter) values(s *section, key string, v value) {
	for _, c := range v.expr.comparisons() {
		is := f.tables[s.table][strings.ToLower(c.column)]
		has := schema.Words(is["column_type"])
		for _, literal := range c.literals {
			text, isString := unquoted(literal)
			number, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			switch {
			case integers[is["data_type"]] && isString && err != nil:
				f.failf(v.line, "", "%s: %s.%s is %s: MySQL takes %s for 0", key, s.table.plain(), c.column, is["column_type"], literal)
			case has == nil:
			case isString && !slices.ContainsFunc(has, func(word string) bool { return strings.EqualFold(word, strings.TrimRight(text, " ")) }),
				!isString && (number < 1 || int(number) > len(has)):
				f.warnf(v.line, "%s: %s.%s is %s, which has no %s", key, s.table.plain(), c.column, is["column_type"], literal)
			}
		}
	}
	if key == "visibility" {
		for _, word := range schema.Words(f.tables[s.table][strings.ToLower(v.expr.columns[0])]["column_type"]) {
			if word != "private" && !slices.Contains(classes, word) {
				f.warnf(v.line, "visibility: nobody sees the photos of %s, which is none of activityd's words", word)
			}
		}
	}
}

// someRows is how many rows of a table a check tries conditions on.
const someRows = 100_000

// conditions finds those that no row meets.
func (c *checker) conditions(ctx context.Context) error {
	for _, s := range c.all() {
		var keys []string
		var tried, sums []string
		for _, k := range keysOf(s.name) {
			if v := s.values[k.name]; k.form == anExpression && len(v.expr.columns) > 0 {
				name := fmt.Sprintf("c%d", len(keys))
				keys, tried, sums = append(keys, k.name), append(tried, isTrue(v.expr.of(""))+" AS "+name), append(sums, "SUM("+name+") AS "+name)
			}
		}
		if len(keys) == 0 {
			continue
		}
		list, err := rowsOf(ctx, c.db, fmt.Sprintf("SELECT COUNT(*) AS tried, %s FROM (SELECT %s FROM %s LIMIT %d) AS some", strings.Join(sums, ", "), strings.Join(tried, ", "), s.table, someRows))
		if err != nil {
			return err
		}
		for i, key := range keys {
			if v := s.values[key]; list[0]["tried"] != "0" && list[0][fmt.Sprintf("c%d", i)] == "0" {
				c.add(false, fmt.Sprintf("%s:%d", c.file, v.line), "look whether it is spelt right", "%s: of %s rows of %s none meets %s", key, list[0]["tried"], s.table.plain(), v.text)
			}
		}
	}
	return nil
}
