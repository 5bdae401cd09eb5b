package mapping

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/schema"
)

// Check finds what triggers on a site's tables would not see, and columns whose values are not what
// they seem. m is nil for a site whose tables have activityd's names: then foreign keys count only if
// there are triggers. It reads a hundred photos and members, and a few first rows of indexes. What
// this user may not ask for is left out.
func Check(ctx context.Context, db *sql.DB, m *Map) ([]schema.Finding, error) {
	names, err := schema.NamesOf(ctx, db)
	if err != nil {
		return nil, err
	}
	c := &checker{db: db, names: names, described: m != nil}
	steps := []func(context.Context) error{c.binaryLog, c.replication, c.dates, c.promise, c.width}
	if m == nil {
		is, err := rowsOf(ctx, db, "SELECT DATABASE() AS name")
		if err != nil {
			return nil, err
		}
		m = standard(is[0]["name"])
		steps = append(steps, c.signs)
	} else {
		mistakes, err := m.mistakes(ctx, db, names)
		wrong := false
		for _, one := range mistakes {
			c.add(!one.mild, one.where, cmp.Or(one.do, "correct the file, or the table"), "%s", one.what)
			wrong = wrong || !one.mild
		}
		if err != nil || wrong {
			return c.found, err
		}
		steps = append(steps, c.copies, c.compare, c.conditions)
	}
	c.Map = m
	if err := c.triggers(ctx); err != nil {
		return nil, err
	}
	if c.described || c.triggered {
		steps = append(steps, c.foreignKeys, c.touched)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil && !mysql.IsDeniedOrUnknown(err) && !mysql.IsViewInvalid(err) {
			return nil, err
		}
	}
	return c.found, nil
}

// standard describes a site whose tables are those of schema.sql.
func standard(database string) *Map {
	m, err := Parse("", `database = x
[users]
table = y.users
id = id
last_upload = last_upload
[contacts]
table = y.contacts
user_id = user_id
contact_id = contact_id
[blocks]
table = none
[photos]
table = y.photos
id = id
owner_id = owner_id
visibility = visibility
date_upload = date_upload`)
	if err != nil {
		panic("mapping: " + err.Error())
	}
	m.database = database
	for _, s := range m.all() {
		s.table.database = database
	}
	return m
}

// checker is one check.
type checker struct {
	*Map

	db        *sql.DB
	names     schema.Names
	described bool // by a file
	triggered bool // there are triggers of activityd's
	found     []schema.Finding
}

func (c *checker) add(wrong bool, table, do, what string, args ...any) {
	c.found = append(c.found, schema.Finding{Wrong: wrong, Table: table, What: fmt.Sprintf(what, args...), Do: do})
}

