package schema

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// Finding is something in which a database is not as activityd needs it.
type Finding struct {
	// Wrong: tasks or answers fail, are lost or are not true; or somebody is shown
	// what is private. Otherwise it is slow, or could not be seen.
	Wrong bool
	Table string // the table or view
	What  string // is wrong, without the name of the table
	Do    string // what mends it: a statement that ends with a semicolon, or words
}

// Check compares the tables and views in the database of db with what the
// statements of activityd need: columns, their types, and indexes. The first
// findings are the wrong ones. It reads the information_schema and, of views, plans;
// no row of the site's. The rights that serve needs are enough for it; behind a view
// it sees the indexes by EXPLAIN alone, which takes more, and says so where they are
// missing. An error says that it could not find out.
func Check(ctx context.Context, db *sql.DB) ([]Finding, error) {
	c := &checker{db: db}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	for _, want := range wantedTables() {
		have, there := c.tables[want.name]
		switch {
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
	slices.SortStableFunc(c.findings, func(a, b Finding) int {
		switch {
		case a.Wrong == b.Wrong:
			return 0
		case a.Wrong:
			return -1
		}
		return 1
	})
	return c.findings, nil
}

// checker is one check.
type checker struct {
	db       *sql.DB
	database string
	grantee  string // as GRANT wants it
	explain  string // EXPLAIN SELECT, as this server prints a table of steps
	tables   map[string]*present
	blind    bool // it was said that plans cannot be seen
	findings []Finding
}

// present is a table or view that exists.
type present struct {
	row
	columns map[string]row
	order   []string // of the columns
	indexes map[string]*presentIndex
}

func (p *present) isView() bool { return p.row["table_type"] == "VIEW" }

// presentIndex is an index of a table.
type presentIndex struct {
	columns    []string // "" for an expression or a part of a column
	descending []bool
	unique     bool
	usable     bool // the server reads by it: it is visible, and a tree
}

func (c *checker) add(wrong bool, table, do, what string, args ...any) {
	c.findings = append(c.findings, Finding{Wrong: wrong, Table: table, What: fmt.Sprintf(what, args...), Do: do})
}

// read reads what there is.
func (c *checker) read(ctx context.Context) error {
	is, err := rowsOf(ctx, c.db, "SELECT DATABASE() AS name, CURRENT_USER() AS user, VERSION() AS version")
	if err != nil {
		return err
	}
	c.database = is[0]["name"]
	name, host, _ := strings.Cut(is[0]["user"], "@")
	c.grantee = fmt.Sprintf("'%s'@'%s'", name, host)
	// A skip scan makes an index possible that does not begin with the column.
	c.explain = "EXPLAIN FORMAT=TRADITIONAL SELECT /*+ SET_VAR(optimizer_switch='skip_scan=off') */"
	if strings.Contains(is[0]["version"], "MariaDB") {
		c.explain = "EXPLAIN SELECT"
	}
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

// ofOurs is the condition of rows about our tables: a site may have thousands.
func ofOurs() string {
	var names []string
	for _, t := range wantedTables() {
		names = append(names, "'"+t.name+"'")
	}
	return "table_schema = DATABASE() AND table_name IN (" + strings.Join(names, ", ") + ")"
}

func (c *checker) readColumns(ctx context.Context) error {
	list, err := rowsOf(ctx, c.db, "SELECT table_name, column_name, data_type, column_type, is_nullable, COALESCE(column_default, 'NULL') AS column_default,"+
		" extra, collation_name, character_maximum_length, numeric_scale FROM information_schema.columns"+
		" WHERE "+ofOurs()+" ORDER BY table_name, ordinal_position")
	if err != nil {
		return err
	}
	for _, r := range list {
		if t := c.tables[r["table_name"]]; t != nil {
			name := strings.ToLower(r["column_name"])
			t.columns[name], t.order = r, append(t.order, name)
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
		x.columns, x.descending = append(x.columns, column), append(x.descending, r["collation"] == "D")
	}
	return nil
}

// missing adds that a table is not there. Without any right to it, it looks so, too.
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
	for _, w := range want.columns {
		h, there := have.columns[w.name]
		if !there {
			c.add(true, want.name, alter+"ADD COLUMN "+w.definition+";", "there is no column %s", w.name)
		} else if why := w.differs(h); why != "" {
			c.add(true, want.name, alter+"MODIFY COLUMN "+w.definition+";", "column %s %s", w.name, why)
		}
	}
	for _, name := range have.order {
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

// checkOwnedKey looks at a key of a table of activityd's own. Statements name them:
// without one they fail, or lock the rows of others.
func (c *checker) checkOwnedKey(alter, table string, want wantedKey, have *presentIndex) {
	const why = "statements fail without it, or lock rows that are not theirs"
	drop := "DROP KEY " + want.name + ", "
	if want.name == primary {
		drop = "DROP PRIMARY KEY, "
	}
	switch {
	case have == nil:
		c.add(true, table, alter+"ADD "+want.definition+";", "there is no %s: %s", want.definition, why)
	case !have.usable:
		c.add(true, table, alter+drop+"ADD "+want.definition+";", "key %s is hidden from statements: %s", want.name, why)
	case !slices.Equal(have.columns, want.columns), want.unique != have.unique:
		c.add(true, table, alter+drop+"ADD "+want.definition+";", "key %s is another one: want %s", want.name, want.definition)
	}
}

// checkColumns compares the columns of a table of the site's, or of its view.
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

// checkSites looks at the engine and the indexes of a table of the site's.
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

// isUnique tells whether there cannot be two rows with the same values.
func (p *present) isUnique(columns []string) bool {
	for _, x := range p.indexes {
		if x.unique && !slices.ContainsFunc(x.columns, func(name string) bool { return !slices.Contains(columns, name) }) {
			return true
		}
	}
	return false
}

// reads tells whether the table has an index by which a key's rows are found, and
// come in order.
func (p *present) reads(want siteKey) bool {
	for _, x := range p.indexes {
		if x.usable && p.leads(*x, want) {
			return true
		}
	}
	return false
}

// leads tells whether an index begins with a key's columns. InnoDB ends each index
// with the primary key. The order of columns that are compared with one value does
// not matter, nor does the direction, if it is one.
func (p *present) leads(x presentIndex, want siteKey) bool {
	if pk := p.indexes[primary]; pk != nil {
		for i, name := range pk.columns {
			if !slices.Contains(x.columns, name) {
				x.columns, x.descending = append(slices.Clone(x.columns), name), append(slices.Clone(x.descending), pk.descending[i])
			}
		}
	}
	n, equal := len(want.columns), want.equal
	if len(x.columns) < n {
		return false
	}
	sorted := slices.Sorted(slices.Values(x.columns[:equal]))
	return slices.Equal(sorted, slices.Sorted(slices.Values(want.columns[:equal]))) &&
		slices.Equal(x.columns[equal:n], want.columns[equal:]) &&
		len(slices.Compact(slices.Clone(x.descending[equal:n]))) <= 1
}

// checkView looks at the columns of a view, and asks the server how it would find the
// rows: the indexes cannot be seen otherwise.
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
		steps, err := rowsOf(ctx, c.db, c.explain+strings.TrimPrefix(key.probe, "SELECT"))
		if mysql.IsPlanHidden(err) {
			c.cannotSee(want.name)
			return nil
		}
		if err != nil {
			return err
		}
		c.judge(want.name, key, steps)
	}
	return nil
}

// cannotSee adds once that the plans of views are hidden from this user.
func (c *checker) cannotSee(table string) {
	if !c.blind {
		c.add(false, table, "run activityd schema --check as a user who may SHOW VIEW, and SELECT from the tables beneath",
			"is a view, and %s may not see by which indexes it is read", c.grantee)
	}
	c.blind = true
}

// smallTable is the number of rows up to which a server may scan a table although
// it has an index for it.
const smallTable = 1000

// judge looks at the plan of the statement that a key is for.
func (c *checker) judge(view string, key siteKey, steps []row) {
	list := columnList(key.columns)
	add := func(what string) {
		c.add(false, view, "the tables beneath need an index on plain or generated columns that the view names as they are", what+": %s", list, key.without)
	}
	for _, s := range steps {
		// What the server makes on the way, <derived2>, has no index, and may be small.
		stored := !strings.HasPrefix(s["table"], "<")
		scan := stored && (s["type"] == "ALL" || s["type"] == "index")
		rows, _ := strconv.Atoi(s["rows"]) // an estimate
		switch {
		case scan && (s["possible_keys"] == "" || rows > smallTable):
			add("no index beneath the view serves %s")
			return
		case strings.Contains(s["extra"], "filesort"):
			add("no index beneath the view gives the order of %s")
			return
		case key.unique && stored && (s["type"] == "ref" || s["type"] == "range"):
			c.add(false, view, "the table beneath needs a unique key, unless the view cannot have such a row twice",
				"no unique key beneath the view serves %s: what is there twice is shown twice", list)
			return
		}
	}
}

// row is a row of a result, by the names of its columns in lower case; NULL is "".
type row map[string]string

func rowsOf(ctx context.Context, db *sql.DB, query string) (list []row, err error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		values, dest := make([]sql.NullString, len(names)), make([]any, len(names))
		for i := range values {
			dest[i] = &values[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		r := make(row, len(names))
		for i, name := range names {
			r[strings.ToLower(name)] = values[i].String
		}
		list = append(list, r)
	}
	return list, rows.Err()
}
