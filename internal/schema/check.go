package schema

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd"
	"github.com/activityd/activityd/internal/mysql"
)

// Finding is something in which a database is not as activityd needs it.
type Finding struct {
	// Wrong: tasks or answers fail, are lost or are false, or private photos are shown.
	// Otherwise something is slow, or could not be checked.
	Wrong bool
	Table string // the table or view
	What  string // what is wrong, without the name of the table
	Do    string // the remedy: a statement that ends with a semicolon, or words
}

// String returns all of it in one line.
func (f Finding) String() string { return f.Table + " " + f.What + ": " + f.Do }

// Check compares the tables and views in the database of db with what the
// statements of activityd need: columns, their types, and indexes. The first
// findings are the wrong ones. It reads the information_schema and the plans of views,
// and no row of the site's. The rights that serve needs are enough for it; only the
// indexes behind a view take more, for EXPLAIN, and a finding says so where they are
// missing. An error means that the check could not be made.
func Check(ctx context.Context, db *sql.DB) ([]Finding, error) {
	return migrations.check(ctx, db)
}

func (h history) check(ctx context.Context, db *sql.DB) ([]Finding, error) {
	c := &checker{db: db}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	is, err := versionIn(ctx, db)
	if err != nil {
		return nil, err
	}
	misfit := h.misfit(is)
	if misfit != nil {
		c.wrong = append(c.wrong, *misfit)
	}
	for _, want := range tablesOf(activityd.Schema) {
		have, there := c.tables[want.name]
		switch {
		case want.owned && misfit != nil: // the migrations will change it
		case !there:
			c.missing(want)
		case want.owned:
			c.checkOwned(want, have)
		case have.isView():
			if err := c.checkView(ctx, want, have); err != nil {
				return nil, err
			}
		default:
			c.checkColumns(want, have)
			c.checkSites(want, have)
		}
	}
	if err := c.checkTriggers(ctx); err != nil {
		return nil, err
	}
	return slices.Concat(c.wrong, c.warnings), nil
}

// checker is one check.
type checker struct {
	db       mysql.Querier
	database string
	grantee  string // in the form of GRANT
	tables   map[string]*present
	blind    bool // there is a finding that plans cannot be seen

	wrong, warnings []Finding
}

// present is a table or view that exists.
type present struct {
	row
	columns map[string]row
	indexes map[string]*presentIndex
}

func (p *present) isView() bool { return p.row["table_type"] == "VIEW" }

// presentIndex is an index of a table.
type presentIndex struct {
	columns []string // "" for an expression or a part of a column
	unique  bool
	usable  bool // the server reads by it: it is visible, and a tree
}

func (c *checker) add(wrong bool, table, do, what string, args ...any) {
	f := Finding{Wrong: wrong, Table: table, What: fmt.Sprintf(what, args...), Do: do}
	if wrong {
		c.wrong = append(c.wrong, f)
	} else {
		c.warnings = append(c.warnings, f)
	}
}

// checkTriggers checks whether activityd's triggers, if there are any, are those of triggers.sql.
// Those of an earlier version go on working, as then; where some are missing, after a restore say,
// changes go unreported. Where the site's tables are behind views, there can be none of these.
func (c *checker) checkTriggers(ctx context.Context) error {
	if photos := c.tables["photos"]; photos != nil && photos.isView() {
		return nil
	}
	findings, err := StandardTriggers().Check(ctx, c.db, "activityd schema --triggers --apply")
	c.warnings = append(c.warnings, findings...)
	return err
}

// read reads the tables, columns and indexes that exist.
func (c *checker) read(ctx context.Context) error {
	is, err := rowsOf(ctx, c.db, "SELECT DATABASE() AS name, CURRENT_USER() AS user")
	if err != nil {
		return err
	}
	c.database = is[0]["name"]
	name, host, _ := strings.Cut(is[0]["user"], "@")
	c.grantee = fmt.Sprintf("'%s'@'%s'", name, host)
	c.tables = make(map[string]*present)
	list, err := rowsOf(ctx, c.db, "SELECT t.table_name, t.table_type, t.engine, e.transactions FROM information_schema.tables t"+
		" LEFT JOIN information_schema.engines e ON e.engine = t.engine WHERE "+ofOurs())
	if err != nil {
		return err
	}
	for _, r := range list {
		c.tables[r["table_name"]] = &present{row: r, columns: make(map[string]row), indexes: make(map[string]*presentIndex)}
	}
	if err := c.readColumns(ctx); err != nil {
		return err
	}
	return c.readIndexes(ctx)
}

// ofOurs is the condition of rows about the tables of schema.sql: a site may have
// thousands of others.
func ofOurs() string {
	return "table_schema = DATABASE() AND table_name IN ('" + strings.Join(Tables(), "', '") + "')"
}

