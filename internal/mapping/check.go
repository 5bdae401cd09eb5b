package mapping

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
)

// row is a row of a result, as [mysql.ByName] has it.
type row = map[string]string

func rowsOf(ctx context.Context, db mysql.Querier, query string) ([]row, error) {
	return mysql.Select(ctx, db, mysql.ByName, query)
}

// Apply makes the views, unless the description does not fit the tables. The columns of [Map.Columns]
// must be there. The error has a line for each mistake, as in [Read]; further errors wrap the driver's.
func (m *Map) Apply(ctx context.Context, db *sql.DB) error {
	if err := m.Fits(ctx, db); err != nil {
		return err
	}
	for _, v := range m.Views() {
		if _, err := db.ExecContext(ctx, v.Statement); err != nil {
			return fmt.Errorf("make the view %s: %w", v.Name, err)
		}
	}
	return nil
}

// Fits compares the description with the tables that there are.
func (m *Map) Fits(ctx context.Context, db *sql.DB) error {
	c := &checker{Map: m, db: db}
	if err := c.fit(ctx); err != nil {
		return err
	}
	var errs []error
	for _, f := range c.found {
		if f.Wrong {
			errs = append(errs, fmt.Errorf("%s: %s\n  %s", f.Table, f.What, f.Do))
		}
	}
	return errors.Join(errs...)
}

// Check compares the tables, views and triggers with the description, and finds foreign keys whose changes no trigger
// sees. Checks for which this user has no right are left out.
func Check(ctx context.Context, db *sql.DB, m *Map) ([]schema.Finding, error) {
	c := &checker{Map: m, db: db}
	if err := c.fit(ctx); err != nil || c.wrong() {
		return c.found, err
	}
	triggers, err := m.Triggers().Check(ctx, db, "activityd schema --triggers --apply --map "+m.File)
	c.found = append(c.found, triggers...)
	for _, step := range []func(context.Context) error{c.compare, c.foreignKeys} {
		if err == nil {
			err = step(ctx)
		}
		if mysql.IsDeniedOrUnknown(err) {
			err = nil
		}
	}
	return c.found, err
}

// checker collects the differences.
type checker struct {
	*Map

	db    *sql.DB
	found []schema.Finding
}

func (c *checker) add(wrong bool, line int, do, what string, args ...any) {
	c.found = append(c.found, schema.Finding{Wrong: wrong, Table: c.place(line), What: fmt.Sprintf(what, args...), Do: do})
}

// byHand is the remedy of most mistakes.
const byHand = "correct the file, or the table"

func (c *checker) wrong() bool {
	return slices.ContainsFunc(c.found, func(f schema.Finding) bool { return f.Wrong })
}

// fit compares the description with the tables.
func (c *checker) fit(ctx context.Context) error {
	is, err := rowsOf(ctx, c.db, "SELECT DATABASE() AS name, (SELECT table_type FROM information_schema.tables"+
		" WHERE table_schema = DATABASE() AND table_name = 'contacts') AS contacts")
	switch {
	case err != nil:
		return err
	case !strings.EqualFold(is[0]["name"], c.Database):
		c.add(true, c.line, byHand, "database is %s, and --mysql-dsn names %s: the views and activityd's tables are in one database", c.Database, is[0]["name"])
		return nil
	case c.Copy() != nil && is[0]["contacts"] == "VIEW": // of an earlier description: the triggers would write to the table that they are on
		c.add(true, c.Copy().line, "DROP VIEW "+c.Own("contacts")+";", "%s.contacts is a view, where a table of copies is to be, as contacts are in several sections", c.Database)
	case c.Copy() == nil && is[0]["contacts"] == "BASE TABLE": // without their triggers the copies would stay as they are
		c.add(true, c.Contacts[0].line, "drop it if it is activityd's, as of an earlier description; if it is the site's, let database be another one",
			"%s.contacts is a table, where a view is to be", c.Database)
	}
	tables := make(map[table]map[string]row) // the columns by their names in lower case
	for _, s := range c.all() {
		if tables[s.table], err = c.columns(ctx, s); err != nil {
			return err
		}
	}
	if c.wrong() {
		return nil
	}
	for _, want := range c.Columns() {
		switch have, there := tables[want.table][strings.ToLower(want.name)]; {
		case !there:
			c.add(true, want.line, want.Statement+";", "%s has no column %s", want.table.plain(), want.name)
		case want.mark != "" && have["column_comment"] != want.mark:
			c.add(true, want.line, fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s; %s; and then the index that it was in", want.table, want.name, want.Statement),
				"%s.%s was made of another description", want.table.plain(), want.name)
		}
	}
	return nil
}

