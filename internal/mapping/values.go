package mapping

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// literals returns the strings that the expression compares each column with, as in state IN ('on', 'off').
func (e expression) literals() map[string][]string {
	found := make(map[string][]string)
	column, compares, inList := "", false, false
	for _, t := range e.tokens {
		switch word := strings.ToUpper(strings.TrimSpace(t.text)); {
		case t.column:
			column, compares, inList = t.text, false, false
		case word == "=", word == "<=>", word == "<>", word == "!=":
			compares = true
		case word == "IN":
			compares, inList = true, true
		case word == "", word == "NOT", inList && (word == "(" || word == ","):
		case word[0] == '\'' && column != "" && compares:
			found[column] = append(found[column], t.text)
			compares = inList
		default:
			column, inList = "", false
		}
	}
	return found
}

// unquoted returns the string of a literal of SQL.
func unquoted(literal string) string {
	text := strings.ReplaceAll(literal[1:len(literal)-1], "''", "'")
	return strings.NewReplacer(`\\`, `\`, `\'`, "'").Replace(text)
}

// values finds literals that a column cannot have: no row meets a misspelt word. A word in the place
// of a number is worse, as MySQL takes it for 0.
func (c *checker) values(s *section, key string, v value) {
	for column, literals := range v.expr.literals() {
		is := c.tables[s.table][strings.ToLower(column)]
		has := schema.Words(is["column_type"])
		for _, literal := range literals {
			text := strings.TrimRight(unquoted(literal), " ")
			if _, err := strconv.ParseFloat(text, 64); err != nil && integers[is["data_type"]] {
				c.failf(v.line, "", "%s: %s.%s is %s: MySQL takes %s for 0", key, s.table.plain(), column, is["column_type"], literal)
			}
			if has != nil && !slices.ContainsFunc(has, func(word string) bool { return strings.EqualFold(word, text) }) {
				c.add(false, c.place(v.line), "look whether it is spelt right", "%s: %s.%s is %s, which has no %s", key, s.table.plain(), column, is["column_type"], literal)
			}
		}
	}
}

// someRows is how many rows of a table a check tries conditions on.
const someRows = 100_000

// conditions finds conditions that no row meets.
func (c *checker) conditions(ctx context.Context) error {
	for _, s := range c.all() {
		for _, k := range keysOf(s.name) {
			v := s.values[k.name]
			if !k.expression || len(v.expr.columns) == 0 {
				continue
			}
			list, err := rowsOf(ctx, c.db, fmt.Sprintf("SELECT COUNT(*) AS tried, COALESCE(SUM(met), 0) AS met FROM (SELECT %s AS met FROM %s LIMIT %d) AS some", isTrue(v.expr.of("")), s.table, someRows))
			if err != nil {
				return err
			}
			if tried := list[0]["tried"]; tried != "0" && list[0]["met"] == "0" {
				c.add(false, c.place(v.line), "look whether it is spelt right", "%s: of %s rows of %s none meets %s", k.name, tried, s.table.plain(), v.text)
			}
		}
	}
	return nil
}
