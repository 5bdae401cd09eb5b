package schema

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

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
	c := &checker{db: db}
	if err := c.read(ctx); err != nil {
		return nil, err
	}
	misfit, err := misfit(ctx, db)
	if err != nil {
		return nil, err
	}
	if misfit != nil {
		c.found = append(c.found, *misfit)
	}
	for _, want := range wanted {
		have, there := c.tables[want.name]
		switch {
		case want.owned && misfit != nil: // each of its differences would be one of the version
		case !there:
			c.missing(want)
		case want.owned:
			c.checkOwned(want, have)
		default:
			if err := c.checkSites(ctx, want, have); err != nil {
				return nil, err
			}
		}
	}
	c.checkWidth()
	server, err := rowsOf(ctx, db, "SELECT @@global.max_allowed_packet AS bytes")
	if err != nil {
		return nil, err
	}
	c.checkPacket(server[0]["bytes"])
	// Where the site's tables are behind views, they have no triggers.
	if photos := c.tables["photos"]; photos == nil || !photos.isView() {
		findings, err := StandardTriggers().Check(ctx, db, "activityd schema --triggers --apply")
		if err != nil {
			return nil, err
		}
		c.found = append(c.found, findings...)
	}
	return WrongFirst(c.found), nil
}

// WrongFirst sorts findings, those that are wrong first.
func WrongFirst(findings []Finding) (sorted []Finding) {
	for _, wrong := range []bool{true, false} {
		for _, f := range findings {
			if f.Wrong == wrong {
				sorted = append(sorted, f)
			}
		}
	}
	return sorted
}

// checker is one check.
type checker struct {
	db       mysql.Querier
	database string
	grantee  string // in the form of GRANT
	tables   map[string]*present
	blind    bool // there is a finding that plans cannot be seen
	found    []Finding
}

// present is a table or view that exists.
type present struct {
	row
	columns map[string]row
	keys    map[string]string // their columns, as in schema.sql
}

func (p *present) isView() bool { return p.row["table_type"] == "VIEW" }

func (c *checker) add(wrong bool, table, do, what string, args ...any) {
	c.found = append(c.found, Finding{Wrong: wrong, Table: table, What: fmt.Sprintf(what, args...), Do: do})
}

// ofOurs is the condition of rows about the tables of schema.sql: a site may have
// thousands of others.
func ofOurs() string {
	return "table_schema = DATABASE() AND table_name IN ('" + strings.Join(Tables(), "', '") + "')"
}

// read reads the tables, columns and keys that exist.
func (c *checker) read(ctx context.Context) error {
	is, err := rowsOf(ctx, c.db, "SELECT DATABASE() AS name, CURRENT_USER() AS user")
	if err != nil {
		return err
	}
	c.database = is[0]["name"]
	name, host, _ := strings.Cut(is[0]["user"], "@")
	c.grantee = fmt.Sprintf("'%s'@'%s'", name, host)
	tables, err := rowsOf(ctx, c.db, "SELECT t.table_name, t.table_type, t.engine, e.transactions FROM information_schema.tables t"+
		" LEFT JOIN information_schema.engines e ON e.engine = t.engine WHERE "+ofOurs())
	if err != nil {
		return err
	}
	columns, err := rowsOf(ctx, c.db, "SELECT table_name, column_name, data_type, column_type, is_nullable, extra, collation_name, numeric_scale"+
		" FROM information_schema.columns WHERE "+ofOurs())
	if err != nil {
		return err
	}
	keys, err := rowsOf(ctx, c.db, "SELECT table_name, index_name, non_unique, GROUP_CONCAT(column_name ORDER BY seq_in_index SEPARATOR ', ') AS columns"+
		" FROM information_schema.statistics WHERE "+ofOurs()+" GROUP BY table_name, index_name, non_unique")
	if err != nil {
		return err
	}
	c.tables = make(map[string]*present)
	for _, r := range tables {
		c.tables[r["table_name"]] = &present{row: r, columns: make(map[string]row), keys: make(map[string]string)}
	}
	for _, r := range columns {
		if t := c.tables[r["table_name"]]; t != nil { // not made just now
			// MariaDB adds a comment about its storage, which no statement has.
			r["column_type"] = strings.TrimSuffix(r["column_type"], " /* mariadb-5.3 */")
			t.columns[strings.ToLower(r["column_name"])] = r
		}
	}
	for _, r := range keys {
		if t := c.tables[r["table_name"]]; t != nil {
			kind := map[bool]string{true: "PRIMARY KEY", false: "KEY " + r["index_name"]}[r["index_name"] == "PRIMARY"]
			if r["non_unique"] == "0" && r["index_name"] != "PRIMARY" {
				kind = "UNIQUE " + kind
			}
			t.keys[kind+" ("+strings.ToLower(r["columns"])+")"] = r["index_name"]
		}
	}
	return nil
}

// WithMap follows a command in a remedy.
const WithMap = " (with --map FILE, where a file describes the site's tables)"

// missing adds that a table is not there, or is hidden from a user without rights to it. To make an empty
// table of the site's is no remedy where a file describes tables of other names.
func (c *checker) missing(want wantedTable) {
	rights := "SELECT"
	if want.owned {
		rights = "SELECT, INSERT, UPDATE, DELETE"
	}
	c.add(true, want.name, fmt.Sprintf("activityd schema --apply makes it%s; if it is there: GRANT %s ON %s.%s TO %s;", WithMap, rights, Quote(c.database), want.name, c.grantee),
		"there is no such table or view that %s can see", c.grantee)
}

// checkOwned compares a table of activityd's own, which has the columns and keys of schema.sql. Statements
// name the keys: without one they fail, or lock rows that they do not change.
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
	for _, key := range want.keys {
		if have.keys[key] == "" {
			c.add(true, want.name, alter+"ADD "+key+"; after it was dropped, if there is another one of its name", "has no %s", key)
		}
	}
}