func (c *checker) readColumns(ctx context.Context) error {
	list, err := rowsOf(ctx, c.db, "SELECT table_name, column_name, data_type, column_type, is_nullable, COALESCE(column_default, 'NULL') AS column_default,"+
		" extra, collation_name, character_maximum_length, numeric_scale FROM information_schema.columns"+
		" WHERE "+ofOurs())
	if err != nil {
		return err
	}
	for _, r := range list {
		if t := c.tables[r["table_name"]]; t != nil {
			// MariaDB adds a comment about its storage, which no statement has.
			r["column_type"] = strings.TrimSuffix(r["column_type"], " /* mariadb-5.3 */")
			t.columns[strings.ToLower(r["column_name"])] = r
		}
	}
	return nil
}

func (c *checker) readIndexes(ctx context.Context) error {
	// Not by name: MySQL has is_visible, MariaDB has ignored.
	list, err := rowsOf(ctx, c.db, "SELECT * FROM information_schema.statistics WHERE "+ofOurs()+" ORDER BY table_name, index_name, seq_in_index")
	if err != nil {
		return err
	}
	for _, r := range list {
		t := c.tables[r["table_name"]]
		if t == nil {
			continue
		}
		x := t.indexes[r["index_name"]]
		if x == nil {
			x = &presentIndex{unique: r["non_unique"] == "0", usable: r["index_type"] == "BTREE" && r["is_visible"] != "NO" && r["ignored"] != "YES"}
			t.indexes[r["index_name"]] = x
		}
		column := strings.ToLower(r["column_name"])
		if r["sub_part"] != "" {
			column = ""
		}
		x.columns = append(x.columns, column)
	}
	return nil
}

// missing adds that a table is not there, or is hidden from a user without rights to it.
func (c *checker) missing(want wantedTable) {
	rights := "SELECT"
	if want.owned {
		rights = "SELECT, INSERT, UPDATE, DELETE"
	}
	c.add(true, want.name, fmt.Sprintf("activityd schema --apply makes it; if it is there: GRANT %s ON %#q.%s TO %s;", rights, c.database, want.name, c.grantee),
		"there is no such table or view that %s can see", c.grantee)
}

// checkOwned compares a table of activityd's own, which has to be as schema.sql
// makes it, or to hold more.
func (c *checker) checkOwned(want wantedTable, have *present) {
	if have.isView() {
		c.add(true, want.name, "DROP VIEW "+want.name+"; and then activityd schema --apply", "is a view: want a table of activityd's own")
		return
	}
	alter := "ALTER TABLE " + want.name + " "
	if have.row["engine"] != "InnoDB" {
		c.add(true, want.name, alter+"ENGINE=InnoDB;", "is kept by %s: tasks need transactions and locks of rows, which InnoDB has", have.row["engine"])
	}
	c.checkColumns(want, have)
	for _, name := range slices.Sorted(maps.Keys(have.columns)) {
		h := have.columns[name]
		isOurs := slices.ContainsFunc(want.columns, func(w wantedColumn) bool { return w.name == name })
		if !isOurs && h["is_nullable"] == "NO" && !hasDefault(h) && h["extra"] == "" {
			c.add(true, want.name, alter+"ALTER COLUMN "+name+" SET DEFAULT …;", "column %s, which is none of activityd's, has no default: no task can be inserted", name)
		}
	}
	for _, w := range want.keys {
		c.checkOwnedKey(alter, want.name, w, have.indexes[w.name])
	}
}

// checkOwnedKey compares a key of a table of activityd's own. Statements name these keys:
// without one they fail, or lock rows that they do not change.
func (c *checker) checkOwnedKey(alter, table string, want wantedKey, have *presentIndex) {
	var what string
	drop := "DROP KEY " + want.name + ", "
	if want.name == primary {
		drop = "DROP PRIMARY KEY, "
	}
	switch {
	case have == nil:
		drop, what = "", "there is no "+want.definition
	case !have.usable:
		what = "key " + want.name + " is hidden from statements"
	case !slices.Equal(have.columns, want.columns), want.unique != have.unique:
		what = "key " + want.name + " is another one: want " + want.definition
	default:
		return
	}
	c.add(true, table, alter+drop+"ADD "+want.definition+";", "%s; statements fail without it, or lock rows that they do not change", what)
}

// checkColumns compares the columns of a table or view.
func (c *checker) checkColumns(want wantedTable, have *present) (fit bool) {
	fit = true
	for _, w := range want.columns {
		h, there := have.columns[w.name]
		what, verb := "there is no column "+w.name, "ADD"
		if there {
			if what = w.unfit(h, have.isView()); what == "" {
				continue
			}
			what, verb = "column "+w.name+" "+what, "MODIFY"
		}
		do := fmt.Sprintf("ALTER TABLE %s %s COLUMN %s;", want.name, verb, w.definition)
		if have.isView() {
			do = fmt.Sprintf("have the view yield %s as %s: docs/adoption.md has expressions for it", w.name, w.kind)
		}
		c.add(true, want.name, do, "%s", what)
		fit = false
	}
	return fit
}

