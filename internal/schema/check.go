package schema

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
)

// Finding is a difference between a database and the needs of activityd.
type Finding struct {
	// Wrong: tasks or answers fail, are lost or are false, or private photos are shown.
	// Otherwise something is slow, or could not be checked.
	Wrong bool
	Table string // the table or view
	What  string // the difference, without the name of the table
	Do    string // the remedy: a statement that ends with a semicolon, or words
}

// String returns all of it in a line.
func (f Finding) String() string { return f.Table + " " + f.What + ": " + f.Do }

// WithMap follows a command in a remedy.
const WithMap = " (with --map FILE, where a file describes the site's tables)"

// Check compares the tables and views in the database of db with the needs of activityd's statements: version,
// engines, columns, types, indexes, triggers and max_allowed_packet. Wrong findings come first. It reads
// the information_schema and the plans of statements, and no row of the site's. The rights of serve are enough, but
// for the indexes behind a view: EXPLAIN needs more rights, and a finding says so. An error means that the check
// could not be made.
func Check(ctx context.Context, db *sql.DB) ([]Finding, error) {
	c := &checker{db: db}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	misfit := c.tables.misfit()
	if misfit != nil {
		c.found = append(c.found, *misfit)
	}
	for _, want := range wanted {
		if want.owned && misfit != nil { // each of its differences would be the version's
			continue
		}
		if err := c.table(ctx, want, c.tables[want.name]); err != nil {
			return nil, err
		}
	}
	if photos := c.tables["photos"]; photos != nil && !photos.isView() { // behind views, a site has triggers of its own
		findings, err := StandardTriggers().Check(ctx, db, "activityd schema --triggers --apply")
		if err != nil {
			return nil, err
		}
		c.found = append(c.found, findings...)
	}
	return WrongFirst(c.found), nil
}

// WrongFirst sorts findings: wrong before slow.
func WrongFirst(findings []Finding) []Finding {
	class := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(class[a.Wrong], class[b.Wrong]) })
	return findings
}

// checker is a check under way.
type checker struct {
	db       mysql.Querier
	database string
	grantee  string // in the form of GRANT
	tables   tables
	blind    bool // a finding says that plans cannot be seen
	found    []Finding
}

func (c *checker) add(wrong bool, table, do, what string, args ...any) {
	c.found = append(c.found, Finding{Wrong: wrong, Table: table, What: fmt.Sprintf(what, args...), Do: do})
}

// tables are the tables of schema.sql that exist, by name.
type tables map[string]*present

// present is a table or view that exists.
type present struct {
	row
	columns map[string]row
	keys    []string // as in schema.sql
}

func (p *present) isView() bool { return p.row["table_type"] == "VIEW" }

// ofOurs is the condition of rows about the tables of schema.sql: a site may have thousands more.
func ofOurs() string {
	return "table_schema = DATABASE() AND table_name IN ('" + strings.Join(Tables(), "', '") + "')"
}

func readTables(ctx context.Context, db mysql.Querier) (tables, error) {
	list, err := rowsOf(ctx, db, "SELECT t.table_name, t.table_type, t.table_comment, t.engine, e.transactions FROM information_schema.tables t"+
		" LEFT JOIN information_schema.engines e ON e.engine = t.engine WHERE "+ofOurs())
	all := make(tables)
	for _, r := range list {
		all[r["table_name"]] = &present{row: r, columns: make(map[string]row)}
	}
	return all, err
}

// leastPacket is the size of a statement: a batch of tasks is divided by it.
const leastPacket = 1 << 20

// read reads the tables, columns and keys that exist, and the server's side.
func (c *checker) read(ctx context.Context) (err error) {
	is, err := rowsOf(ctx, c.db, "SELECT DATABASE() AS name, CURRENT_USER() AS user, @@global.max_allowed_packet AS bytes")
	if err != nil {
		return err
	}
	c.database = is[0]["name"]
	name, host, _ := strings.Cut(is[0]["user"], "@")
	c.grantee = fmt.Sprintf("'%s'@'%s'", name, host)
	if n, err := strconv.ParseUint(is[0]["bytes"], 10, 64); err != nil || n < leastPacket {
		c.add(true, "the server", "SET GLOBAL max_allowed_packet = 16777216; and write it into its configuration",
			"has max_allowed_packet = %s, and needs %d: larger batches of tasks are refused", is[0]["bytes"], leastPacket)
	}
	if c.tables, err = readTables(ctx, c.db); err != nil {
		return err
	}
	// MariaDB adds a comment about its storage to a type.
	columns, err := rowsOf(ctx, c.db, "SELECT table_name, LOWER(column_name) AS name, data_type, REPLACE(column_type, ' /* mariadb-5.3 */', '') AS column_type,"+
		" is_nullable, extra, collation_name, numeric_scale, NULL AS definition FROM information_schema.columns WHERE "+ofOurs())
	if err != nil {
		return err
	}
	keys, err := rowsOf(ctx, c.db, "SELECT table_name, CONCAT(CASE WHEN index_name = 'PRIMARY' THEN 'PRIMARY KEY' WHEN non_unique THEN CONCAT('KEY ', index_name)"+
		" ELSE CONCAT('UNIQUE KEY ', index_name) END, ' (', LOWER(GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', ')), ')') AS definition"+
		" FROM information_schema.statistics WHERE "+ofOurs()+" GROUP BY table_name, index_name, non_unique")
	for _, r := range append(columns, keys...) {
		switch t := c.tables[r["table_name"]]; {
		case t == nil: // made just now
		case r["definition"] != "":
			t.keys = append(t.keys, r["definition"])
		default:
			t.columns[r["name"]] = r
		}
	}
	return err
}