// checkColumns compares the columns of a table or view.
func (c *checker) checkColumns(want wantedTable, have *present) (fit bool) {
	fit = true
	for _, w := range want.columns {
		h, there := have.columns[w.name]
		what, verb := "there is no column "+w.name, "ADD"
		if there {
			if what = w.unfit(h, have.isView()); what == "" {
				if !have.isView() && w.isSigned(h) {
					c.add(false, want.name, "make it UNSIGNED, or keep such rows out by a view with WHERE "+w.name+" > 0: docs/adoption.md",
						"column %s is %s, and may have numbers below 0, such as the -1 of a conversion that failed", w.name, h["column_type"])
				}
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

// checkWidth compares last_upload with the dates that triggers raise it to.
func (c *checker) checkWidth() {
	users, photos := c.tables["users"], c.tables["photos"]
	if users == nil || photos == nil {
		return
	}
	last, date := users.columns["last_upload"], photos.columns["date_upload"]
	if last != nil && date != nil && bitsOf(last) < min(bitsOf(date), 38) { // the year 9999 takes 38
		c.add(false, "users", "make it BIGINT UNSIGNED NULL in its table", "column last_upload is %s, narrower than the dates of photos (%s):"+
			" with triggers, the site's own INSERT of a photo that is dated later than it holds fails", last["column_type"], date["column_type"])
	}
}

// leastPacket is what statements may have; a batch of tasks is divided by it.
const leastPacket = 1 << 20

// checkPacket compares the server's max_allowed_packet with the statements.
func (c *checker) checkPacket(bytes string) {
	if most, err := strconv.ParseUint(bytes, 10, 64); err != nil || most < leastPacket {
		c.add(true, "the server", "SET GLOBAL max_allowed_packet = 16777216; and write it into its configuration",
			"has max_allowed_packet = %s, and needs %d: larger batches of tasks are refused", bytes, leastPacket)
	}
}

// checkSites looks at the engine, the columns and the indexes of a table of the site's, or of a view.
func (c *checker) checkSites(ctx context.Context, want wantedTable, have *present) error {
	if have.isView() {
		if _, err := rowsOf(ctx, c.db, "SELECT 1 FROM "+want.name+" WHERE FALSE"); mysql.IsViewInvalid(err) {
			c.add(true, want.name, "SHOW CREATE VIEW "+want.name+"; shows what it reads: mend that, or make the view again", "is a view that the server cannot read: %v", err)
			return nil
		} else if err != nil {
			return err
		}
	}
	if !c.checkColumns(want, have) {
		return nil // a statement about columns that are not there can only fail
	}
	if !have.isView() && have.row["transactions"] != "YES" {
		c.add(true, want.name, "ALTER TABLE "+want.name+" ENGINE=InnoDB;", "is kept by %s, which has no transactions: a change and its task cannot commit together", have.row["engine"])
	}
	return c.checkPlans(ctx, want.name, have.isView())
}

// explain begins a statement in place of SELECT. With skip scans an index would be
// possible that does not begin with the column.
const explain = "EXPLAIN FORMAT=TRADITIONAL SELECT /*+ SET_VAR(optimizer_switch='skip_scan=off') */ "

// checkPlans has the server explain how it finds the rows of a table of the site's: it may have other
// indexes than those of schema.sql, and those beneath a view cannot be seen otherwise.
func (c *checker) checkPlans(ctx context.Context, table string, isView bool) error {
	for _, key := range siteKeysOf(table) {
		steps, err := rowsOf(ctx, c.db, explain+key.probe)
		if mysql.IsPlanHidden(err) {
			if !c.blind {
				c.add(false, table, "run activityd schema --check as a user with the rights SHOW VIEW, and SELECT on the tables beneath",
					"is a view, and %s may not see what it is made of, and by which indexes it is read", c.grantee)
			}
			c.blind = true
			return nil
		}
		if err != nil {
			return err
		}
		what, isTwice := judge(key, steps)
		switch {
		case what == "":
		case isView:
			c.add(false, table, "the tables beneath need it, on plain or generated columns that the view names as they are; activityd schema --map FILE prints it", "%s, beneath the view: %s", what, key.without)
		case isTwice:
			c.add(true, table, "ALTER TABLE "+table+" ADD UNIQUE KEY "+columnList(key.columns)+";", "%s: what is there twice is shown twice", what)
		default:
			c.add(false, table, "ALTER TABLE "+table+" "+strings.TrimSpace("ADD KEY "+key.name)+" "+columnList(key.columns)+";", "%s: %s", what, key.without)
		}
	}
	return nil
}

// smallTable is the number of rows up to which a server may scan a table although
// it has an index for it.
const smallTable = 1000

// judge returns what the plan of the statement that a key is for lacks; "" if nothing. isTwice says that
// the rows may be there twice.
func judge(key siteKey, steps []row) (what string, isTwice bool) {
	list := columnList(key.columns)
	for _, s := range steps {
		// A table that the server makes for the statement, <derived2>, has no index, and may be small.
		stored := !strings.HasPrefix(s["table"], "<")
		scan := stored && (s["type"] == "ALL" || s["type"] == "index")
		rows, _ := strconv.Atoi(s["rows"]) // an estimate
		switch {
		case key.unique && stored && (scan || s["type"] == "ref" || s["type"] == "range"):
			return "there is no unique key " + list, true
		case scan && (s["possible_keys"] == "" || rows > smallTable):
			return "there is no index " + list, false
		case strings.Contains(s["extra"], "filesort"):
			return "no index has the order of " + list, false
		}
	}
	return "", false
}
