package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// plan is how the database answers a statement.
type plan struct {
	Operation string     `json:"operation"`
	Statement string     `json:"statement"`
	Steps     []planStep `json:"steps"`
}

// planStep is a line of EXPLAIN. Rows is the optimiser's estimate, which ignores a
// LIMIT.
type planStep struct {
	Table string `json:"table"`
	Type  string `json:"type"`
	Key   string `json:"key"`
	Rows  string `json:"rows"`
	Extra string `json:"extra"`
}

// plans explains every statement that the operations send, as the server logs
// them.
func (b *backlog) plans(ctx context.Context) (list []plan, err error) {
	for _, op := range b.operations() {
		statements, err := b.recorded(ctx, op)
		if err != nil {
			return nil, fmt.Errorf("record the statements of %s: %w", op.name, err)
		}
		for _, text := range statements {
			steps, err := b.explain(ctx, text)
			if err != nil {
				return nil, fmt.Errorf("explain %s: %w", shorten(text), err)
			}
			list = append(list, plan{op.name, shorten(text), steps})
		}
	}
	return list, nil
}

func writePlans(b *strings.Builder, list []plan) {
	if len(list) == 0 {
		return
	}
	b.WriteString("\nEXPLAIN with many waiting tasks (rows is an estimate that ignores LIMIT)\n")
	for _, p := range list {
		fmt.Fprintf(b, "\n%s: %s\n", p.Operation, p.Statement)
		for _, s := range p.Steps {
			fmt.Fprintf(b, "    table %s, type %s, key %s, rows %s, %s\n", cmp.Or(s.Table, "-"), cmp.Or(s.Type, "-"), cmp.Or(s.Key, "-"), cmp.Or(s.Rows, "-"), s.Extra)
		}
	}
}

// recorded returns the statements of an operation that read or write tables.
func (b *backlog) recorded(ctx context.Context, op operation) (list []string, err error) {
	for _, text := range []string{"SET GLOBAL log_output = 'TABLE'", "TRUNCATE TABLE mysql.general_log", "SET GLOBAL general_log = ON"} {
		if _, err := b.db.ExecContext(ctx, text); err != nil {
			return nil, err
		}
	}
	err = op.do(ctx)
	if _, offErr := b.db.ExecContext(ctx, "SET GLOBAL general_log = OFF"); err == nil {
		err = offErr
	}
	if err != nil {
		return nil, err
	}
	rows, err := b.db.QueryContext(ctx, "SELECT CONVERT(argument USING utf8mb4) FROM mysql.general_log"+
		" WHERE command_type = 'Query' AND thread_id = CONNECTION_ID() ORDER BY event_time")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		text = strings.TrimSpace(text)
		if verb, _, _ := strings.Cut(text, " "); slices.Contains([]string{"SELECT", "INSERT", "UPDATE", "DELETE"}, verb) {
			list = append(list, text)
		}
	}
	return list, rows.Err()
}

func (b *backlog) explain(ctx context.Context, text string) (steps []planStep, err error) {
	rows, err := mysql.Select(ctx, b.db, mysql.ByName, "EXPLAIN FORMAT=TRADITIONAL "+text) // the default is another one on MySQL 9
	for _, row := range rows {                                                             // MariaDB and MySQL agree on these columns, and not on the others
		steps = append(steps, planStep{row["table"], row["type"], row["key"], row["rows"], row["extra"]})
	}
	return steps, err
}

var (
	spaces   = regexp.MustCompile(`\s+`)
	clock    = regexp.MustCompile(`CAST\(UNIX_TIMESTAMP\(NOW\(3\)\) \* 1000 AS UNSIGNED\)`)
	value    = `(?:NULL|-?\d+|'[^']*')`
	tuples   = regexp.MustCompile(`(\([^()]*\)),\(.*`)
	longList = regexp.MustCompile(`\((` + value + `),` + value + `(?:,` + value + `)+\)`)
)

// shorten makes a statement readable: long lists are cut after their first value, and
// the database's clock is called now.
func shorten(text string) string {
	text = clock.ReplaceAllString(spaces.ReplaceAllString(text, " "), "now")
	text = longList.ReplaceAllString(text, "($1, …)")
	if strings.HasPrefix(text, "INSERT") {
		text = tuples.ReplaceAllString(text, "$1, …")
	}
	const most = 300
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + " …"
	}
	return text
}