// in returns the databases of the site's tables for a condition.
func (c *checker) in() string {
	var list []string
	for _, name := range c.databases() {
		list = append(list, schema.Text(c.names.Key(name)))
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// triggers compares the triggers with the description, and looks for the users in whose name they run.
func (c *checker) triggers(ctx context.Context) error {
	list, err := rowsOf(ctx, c.db, "SELECT trigger_name, event_object_table, definer FROM information_schema.triggers"+
		" WHERE trigger_schema IN "+c.in()+" AND trigger_name LIKE 'activityd\\_%'")
	if err != nil {
		return err
	}
	c.triggered = len(list) > 0
	if c.described {
		findings, err := c.Triggers().Check(ctx, c.db, "activityd schema --triggers --apply --map "+c.file)
		if err != nil {
			return err
		}
		c.found = append(c.found, findings...)
	}
	if !c.triggered {
		for _, name := range []string{"contacts", "blocks"} {
			if c.copied(name) {
				c.add(false, name, "activityd schema --triggers --apply --map "+c.file, "has copies, and this user sees no triggers that keep them")
			}
		}
		return nil
	}
	users, err := rowsOf(ctx, c.db, "SELECT CONCAT(user, '@', host) AS name FROM mysql.user")
	if err != nil {
		if mysql.IsDeniedOrUnknown(err) {
			return nil
		}
		return err
	}
	for _, t := range list {
		if !slices.ContainsFunc(users, func(u row) bool { return u["name"] == t["definer"] }) {
			c.add(true, t["event_object_table"], "make that user again with its rights, or install the triggers as another one",
				"has the trigger %s, which runs in the name of %s: there is no such user, and every change fails", t["trigger_name"], t["definer"])
			return nil
		}
	}
	return nil
}

// foreignKeys finds keys whose actions change rows that triggers watch: no trigger sees them.
func (c *checker) foreignKeys(ctx context.Context) error {
	list, err := rowsOf(ctx, c.db, "SELECT r.constraint_schema, r.constraint_name, r.table_name, r.referenced_table_name, r.delete_rule, r.update_rule,"+
		" k.column_name, k.referenced_table_schema FROM information_schema.referential_constraints r"+
		" JOIN information_schema.key_column_usage k ON k.constraint_schema = r.constraint_schema AND k.constraint_name = r.constraint_name AND k.table_name = r.table_name"+
		" WHERE r.constraint_schema IN "+c.in()+" AND k.referenced_table_name IS NOT NULL ORDER BY r.table_name, r.constraint_name, k.ordinal_position")
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, s := range c.all() {
		for _, r := range list {
			if !c.same(table{r["constraint_schema"], r["table_name"]}, s.table) {
				continue
			}
			for _, action := range []struct{ event, rule string }{{"DELETE", r["delete_rule"]}, {"UPDATE", r["update_rule"]}} {
				what := c.missed(s, r, action.event, action.rule)
				key := r["constraint_name"] + action.event
				if what == "" || seen[key] {
					continue
				}
				seen[key] = true
				c.add(false, r["table_name"], fmt.Sprintf("make the key of %s (%s) without it, and have the site change these rows by a statement before", r["table_name"], r["column_name"]),
					"has the foreign key %s ON %s %s, whose changes fire no trigger: %s", r["constraint_name"], action.event, action.rule, what)
			}
		}
	}
	return nil
}

// same reports whether the server takes two names for one table.
func (c *checker) same(a, b table) bool { return c.names.Key(a.plain()) == c.names.Key(b.plain()) }

// missed returns what goes unreported if a foreign key acts; "" if nothing does.
func (c *checker) missed(s *section, key row, event, rule string) string {
	if rule != "CASCADE" && rule != "SET NULL" && rule != "SET DEFAULT" {
		return ""
	}
	removes := event == "DELETE" && rule == "CASCADE"
	toUsers := c.same(table{key["referenced_table_schema"], key["referenced_table_name"]}, c.users().table)
	uses := s.uses(key["column_name"])
	if !removes && !uses {
		return ""
	}
	switch {
	case c.copied(s.name):
		return "the copy in " + c.database + "." + s.name + " would stay as it was"
	case s.name == "users" && removes:
		return "members who go so stay in the sets of their followers"
	case s.name == "users":
		return "members who come or go so are not reported"
	case s.name == "contacts" && event == "DELETE" && toUsers:
		return "" // the trigger on members reports each follower
	case s.name == "contacts" && event == "DELETE":
		return "contacts who go so stay in sets until a read meets them"
	case s.name == "contacts":
		return "the sets keep the contacts that were, and lack those that are"
	case s.name == "photos" && !removes && !toUsers:
		return "photos that are shown so are not announced, and last_upload is too low for them"
	}
	return ""
}

// uses reports whether a section asks for a column.
func (s *section) uses(column string) bool {
	for _, v := range s.values {
		if slices.ContainsFunc(v.expr.columns, func(name string) bool { return strings.EqualFold(name, column) }) {
			return true
		}
	}
	return false
}

// touched finds columns that the server sets whenever last_upload is raised.
func (c *checker) touched(ctx context.Context) error {
	t := c.users().table
	list, err := rowsOf(ctx, c.db, "SELECT column_name FROM information_schema.columns WHERE table_schema = "+schema.Text(t.database)+
		" AND table_name = "+schema.Text(t.name)+" AND extra LIKE '%on update%'")
	for _, r := range list {
		c.add(false, t.name, "have the site set it, or let nothing depend on it",
			"column %s is ON UPDATE CURRENT_TIMESTAMP: with triggers, each upload changes it", r["column_name"])
	}
	return err
}

// binaryLog finds changes that would not reach the server that takes over.
func (c *checker) binaryLog(ctx context.Context) error {
	list, err := rowsOf(ctx, c.db, "SHOW SESSION VARIABLES WHERE variable_name IN ('log_bin', 'sql_log_bin', 'binlog_format')")
	if err != nil {
		return err
	}
	is := make(map[string]string)
	for _, r := range list {
		is[r["variable_name"]] = r["value"]
	}
	if is["log_bin"] != "ON" {
		return nil
	}
	if is["binlog_format"] == "STATEMENT" {
		c.add(true, "tasks", "SET GLOBAL binlog_format = 'ROW';, also in the server's configuration", "cannot be written: binlog_format is STATEMENT, which READ COMMITTED does not bear")
	}
	if is["sql_log_bin"] == "OFF" {
		c.add(true, "tasks", "take sql_log_bin out of init_connect", "and triggers that are made with this user's connections stay out of the binary log: after a failover they are not there")
	}
	filters, err := rowsOf(ctx, c.db, "SHOW MASTER STATUS")
	if mysql.IsDeniedOrUnknown(err) {
		filters, err = rowsOf(ctx, c.db, "SHOW BINARY LOG STATUS")
	}
	for _, r := range filters {
		only, never := r["binlog_do_db"], r["binlog_ignore_db"]
		for _, name := range slices.Compact(slices.Sorted(slices.Values(append(c.databases(), c.database)))) {
			if only != "" && !slices.Contains(strings.Split(only, ","), name) || slices.Contains(strings.Split(never, ","), name) {
				c.add(true, "tasks", "let binlog_do_db and binlog_ignore_db leave it in", "and the site's changes may part: the binary log leaves the database %s out", name)
			}
		}
	}
	return err
}

// replication finds a server to which changes come from another one.
func (c *checker) replication(ctx context.Context) error {
	list, err := rowsOf(ctx, c.db, "SHOW SLAVE STATUS")
	if mysql.IsDeniedOrUnknown(err) {
		list, err = rowsOf(ctx, c.db, "SHOW REPLICA STATUS")
	}
	if len(list) > 0 && (c.described || c.triggered) {
		c.add(false, "tasks", "name the server that the site writes to in --mysql-dsn", "misses what comes by replication, of which this server has a source: such rows fire no trigger")
	}
	return err
}

// The dates of what is newest tell what their unit and their time zone are.
func (c *checker) dates(ctx context.Context) error {
	for _, of := range []struct{ name, column string }{{"photos", "date_upload"}, {"users", "last_upload"}} {
		list, err := rowsOf(ctx, c.db, fmt.Sprintf("SELECT COALESCE(MAX(%s), 0) AS newest, UNIX_TIMESTAMP() AS now FROM (SELECT %s FROM %s ORDER BY id DESC LIMIT 100) AS latest", of.column, of.column, of.name))
		if err != nil {
			return err
		}
		newest, _ := strconv.ParseFloat(list[0]["newest"], 64)
		now, _ := strconv.ParseFloat(list[0]["now"], 64)
		ahead := newest - now
		switch {
		case ahead > 10*365*24*3600:
			c.add(true, of.name, "divide it: date_type = milliseconds in the file of --map, or DIV 1000 in the view", "column %s has %.0f, which is no date in unix seconds; in milliseconds it would be one", of.column, newest)
		case ahead > 600:
			c.add(false, of.name, "write it in UTC; order stays right as long as all have one time zone", "column %s is up to %.0f s ahead of the server's clock: a local time, or another clock", of.column, ahead)
		}
	}
	return nil
}

// promise looks whether last_upload bounds the newest photos.
func (c *checker) promise(ctx context.Context) error {
	list, err := rowsOf(ctx, c.db, "SELECT u.id FROM (SELECT owner_id, visibility, date_upload FROM photos ORDER BY id DESC LIMIT 100) AS p"+
		" JOIN users u ON u.id = p.owner_id WHERE p.visibility <> 'private' AND p.date_upload > COALESCE(u.last_upload, 0) ORDER BY u.id LIMIT 1")
	for _, r := range list {
		c.add(false, "users", "bring it up: docs/adoption.md", "last_upload of member %s is earlier than a photo that others may see, which no read finds", r["id"])
	}
	return err
}

// signs looks for numbers below zero where a column may have them.
func (c *checker) signs(ctx context.Context) error {
	for _, of := range []struct{ name, column string }{
		{"users", "id"}, {"users", "last_upload"}, {"contacts", "user_id"}, {"contacts", "contact_id"}, {"photos", "id"}, {"photos", "owner_id"}, {"photos", "date_upload"},
	} {
		is, err := c.typeOf(ctx, table{c.database, of.name}, of.column)
		if err != nil {
			return err
		}
		if is["column_type"] == "" || strings.Contains(is["column_type"], "unsigned") {
			continue
		}
		var below []row
		if !strings.HasSuffix(of.column, "_upload") { // dates have no index of their own
			below, err = rowsOf(ctx, c.db, fmt.Sprintf("SELECT %s AS id FROM %s WHERE %s < 0 ORDER BY %s LIMIT 1", of.column, of.name, of.column, of.column))
			if err != nil {
				return err
			}
		}
		if len(below) > 0 {
			c.add(true, of.name, "keep such rows out by a view with WHERE "+of.column+" > 0: docs/adoption.md", "column %s has %s: an answer with it fails, and a trigger on its row, with the site's change", of.column, below[0]["id"])
			continue
		}
		c.add(false, of.name, "make it UNSIGNED", "column %s is %s, and may have numbers below 0, such as the -1 of a conversion that failed", of.column, is["column_type"])
	}
	return nil
}

// width compares last_upload with the dates that triggers raise it to.
func (c *checker) width(ctx context.Context) error {
	users, photos := c.users(), c.photos()
	last, err := c.typeOf(ctx, users.table, users.values["last_upload"].expr.columns[0])
	if err != nil {
		return err
	}
	date, err := c.typeOf(ctx, photos.table, photos.values["date_upload"].expr.columns[0])
	if err != nil {
		return err
	}
	most := func(of row) int { // in bits; a DATETIME may be in the year 9999
		bits := 8 * schema.Integers[of["data_type"]]
		if bits > 0 && !strings.Contains(of["column_type"], "unsigned") {
			bits--
		}
		return cmp.Or(bits, 38)
	}
	if last["column_type"] != "" && most(last) < most(date) && most(last) < 38 {
		c.add(false, users.table.name, "ALTER TABLE "+users.table.String()+" MODIFY COLUMN "+users.column("last_upload", "")+" BIGINT UNSIGNED NULL;",
			"column %s is %s, narrower than the dates of photos (%s): with triggers, the site's own INSERT of a photo that is dated later than it holds fails", last["column_name"], last["column_type"], date["column_type"])
	}
	return nil
}

// typeOf returns the type of a column; nil if there is none.
func (c *checker) typeOf(ctx context.Context, t table, column string) (row, error) {
	list, err := rowsOf(ctx, c.db, "SELECT column_name, data_type, column_type FROM information_schema.columns WHERE table_schema = "+
		schema.Text(c.names.Key(t.database))+" AND table_name = "+schema.Text(c.names.Key(t.name))+" AND column_name = "+schema.Text(column))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return list[0], nil
}

// copies asks how a trigger would find the rows of a pair that is copied.
func (c *checker) copies(ctx context.Context) error {
	for _, s := range c.all() {
		if !c.copied(s.name) {
			continue
		}
		user, other := s.column("user_id", ""), s.column(s.other(), "")
		steps, err := rowsOf(ctx, c.db, "EXPLAIN FORMAT=TRADITIONAL SELECT COUNT(*) FROM "+s.table.String()+" WHERE "+user+" = 1 AND "+other+" = 2")
		if err != nil {
			return err
		}
		for _, step := range steps {
			if (step["type"] == "ALL" || step["type"] == "index") && step["possible_keys"] == "" {
				c.add(false, s.table.name, "ALTER TABLE "+s.table.String()+" ADD KEY ("+user+", "+other+");", "there is no index (%s, %s): each change of a pair scans the whole table, and locks it", user, other)
			}
		}
	}
	return nil
}

// Remedies makes the remedies of findings those of this site: the indexes beneath its views, and its file.
func (m *Map) Remedies(findings []schema.Finding) []schema.Finding {
	for i, f := range findings {
		f.Do = strings.Replace(f.Do, "schema --apply makes it, with --map FILE where a file describes the site's tables", "schema --apply makes it", 1)
		findings[i].Do = strings.ReplaceAll(f.Do, "schema --apply", "schema --apply --map "+m.file)
		if !strings.Contains(f.What, ", beneath the view: ") {
			continue
		}
		var statements []string
		for _, x := range m.Indexes() {
			if x.of == f.Table && (!strings.Contains(f.What, "(contact_id") || strings.HasSuffix(x.name, "followers")) {
				statements = append(statements, x.Statement()+";")
			}
		}
		if len(statements) > 0 {
			findings[i].Do = strings.Join(statements, " ")
		}
	}
	return findings
}
