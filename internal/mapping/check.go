package mapping

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
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
	c, err := m.fit(ctx, db)
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range c.found {
		if f.Wrong {
			errs = append(errs, errors.New(strings.TrimSuffix(f.Table+": "+f.What+"\n  "+f.Do, "\n  ")))
		}
	}
	return errors.Join(errs...)
}

// Check compares the tables, views and triggers with the description, and finds values that no row has, and
// foreign keys whose changes no trigger sees. Checks for which this user has no right are left out.
func Check(ctx context.Context, db *sql.DB, m *Map) ([]schema.Finding, error) {
	c, err := m.fit(ctx, db)
	if err != nil {
		return nil, err
	}
	for i, f := range c.found {
		c.found[i].Do = cmp.Or(f.Do, "correct the file, or the table")
	}
	if c.wrong() {
		return c.found, nil
	}
	triggers, err := m.Triggers().Check(ctx, db, "activityd schema --triggers --apply --map "+m.file)
	if err != nil {
		return nil, err
	}
	c.found = append(c.found, triggers...)
	for _, step := range []func(context.Context) error{c.compare, c.conditions, c.foreignKeys} {
		if err := step(ctx); err != nil && !mysql.IsDeniedOrUnknown(err) && !mysql.IsViewInvalid(err) {
			return nil, err
		}
	}
	return c.found, nil
}

// checker collects the differences.
type checker struct {
	*Map

	db     *sql.DB
	tables map[table]map[string]row // the columns by their names in lower case; nil: a view, or none
	found  []schema.Finding
}

func (c *checker) add(wrong bool, where, do, what string, args ...any) {
	c.found = append(c.found, schema.Finding{Wrong: wrong, Table: where, What: fmt.Sprintf(what, args...), Do: do})
}

func (c *checker) failf(line int, do, what string, args ...any) {
	c.add(true, c.place(line), do, what, args...)
}

func (c *checker) wrong() bool {
	return slices.ContainsFunc(c.found, func(f schema.Finding) bool { return f.Wrong })
}

// fit compares the description with the tables.
func (m *Map) fit(ctx context.Context, db *sql.DB) (*checker, error) {
	is, err := rowsOf(ctx, db, "SELECT DATABASE() AS name")
	if err != nil {
		return nil, err
	}
	c := &checker{Map: m, db: db, tables: make(map[table]map[string]row)}
	if !strings.EqualFold(is[0]["name"], m.database) {
		c.failf(m.line, "", "database is %s, and --mysql-dsn names %s: the views and activityd's tables are in one database", m.database, is[0]["name"])
		return c, nil
	}
	for _, s := range m.all() {
		if err := errors.Join(c.earlier(ctx, s), c.read(ctx, s)); err != nil {
			return nil, err
		}
		if c.tables[s.table] != nil {
			c.section(s)
		}
	}
	if !c.wrong() {
		c.columns()
	}
	return c, nil
}

// earlier finds the remains of an earlier description: a view where a copy is to be, so that triggers
// would write to the table that they are on, or a table where a view is to be.
func (c *checker) earlier(ctx context.Context, s *section) error {
	list, err := rowsOf(ctx, c.db, "SELECT table_type FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = '"+s.name+"'")
	if err != nil || len(list) == 0 || s != c.sections[s.name][0] {
		return err
	}
	own := table{c.database, s.name}
	switch isView := list[0]["table_type"] == "VIEW"; {
	case isView && c.copied(s.name):
		c.failf(s.line, "DROP VIEW "+own.String()+";", "%s is a view, where a table of copies is to be, as %s is in several sections", own.plain(), s.name)
	case !isView && !c.copied(s.name):
		c.failf(s.line, "", "%s is a table, where a view is to be: drop it if it is activityd's, as from an earlier description; if it is the site's, let database be another one", own.plain())
	}
	return nil
}

// read reads the columns of the table of a section.
func (c *checker) read(ctx context.Context, s *section) error {
	if _, known := c.tables[s.table]; known {
		return nil
	}
	c.tables[s.table] = nil
	where := " WHERE table_schema = " + schema.Text(s.table.database) + " AND table_name = " + schema.Text(s.table.name)
	kinds, err := rowsOf(ctx, c.db, "SELECT table_type, engine FROM information_schema.tables"+where)
	switch {
	case err != nil:
		return err
	case len(kinds) == 0:
		c.failf(s.line, "", "there is no table %s that this user can see", s.table.plain())
		return nil
	case kinds[0]["table_type"] == "VIEW":
		c.failf(s.line, "", "%s is a view: want the table beneath, as only tables have triggers", s.table.plain())
		return nil
	case kinds[0]["engine"] != "InnoDB":
		c.failf(s.line, "ALTER TABLE "+s.table.String()+" ENGINE=InnoDB;", "%s is kept by %s, which has no transactions: a change and its task cannot commit together", s.table.plain(), kinds[0]["engine"])
	}
	columns, err := rowsOf(ctx, c.db, "SELECT column_name, data_type, column_type, column_comment FROM information_schema.columns"+where)
	if err != nil {
		return err
	}
	c.tables[s.table] = make(map[string]row)
	for _, r := range columns {
		c.tables[s.table][strings.ToLower(r["column_name"])] = r
	}
	return nil
}

