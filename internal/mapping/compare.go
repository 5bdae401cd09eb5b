package mapping

import (
	"context"
	"database/sql"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// compare finds views that the file would make otherwise, as of an earlier file, or changed by hand. Each server
// keeps a view in words of its own, so both are compared as the server explains them: with views replaced by
// their tables, names complete, and conditions simplified. Nothing is changed for that.
func (c *checker) compare(ctx context.Context) error {
	conn, err := c.db.Conn(ctx) // the notes about a statement are its connection's
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, v := range c.Views() {
		is, err := explained(ctx, conn, "SELECT "+v.columns+" FROM "+c.own(v.Name))
		if mysql.IsPlanHidden(err) || mysql.IsDeniedOrUnknown(err) || mysql.IsViewInvalid(err) {
			continue // [schema.Check] has said so
		}
		if err != nil {
			return err
		}
		_, query, _ := strings.Cut(v.Statement, " AS\n")
		want, err := explained(ctx, conn, query)
		if err != nil {
			return err
		}
		if is != want {
			c.add(true, c.place(c.sections[v.Name][0].line), "activityd schema --apply --map "+c.file+", unless the file is wrong",
				"[%s]: the view %s is not the one that the section makes: it is %s, and would be %s", v.Name, table{c.database, v.Name}.plain(), is, want)
		}
	}
	return nil
}

// explained returns a SELECT as the server understands it.
func explained(ctx context.Context, conn *sql.Conn, query string) (string, error) {
	_, err := rowsOf(ctx, conn, "EXPLAIN EXTENDED "+query) // as MariaDB wants it
	if mysql.IsDeniedOrUnknown(err) {
		_, err = rowsOf(ctx, conn, "EXPLAIN FORMAT=TRADITIONAL "+query)
	}
	if err != nil {
		return "", err
	}
	notes, err := rowsOf(ctx, conn, "SHOW WARNINGS")
	for _, n := range notes {
		if n["code"] == "1003" {
			return strings.TrimPrefix(strings.ReplaceAll(n["message"], "_utf8mb4'", "'"), "/* select#1 */ "), err
		}
	}
	return "", err
}
