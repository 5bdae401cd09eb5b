package mapping

import (
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
// must be there. The error has a line for each mistake, as that of [Read] has; others wrap those of the driver.
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

// mistake is an error about a line of the description, or about what it describes.
type mistake struct {
	where string // as in site.map:12
	what  string
	do    string // what mends it; may be empty
	mild  bool   // it may be meant
}

func (m mistake) Error() string {
	if m.do == "" {
		return m.where + ": " + m.what
	}
	return m.where + ": " + m.what + "\n  " + m.do
}

// Fits compares the description with the tables that there are.
func (m *Map) Fits(ctx context.Context, db mysql.Querier) error {
	names, err := schema.NamesOf(ctx, db)
	if err != nil {
		return err
	}
	mistakes, err := m.mistakes(ctx, db, names)
	if err != nil {
		return err
	}
	var errs []error
	for _, one := range mistakes {
		if !one.mild {
			errs = append(errs, one)
		}
	}
	return errors.Join(errs...)
}

func (m *Map) mistakes(ctx context.Context, db mysql.Querier, names schema.Names) ([]mistake, error) {
	is, err := rowsOf(ctx, db, "SELECT DATABASE() AS name")
	if err != nil {
		return nil, err
	}
	f := &fitter{Map: m, tables: make(map[table]map[string]row)}
	if names.Key(is[0]["name"]) != names.Key(m.database) {
		f.failf(m.line, "", "database is %s, and --mysql-dsn names %s: the views and activityd's tables are in one database", m.database, is[0]["name"])
		return f.found, nil
	}
	if err := f.earlier(ctx, db); err != nil {
		return nil, err
	}
	for _, s := range m.all() {
		if err := f.read(ctx, db, s); err != nil {
			return nil, err
		}
	}
	for _, s := range m.all() {
		f.section(s)
	}
	if !slices.ContainsFunc(f.found, func(one mistake) bool { return !one.mild }) {
		f.columns()
	}
	return f.found, nil
}

// fitter collects what does not fit.
type fitter struct {
	*Map

	tables map[table]map[string]row // the columns by their names in lower case; nil: a view, or none
	found  []mistake
}

func (f *fitter) failf(line int, do, format string, args ...any) {
	f.found = append(f.found, mistake{fmt.Sprintf("%s:%d", f.file, line), fmt.Sprintf(format, args...), do, false})
}

func (f *fitter) warnf(line int, format string, args ...any) {
	f.found = append(f.found, mistake{fmt.Sprintf("%s:%d", f.file, line), fmt.Sprintf(format, args...), "look whether it is spelt right", true})
}

// earlier finds what another description has left: a view where a copy is to be, through which triggers
// would write to the table that they are on, or a table where a view is to be.
func (f *fitter) earlier(ctx context.Context, db mysql.Querier) error {
	list, err := rowsOf(ctx, db, "SELECT table_name, table_type FROM information_schema.tables WHERE table_schema = DATABASE()")
	if err != nil {
		return err
	}
	kinds := make(map[string]string)
	for _, r := range list {
		kinds[r["table_name"]] = r["table_type"]
	}
	for _, s := range f.all() {
		own := table{f.database, s.name}
		switch kind, there := kinds[s.name]; {
		case !there:
		case f.copied(s.name) && kind == "VIEW":
			f.failf(s.line, "DROP VIEW "+own.String()+";", "%s is a view, where a table of copies is to be, as %s is in several sections", own.plain(), s.name)
		case !f.copied(s.name) && kind != "VIEW":
			f.failf(s.line, "", "%s is a table, where a view is to be: drop it if it is activityd's, as from an earlier description; if it is the site's, let database be another one", own.plain())
		}
		delete(kinds, s.name) // said once
	}
	return nil
}

func (f *fitter) read(ctx context.Context, db mysql.Querier, s *section) error {
	if _, known := f.tables[s.table]; known {
		return nil
	}
	f.tables[s.table] = nil
	where := " WHERE table_schema = " + schema.Text(s.table.database) + " AND table_name = " + schema.Text(s.table.name)
	kinds, err := rowsOf(ctx, db, "SELECT table_type, engine FROM information_schema.tables"+where)
	switch {
	case err != nil:
		return err
	case len(kinds) == 0:
		f.failf(s.line, "", "there is no table %s that this user can see", s.table.plain())
		return nil
	case kinds[0]["table_type"] == "VIEW":
		f.failf(s.line, "", "%s is a view: want the table beneath, as only tables have triggers", s.table.plain())
		return nil
	}
	if kinds[0]["engine"] != "InnoDB" {
		f.failf(s.line, "ALTER TABLE "+s.table.String()+" ENGINE=InnoDB;", "%s is kept by %s, which has no transactions: a change and its task cannot commit together", s.table.plain(), kinds[0]["engine"])
	}
	columns, err := rowsOf(ctx, db, "SELECT column_name, data_type, column_type, numeric_scale, column_comment FROM information_schema.columns"+where)
	if err != nil {
		return err
	}
	f.tables[s.table] = make(map[string]row)
	for _, c := range columns {
		f.tables[s.table][strings.ToLower(c["column_name"])] = c
	}
	return nil
}

// section checks the columns that the section names, and the types of those that activityd reads as they are.
func (f *fitter) section(s *section) {
	columns := f.tables[s.table]
	if columns == nil {
		return
	}
	for _, k := range keysOf(s.name) {
		v := s.values[k.name]
		for _, name := range v.expr.columns {
			c, there := columns[strings.ToLower(name)]
			switch {
			case !there && k.name != "last_upload":
				f.failf(v.line, "", "%s: %s has no column %s", k.name, s.table.plain(), name)
			case there && k.form == aColumn:
				f.typed(s, k.name, v, c)
			}
		}
		if v.line > 0 && k.form != aWord {
			f.values(s, k.name, v)
		}
	}
}

var integers = words("tinyint smallint mediumint int bigint")

func (f *fitter) typed(s *section, key string, v value, c row) {
	is := s.table.plain() + "." + c["column_name"] + " is " + c["column_type"]
	kind := c["data_type"]
	switch key {
	case "username", "title":
		return
	case "visibility":
		if kind != "enum" && kind != "varchar" && kind != "char" {
			f.failf(v.line, "", "visibility: %s: want activityd's words; say by conditions what others mean, as in public = %s = 4", is, c["column_name"])
		}
	case "date_upload":
		switch want := s.dateType(); {
		case kind == "timestamp":
			f.failf(v.line, "", "date_upload: %s, whose value depends on the session: want a column of unix seconds, or DATETIME", is)
		case (want == datetime) != (kind == "datetime"), want != datetime && !integers[kind]:
			f.failf(v.line, "", "date_upload: %s, which is no %s: set date_type", is, want)
		}
	default:
		if !integers[kind] {
			f.failf(v.line, "", "%s: %s: want a whole number", key, is)
		}
	}
}

// columns checks the columns that activityd asks of the tables.
func (f *fitter) columns() {
	for _, c := range f.Columns() {
		switch have, there := f.tables[c.table][strings.ToLower(c.name)]; {
		case !there:
			f.failf(c.line, c.Statement()+";", "%s has no column %s", c.table.plain(), c.name)
		case c.mark() != "" && have["column_comment"] != c.mark():
			f.failf(c.line, fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s; %s; and then the index that it was in", c.table, c.name, c.Statement()),
				"%s.%s was made of another description", c.table.plain(), c.name)
		}
	}
}