// columns returns the columns of the table of a section, by their names in lower case. It checks the columns that the section
// names, and the types of columns that activityd reads as they are.
func (c *checker) columns(ctx context.Context, s *section) (map[string]row, error) {
	list, err := rowsOf(ctx, c.db, "SELECT t.table_type, t.engine, c.column_name, c.data_type, c.column_type, c.column_comment"+
		" FROM information_schema.tables t JOIN information_schema.columns c ON c.table_schema = t.table_schema AND c.table_name = t.table_name"+
		" WHERE t.table_schema = "+schema.Text(s.table.database)+" AND t.table_name = "+schema.Text(s.table.name))
	switch {
	case err != nil:
		return nil, err
	case len(list) == 0:
		c.add(true, s.line, byHand, "there is no table %s that this user can see", s.table.plain())
		return nil, nil
	case list[0]["table_type"] == "VIEW":
		c.add(true, s.line, byHand, "%s is a view: want the table beneath, as only tables have triggers", s.table.plain())
		return nil, nil
	case list[0]["engine"] != "InnoDB":
		c.add(true, s.line, "ALTER TABLE "+s.table.String()+" ENGINE=InnoDB;", "%s is kept by %s, which has no transactions: a change and its task cannot commit together", s.table.plain(), list[0]["engine"])
	}
	columns := make(map[string]row)
	for _, r := range list {
		columns[strings.ToLower(r["column_name"])] = r
	}
	for _, sign := range keysOf(s.Name) {
		key := strings.TrimRight(sign, "!=")
		v := s.values[key]
		for _, name := range v.expr.columns() {
			is, there := columns[strings.ToLower(name)]
			switch {
			case !there && key != "last_upload":
				c.add(true, v.line, byHand, "%s: %s has no column %s", key, s.table.plain(), name)
			case there && !strings.HasSuffix(sign, "="):
				c.typed(s, key, v, is)
			}
		}
		c.strings(s, key, v, columns)
	}
	return columns, nil
}

var integers = words("tinyint smallint mediumint int bigint")

// typed checks the type of a column.
func (c *checker) typed(s *section, key string, v value, column row) {
	types, want := integers, "a whole number"
	switch {
	case key == "username" || key == "title":
		return
	case key == "visibility": // MySQL takes each word for the number 0, which may be that for public
		types, want = words("enum varchar char"), "activityd's words; say by conditions what others mean, as in public = "+column["column_name"]+" = 4"
	case key == "date_upload" && s.dateType() == datetime:
		types, want = words("datetime"), "a DATETIME of UTC, or another date_type; a TIMESTAMP depends on the session"
	case key == "date_upload":
		want += " of " + s.dateType() + ", or another date_type; a TIMESTAMP depends on the session"
	}
	if !types[column["data_type"]] {
		c.add(true, v.line, byHand, "%s: %s.%s is %s: want %s", key, s.table.plain(), column["column_name"], column["column_type"], want)
	}
}

// compared finds what a column is compared with: a string, or a list.
var (
	compared = regexp.MustCompile("(?i)`([^`]+)`\\s*(?:(?:<=>|<>|!=|=)\\s*(" + aString + ")|(?:NOT\\s+)?IN\\s*(\\([^()]*\\)))")
	strs     = regexp.MustCompile(aString)
)

// strings finds strings in the place of a number, which MySQL takes for 0, and strings that no row of an ENUM has: where a
// state is misspelt, state <> 'deleted' shows what is deleted.
func (c *checker) strings(s *section, key string, v value, columns map[string]row) {
	for _, found := range compared.FindAllStringSubmatch(v.expr.of(""), -1) {
		is := columns[strings.ToLower(found[1])]
		has := schema.Words(is["column_type"])
		for _, literal := range strs.FindAllString(found[2]+found[3], -1) {
			text := strings.NewReplacer("''", "'", `\\`, `\`, `\'`, "'").Replace(strings.TrimRight(literal[1:len(literal)-1], " "))
			what := fmt.Sprintf("%s: %s.%s is %s", key, s.table.plain(), found[1], is["column_type"])
			if _, err := strconv.ParseFloat(text, 64); err != nil && integers[is["data_type"]] {
				c.add(true, v.line, byHand, "%s: MySQL takes %s for 0", what, literal)
			}
			if has != nil && !slices.ContainsFunc(has, func(word string) bool { return strings.EqualFold(word, text) }) {
				c.add(false, v.line, "look whether it is spelt right", "%s, which has no %s", what, literal)
			}
		}
	}
}

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
		is, err := explained(ctx, conn, "SELECT * FROM "+c.Own(v.Name))
		if mysql.IsPlanHidden(err) || mysql.IsDeniedOrUnknown(err) || mysql.IsViewInvalid(err) {
			continue // [schema.Check] has said so
		}
		want, failed := explained(ctx, conn, v.query)
		switch err = cmp.Or(err, failed); {
		case err != nil:
			return err
		case is != want:
			c.add(true, v.line, "activityd schema --apply --map "+c.File+", unless the file is wrong",
				"[%s]: the view %s is not the one that the section makes: it is %s, and would be %s", v.Name, table{c.Database, v.Name}.plain(), is, want)
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

// foreignKeys finds keys that delete rows of members or contacts: no trigger sees that. Only the contacts of a member that
// goes are reported by the trigger on members; copies stay.
func (c *checker) foreignKeys(ctx context.Context) error {
	for _, s := range append([]*section{c.Users}, c.Contacts...) {
		list, err := rowsOf(ctx, c.db, "SELECT constraint_name, unique_constraint_schema, referenced_table_name FROM information_schema.referential_constraints"+
			" WHERE delete_rule = 'CASCADE' AND constraint_schema = "+schema.Text(s.table.database)+" AND table_name = "+schema.Text(s.table.name))
		if err != nil {
			return err
		}
		for _, r := range list {
			ofMembers := strings.EqualFold(r["unique_constraint_schema"]+"."+r["referenced_table_name"], c.Users.table.plain())
			if s.Name == "users" || c.Copy() != nil || !ofMembers {
				c.add(false, s.line, "make the key without it, and have the site delete these rows by a statement before",
					"%s has the foreign key %s ON DELETE CASCADE, whose changes fire no trigger, and go unreported", s.table.plain(), r["constraint_name"])
			}
		}
	}
	return nil
}