// checkSites compares the engine and the indexes of a table of the site's.
func (c *checker) checkSites(want wantedTable, have *present) {
	alter := "ALTER TABLE " + want.name + " "
	if have.row["transactions"] != "YES" {
		c.add(true, want.name, alter+"ENGINE=InnoDB;", "is kept by %s, which has no transactions: a change and its task cannot commit together", have.row["engine"])
	}
	for _, w := range siteKeysOf(want.name) {
		if w.unique && !have.isUnique(w.columns) {
			c.add(true, want.name, alter+"ADD UNIQUE KEY "+columnList(w.columns)+";", "there is no unique key %s: what is there twice is shown twice", columnList(w.columns))
		} else if !have.reads(w) {
			c.add(false, want.name, alter+strings.TrimSpace("ADD KEY "+w.name)+" "+columnList(w.columns)+";", "there is no index %s: %s", columnList(w.columns), w.without)
		}
	}
}

// isUnique reports whether two rows cannot have the same values.
func (p *present) isUnique(columns []string) bool {
	for _, x := range p.indexes {
		if x.unique && !slices.ContainsFunc(x.columns, func(name string) bool { return !slices.Contains(columns, name) }) {
			return true
		}
	}
	return false
}

// reads reports whether the table has an index by which a key's rows are found, and
// come in order. InnoDB ends each index with the primary key. The order of columns
// that are compared with one value does not matter.
func (p *present) reads(want siteKey) bool {
	n, equal := len(want.columns), want.equal
	for _, x := range p.indexes {
		columns := slices.Clone(x.columns)
		if pk := p.indexes[primary]; pk != nil {
			columns = slices.Concat(columns, slices.DeleteFunc(slices.Clone(pk.columns), func(name string) bool { return slices.Contains(columns, name) }))
		}
		if x.usable && len(columns) >= n && slices.Equal(columns[equal:n], want.columns[equal:]) &&
			slices.Equal(slices.Sorted(slices.Values(columns[:equal])), slices.Sorted(slices.Values(want.columns[:equal]))) {
			return true
		}
	}
	return false
}

// explain begins a statement in place of SELECT. With skip scans an index would be
// possible that does not begin with the column.
const explain = "EXPLAIN FORMAT=TRADITIONAL SELECT /*+ SET_VAR(optimizer_switch='skip_scan=off') */ "

// checkView looks at the columns of a view, and has the server explain how it would find
// the rows: the indexes cannot be seen otherwise.
func (c *checker) checkView(ctx context.Context, want wantedTable, have *present) error {
	if _, err := rowsOf(ctx, c.db, "SELECT 1 FROM "+want.name+" WHERE FALSE"); err != nil {
		if !mysql.IsViewInvalid(err) {
			return err
		}
		c.add(true, want.name, "SHOW CREATE VIEW "+want.name+"; shows what it reads: mend that, or make the view again", "is a view that the server cannot read: %v", err)
		return nil
	}
	if !c.checkColumns(want, have) {
		return nil // a statement about columns that are not there can only fail
	}
	for _, key := range siteKeysOf(want.name) {
		steps, err := rowsOf(ctx, c.db, explain+key.probe)
		if mysql.IsPlanHidden(err) {
			if !c.blind {
				c.add(false, want.name, "run activityd schema --check as a user with the rights SHOW VIEW, and SELECT on the tables beneath",
					"is a view, and %s may not see by which indexes it is read", c.grantee)
			}
			c.blind = true
			return nil
		}
		if err != nil {
			return err
		}
		c.judge(want.name, key, steps)
	}
	return nil
}

// smallTable is the number of rows up to which a server may scan a table although
// it has an index for it.
const smallTable = 1000

// judge checks the plan of the statement that a key is for.
func (c *checker) judge(view string, key siteKey, steps []row) {
	list := columnList(key.columns)
	for _, s := range steps {
		// A table that the server makes for the statement, <derived2>, has no index, and may be small.
		stored := !strings.HasPrefix(s["table"], "<")
		scan := stored && (s["type"] == "ALL" || s["type"] == "index")
		rows, _ := strconv.Atoi(s["rows"]) // an estimate
		var what string
		do := "the tables beneath need an index on plain or generated columns that the view names as they are"
		switch {
		case scan && (s["possible_keys"] == "" || rows > smallTable):
			what = "no index beneath the view serves " + list + ": " + key.without
		case strings.Contains(s["extra"], "filesort"):
			what = "no index beneath the view gives the order of " + list + ": " + key.without
		case key.unique && stored && (s["type"] == "ref" || s["type"] == "range"):
			what = "no unique key beneath the view serves " + list + ": what is there twice is shown twice"
			do = "the table beneath needs a unique key, unless the view cannot have such a row twice"
		default:
			continue
		}
		c.add(false, view, do, "%s", what)
		return
	}
}

// row is a row of a result, as [mysql.ByName] has it.
type row = map[string]string

func rowsOf(ctx context.Context, db mysql.Querier, query string) ([]row, error) {
	return mysql.Select(ctx, db, mysql.ByName, query)
}