// section checks the columns that the section names, and the types of columns that activityd reads as they are.
func (c *checker) section(s *section) {
	for _, k := range keysOf(s.name) {
		v := s.values[k.name]
		for _, name := range v.expr.columns {
			is, there := c.tables[s.table][strings.ToLower(name)]
			switch {
			case !there && k.name != "last_upload":
				c.failf(v.line, "", "%s: %s has no column %s", k.name, s.table.plain(), name)
			case there && !k.expression:
				c.typed(s, k.name, v, is)
			}
		}
		c.values(s, k.name, v)
	}
}

var integers = words("tinyint smallint mediumint int bigint")

func (c *checker) typed(s *section, key string, v value, column row) {
	is := s.table.plain() + "." + column["column_name"] + " is " + column["column_type"]
	kind := column["data_type"]
	switch key {
	case "username", "title":
		return
	case "visibility":
		if kind != "enum" && kind != "varchar" && kind != "char" {
			c.failf(v.line, "", "visibility: %s: want activityd's words; say by conditions what others mean, as in public = %s = 4", is, column["column_name"])
		}
	case "date_upload":
		switch want := s.dateType(); {
		case kind == "timestamp":
			c.failf(v.line, "", "date_upload: %s, whose value depends on the session: want a column of unix seconds, or DATETIME", is)
		case (want == datetime) != (kind == "datetime"), want != datetime && !integers[kind]:
			c.failf(v.line, "", "date_upload: %s, which is no %s: set date_type", is, want)
		}
	default:
		if !integers[kind] {
			c.failf(v.line, "", "%s: %s: want a whole number", key, is)
		}
	}
}

// columns checks the columns that activityd asks of the tables.
func (c *checker) columns() {
	for _, want := range c.Columns() {
		switch have, there := c.tables[want.table][strings.ToLower(want.name)]; {
		case !there:
			c.failf(want.line, want.Statement()+";", "%s has no column %s", want.table.plain(), want.name)
		case want.mark != "" && have["column_comment"] != want.mark:
			c.failf(want.line, fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s; %s; and then the index that it was in", want.table, want.name, want.Statement()),
				"%s.%s was made of another description", want.table.plain(), want.name)
		}
	}
}

// foreignKeys finds keys whose actions change rows that triggers watch: no trigger sees them.
func (c *checker) foreignKeys(ctx context.Context) error {
	var in []string
	for _, name := range c.databases() {
		in = append(in, schema.Text(name))
	}
	list, err := rowsOf(ctx, c.db, "SELECT r.constraint_schema, r.constraint_name, r.table_name, r.delete_rule, r.update_rule,"+
		" k.column_name, k.referenced_table_schema, k.referenced_table_name FROM information_schema.referential_constraints r"+
		" JOIN information_schema.key_column_usage k ON k.constraint_schema = r.constraint_schema AND k.constraint_name = r.constraint_name AND k.table_name = r.table_name"+
		" WHERE r.constraint_schema IN ("+strings.Join(in, ", ")+") AND k.referenced_table_name IS NOT NULL ORDER BY r.table_name, r.constraint_name, k.ordinal_position")
	if err != nil {
		return err
	}
	for _, r := range list {
		for _, event := range []string{"DELETE", "UPDATE"} {
			if slices.ContainsFunc(c.all(), func(s *section) bool { return c.misses(s, r, event) }) {
				c.add(false, r["table_name"], fmt.Sprintf("make the key of %s (%s) without it, and have the site change these rows by a statement before", r["table_name"], r["column_name"]),
					"has the foreign key %s ON %s %s, whose changes fire no trigger, and go unreported", r["constraint_name"], event, r[strings.ToLower(event)+"_rule"])
			}
		}
	}
	return nil
}

// misses reports whether a foreign key changes rows of a section that must be reported. Photos that go need no
// task, and the trigger on members reports each follower of a member that goes.
func (c *checker) misses(s *section, key row, event string) bool {
	rule := key[strings.ToLower(event)+"_rule"]
	removes := event == "DELETE" && rule == "CASCADE"
	toUsers := same(table{key["referenced_table_schema"], key["referenced_table_name"]}, c.users().table)
	switch {
	case !same(table{key["constraint_schema"], key["table_name"]}, s.table),
		rule != "CASCADE" && rule != "SET NULL" && rule != "SET DEFAULT",
		!removes && !s.uses(key["column_name"]):
		return false
	case c.copied(s.name), s.name == "users":
		return true
	case s.name == "contacts":
		return event == "UPDATE" || !toUsers
	case s.name == "photos":
		return !removes && !toUsers
	}
	return false
}

// same reports whether a server may take two names for one table.
func same(a, b table) bool { return strings.EqualFold(a.plain(), b.plain()) }

// uses reports whether a section asks for a column.
func (s *section) uses(column string) bool {
	for _, v := range s.values {
		if slices.ContainsFunc(v.expr.columns, func(name string) bool { return strings.EqualFold(name, column) }) {
			return true
		}
	}
	return false
}