// table compares a table or view with schema.sql. A table of activityd's own has the keys of schema.sql, too:
// statements name them. Of the site's, the server explains what it can use.
func (c *checker) table(ctx context.Context, want wantedTable, have *present) error {
	alter := "ALTER TABLE " + want.name + " "
	switch {
	case have == nil:
		rights := map[bool]string{true: "SELECT, INSERT, UPDATE, DELETE", false: "SELECT"}[want.owned]
		// An empty table of the site's is no remedy where a file describes its tables.
		c.add(true, want.name, fmt.Sprintf("activityd schema --apply makes it%s; if it is there: GRANT %s ON %s.%s TO %s;", WithMap, rights, Quote(c.database), want.name, c.grantee),
			"there is no such table or view that %s can see", c.grantee)
		return nil
	case have.isView() && want.owned:
		c.add(true, want.name, "DROP VIEW "+want.name+"; and then activityd schema --apply", "is a view: want a table of activityd's own")
		return nil
	case have.isView():
		if _, err := rowsOf(ctx, c.db, "SELECT 1 FROM "+want.name+" WHERE FALSE"); mysql.IsViewInvalid(err) {
			c.add(true, want.name, "SHOW CREATE VIEW "+want.name+"; shows what it reads: mend that, or make the view again", "is a view that the server cannot read: %v", err)
			return nil
		} else if err != nil {
			return err
		}
	case have.row["transactions"] != "YES" || want.owned && have.row["engine"] != "InnoDB":
		c.add(true, want.name, alter+"ENGINE=InnoDB;", "is kept by %s, which has no transactions with locks of rows: a change and its task cannot commit together", have.row["engine"])
	}
	fit := c.columns(want, have)
	if !want.owned && fit { // a statement about columns that are missing can only fail
		return c.plans(ctx, want.name, have.isView())
	}
	for _, key := range want.keys {
		if want.owned && !slices.Contains(have.keys, key) {
			c.add(true, want.name, alter+"ADD "+key+"; after it was dropped, if there is another one of its name", "has no %s", key)
		}
	}
	return nil
}

// columns compares the columns of a table or view, and reports whether all serve.
func (c *checker) columns(want wantedTable, have *present) (fit bool) {
	fit = true
	for _, w := range want.columns {
		h := have.columns[w.name]
		what, verb := "there is no column "+w.name, "ADD"
		if h != nil {
			lack := w.unfit(h, have.isView())
			if lack == "" {
				continue
			}
			what, verb = "column "+w.name+" "+lack, "MODIFY"
		}
		fit = false
		do := fmt.Sprintf("ALTER TABLE %s %s COLUMN %s;", want.name, verb, w.definition)
		if have.isView() {
			do = fmt.Sprintf("have the view yield %s as %s: docs/setup.md has expressions for it", w.name, w.kind)
		}
		c.add(true, want.name, do, "%s", what)
	}
	return fit
}

// explain begins a statement in place of SELECT. With skip scans an index would be possible that does not begin with
// the column.
const explain = "EXPLAIN FORMAT=TRADITIONAL SELECT /*+ SET_VAR(optimizer_switch='skip_scan=off') */ "

// plans has the server explain how it finds the rows of a table of the site's, whose indexes need not be
// those of schema.sql. The indexes beneath a view cannot be seen otherwise.
func (c *checker) plans(ctx context.Context, table string, isView bool) error {
	for _, key := range siteKeys {
		if key.table != table {
			continue
		}
		steps, err := rowsOf(ctx, c.db, explain+key.probe)
		if mysql.IsPlanHidden(err) {
			if !c.blind {
				c.add(false, table, "run activityd schema --check as a user with the rights SHOW VIEW, and SELECT on the tables beneath",
					"is a view, and %s may not see what it is made of, and by which indexes it is read", c.grantee)
			}
			c.blind = true
			return nil
		} else if err != nil {
			return err
		}
		list := "(" + strings.Join(key.columns, ", ") + ")"
		switch lack, isTwice := key.lack(steps); {
		case lack == "":
		case isView:
			c.add(false, table, "the tables beneath need it, on plain or generated columns that the view names as they are; activityd schema --map FILE prints it",
				"%s %s, beneath the view: %s", lack, list, key.without)
		case isTwice:
			c.add(true, table, "ALTER TABLE "+table+" ADD UNIQUE KEY "+list+";", "%s %s: what is there twice is shown twice", lack, list)
		default:
			c.add(false, table, "ALTER TABLE "+table+" "+strings.TrimSpace("ADD KEY "+key.name)+" "+list+";", "%s %s: %s", lack, list, key.without)
		}
	}
	return nil
}

// smallTable is the number of rows up to which a server may scan a table although it has an index for it.
const smallTable = 1000

// lack returns the lack of the plan of a key's statement; "" if there is none. isTwice says that the rows may be there
// twice.
func (k siteKey) lack(steps []row) (what string, isTwice bool) {
	for _, s := range steps {
		// A table that the server makes for the statement, <derived2>, has no index, and may be small.
		stored := !strings.HasPrefix(s["table"], "<")
		scan := stored && (s["type"] == "ALL" || s["type"] == "index")
		rows, _ := strconv.Atoi(s["rows"]) // an estimate
		switch {
		case k.unique && stored && (scan || s["type"] == "ref" || s["type"] == "range"):
			return "there is no unique key", true
		case scan && (s["possible_keys"] == "" || rows > smallTable):
			return "there is no index", false
		case strings.Contains(s["extra"], "filesort"):
			return "no index has the order of", false
		}
	}
	return "", false
}
