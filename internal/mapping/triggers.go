package mapping

import (
	"fmt"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// Triggers returns the triggers that report the changes of the site's tables.
func (m *Map) Triggers() schema.Triggers {
	list := slices.Concat(m.photoTriggers(), m.contactTriggers(), m.copyTriggers("contacts"), m.copyTriggers("blocks"), m.userTriggers())
	return schema.Triggers{Databases: m.databases(), List: list, Probes: m.probes()}
}

// probes are statements that change nothing and fail where a trigger would.
func (m *Map) probes() (list []string) {
	users := m.users()
	last := users.column("last_upload", "")
	list = []string{
		"UPDATE " + users.table.String() + " SET " + last + " = " + last + " WHERE FALSE",
		"SELECT " + users.column("id", "") + " FROM " + users.table.String() + " WHERE FALSE FOR UPDATE",
		"SELECT user_id, contact_id FROM " + m.own("contacts") + " WHERE FALSE",
		"INSERT INTO " + m.own("tasks") + " (type, subject, args) SELECT 'upload', 0, JSON_OBJECT() FROM DUAL WHERE FALSE",
	}
	for _, s := range m.all() {
		if m.copied(s.name) {
			list = append(list, s.pairs("FALSE")+" LOCK IN SHARE MODE", "UPDATE "+m.own(s.name)+" SET user_id = user_id WHERE FALSE",
				"DELETE FROM "+m.own(s.name)+" WHERE FALSE",
				fmt.Sprintf("INSERT INTO %s (user_id, %s) SELECT 0, 0 FROM DUAL WHERE FALSE", m.own(s.name), s.other()))
		}
	}
	return list
}

// body puts statements between BEGIN and END.
func body(parts ...string) string {
	return "BEGIN\n" + strings.Join(parts, "\n") + "\nEND"
}

// when returns an IF, or nothing if there are no statements.
func when(condition string, statements ...string) string {
	inner := strings.ReplaceAll(strings.Join(statements, "\n"), "\n", "\n  ")
	return "IF " + condition + " THEN\n  " + inner + "\nEND IF;"
}

func (s *section) trigger(name, event, text string) schema.Trigger {
	return schema.Trigger{
		Database: s.table.database, Table: s.table.name, When: event, Body: text, Origin: s.origin,
		Name: "activityd_" + name + "_" + strings.ToLower(strings.ReplaceAll(event, " ", "_")),
	}
}

func (m *Map) task(kind, subject, args string) string {
	switch {
	case kind == "refill":
		return "INSERT INTO " + m.own("tasks") + " (type, queue, subject) VALUES ('refill', 'refill', " + subject + ");"
	case args == "":
		return "INSERT INTO " + m.own("tasks") + " (type, subject) VALUES ('" + kind + "', " + subject + ");"
	}
	return "INSERT INTO " + m.own("tasks") + " (type, subject, args) VALUES ('" + kind + "', " + subject + ", JSON_OBJECT('contact_id', " + args + "));"
}

// photoTriggers raise last_upload, from which the trigger on users makes a task. They lock the
// owner before a photo that others may see comes to it, as those of triggers.sql do. A member who
// does not exist is raised, too: it may come back.
func (m *Map) photoTriggers() []schema.Trigger {
	s, users := m.photos(), m.users()
	id, last := users.column("id", ""), users.column("last_upload", "")
	owner, was := s.column("owner_id", "NEW."), s.column("owner_id", "OLD.")
	lock := "SET the_owner = (SELECT " + id + " FROM " + users.table.String() + " WHERE " + id + " = " + owner + " FOR UPDATE);"
	raise := "UPDATE " + users.table.String() + " SET " + last + " = " + s.date("NEW.") + "\nWHERE " + id + " = " + owner +
		" AND COALESCE(" + last + ", 0) < " + s.date("NEW.") + ";"
	const declare = "DECLARE the_owner BIGINT;"
	moved := "NOT (" + owner + " <=> " + was + ")"
	return []schema.Trigger{
		s.trigger("photos", "BEFORE UPDATE", body(declare, when(moved+" AND "+s.visible("NEW."), lock))),
		s.trigger("photos", "AFTER UPDATE", body(when(s.visible("NEW.")+" AND\n  (NOT ("+s.visible("OLD.")+") OR "+moved+" OR "+s.date("NEW.")+" > "+s.date("OLD.")+")", raise))),
		s.trigger("photos", "BEFORE INSERT", body(declare, when(s.visible("NEW."), lock))),
		s.trigger("photos", "AFTER INSERT", body(when(s.visible("NEW."), raise))),
	}
}

// contactTriggers report the contacts of one table. A row that begins to exist, or ceases to, by an
// UPDATE is a contact that is added or removed.
func (m *Map) contactTriggers() []schema.Trigger {
	if m.copied("contacts") {
		return nil
	}
	s := m.sections["contacts"][0]
	task := func(kind, row string) string {
		return m.task(kind, s.column("user_id", row), s.column("contact_id", row))
	}
	is, was := isTrue(s.exists("NEW.")), isTrue(s.exists("OLD."))
	other := s.moved("user_id", "contact_id")
	return []schema.Trigger{
		s.trigger("contacts", "AFTER INSERT", body(when(is, task("add_contact", "NEW.")))),
		s.trigger("contacts", "AFTER UPDATE", body(
			when(was+" AND ("+other+" OR NOT ("+is+"))", task("remove_contact", "OLD.")),
			when(is+" AND ("+other+" OR NOT ("+was+"))", task("add_contact", "NEW.")))),
		s.trigger("contacts", "AFTER DELETE", body(when(was, task("remove_contact", "OLD.")))),
	}
}

// moved returns the condition that one of the columns of some keys has changed.
func (s *section) moved(keys ...string) string {
	var same []string
	for _, key := range keys {
		for _, column := range s.values[key].expr.columns {
			same = append(same, "NEW."+schema.Quote(column)+" <=> OLD."+schema.Quote(column))
		}
	}
	return "NOT (" + strings.Join(same, " AND ") + ")"
}

// changed returns the condition that a row means another pair, or grants something else. It compares
// what the conditions come to: columns of text may be equal in their collation where a condition differs.
func (s *section) changed() string {
	conditions := []string{s.moved("user_id", s.other())}
	differs := func(value func(row string) string) {
		conditions = append(conditions, "("+value("NEW.")+") <> ("+value("OLD.")+")")
	}
	differs(func(row string) string { return isTrue(s.exists(row)) })
	for _, flag := range s.flags() {
		if s.has(flag) {
			differs(func(row string) string { return s.flag(flag, row) })
		}
	}
	return strings.Join(conditions, " OR\n  ")
}

// copyTriggers keep a table of activityd's own that holds the pairs of several sections.
func (m *Map) copyTriggers(name string) (list []schema.Trigger) {
	if !m.copied(name) {
		return nil
	}
	// A column that had the name of a variable would be taken for it.
	const declare = "DECLARE activityd_was, activityd_is, activityd_friend, activityd_family INT;"
	var tables []table
	for _, s := range m.sections[name] {
		if !slices.Contains(tables, s.table) {
			tables = append(tables, s.table)
		}
	}
	for n, t := range tables {
		of := slices.DeleteFunc(slices.Clone(m.sections[name]), func(s *section) bool { return s.table != t })
		var inserted, updated, deleted []string
		for _, s := range of {
			is, was := isTrue(s.exists("NEW.")), isTrue(s.exists("OLD."))
			inserted = append(inserted, when(is, m.refresh(s, "NEW.")))
			deleted = append(deleted, when(was, m.refresh(s, "OLD.")))
			updated = append(updated, when(s.changed(),
				when(was, m.refresh(s, "OLD.")),
				when(is+" AND ("+s.moved("user_id", s.other())+" OR NOT ("+was+"))", m.refresh(s, "NEW."))))
		}
		label := fmt.Sprintf("%s_%d", name, n+1)
		for _, event := range []struct {
			name  string
			parts []string
		}{{"AFTER INSERT", inserted}, {"AFTER UPDATE", updated}, {"AFTER DELETE", deleted}} {
			list = append(list, of[0].trigger(label, event.name, body(append([]string{declare}, event.parts...)...)))
		}
	}
	return list
}

// refresh makes the copy of the pair of a row what all sections say, which are read with locks: a
// snapshot may be older than what another transaction has changed. A lock that is shared is what MySQL
// grants a trigger on the table that the statement changes. Its key says whether the copy is
// there: to ask with a lock would lock the gap where it is to be, and new pairs of others with it.
// It reports a contact that is new or gone.
func (m *Map) refresh(s *section, row string) string {
	user, other := s.column("user_id", row), s.column(s.other(), row)
	pair := " WHERE user_id = " + user + " AND " + s.other() + " = " + other
	own := m.own(s.name)
	lines := []string{"SET activityd_is = 0, activityd_friend = 0, activityd_family = 0;"}
	for _, each := range m.sections[s.name] {
		columns := []string{"activityd_is + COUNT(*)", "activityd_friend", "activityd_family"}
		for i, flag := range each.flags() {
			columns[i+1] = "GREATEST(" + columns[i+1] + ", COALESCE(MAX(" + each.flag(flag, "") + "), 0))"
		}
		lines = append(lines, "SELECT "+strings.Join(columns, ", ")+"\n  INTO activityd_is, activityd_friend, activityd_family FROM "+each.table.String()+
			"\n  WHERE "+all(each.column("user_id", "")+" = "+user, each.column(each.other(), "")+" = "+other, each.exists(""))+" LOCK IN SHARE MODE;")
	}
	if s.name == "blocks" {
		insert := "INSERT INTO " + own + " (user_id, blocked_id) VALUES (" + user + ", " + other + ")\n  ON DUPLICATE KEY UPDATE user_id = user_id;"
		return strings.Join(append(lines, when("activityd_is > 0", insert), when("activityd_is = 0", "DELETE FROM "+own+pair+";")), "\n")
	}
	return strings.Join(append(lines,
		when("activityd_is > 0",
			"SET activityd_was = 0;",
			body("  DECLARE CONTINUE HANDLER FOR 1062 SET activityd_was = 1;", // of this INSERT alone
				"  INSERT INTO "+own+" (user_id, contact_id, is_friend, is_family) VALUES ("+user+", "+other+", activityd_friend, activityd_family);")+";",
			when("activityd_was = 0", m.task("add_contact", user, other)),
			when("activityd_was = 1", "UPDATE "+own+" SET is_friend = activityd_friend, is_family = activityd_family"+pair+";")),
		when("activityd_is = 0", "DELETE FROM "+own+pair+";", m.task("remove_contact", user, other))), "\n")
}

// userTriggers report members who come, upload and go. A member who goes, by a DELETE or by an
// UPDATE, is reported to each follower; the cursor is that of triggers.sql.
func (m *Map) userTriggers() []schema.Trigger {
	s := m.users()
	id, last := s.column("id", "NEW."), s.column("last_upload", "NEW.")
	is, was := isTrue(s.exists("NEW.")), isTrue(s.exists("OLD."))
	comes := when(last+" > 0", m.task("upload", id, "")) + "\n" +
		when("EXISTS (SELECT 1 FROM "+m.own("contacts")+" WHERE user_id = "+id+")", m.task("refill", id, ""))
	old := s.column("id", "OLD.")
	declare := `DECLARE follower BIGINT UNSIGNED;
DECLARE done BOOLEAN DEFAULT FALSE;
DECLARE followers CURSOR FOR SELECT user_id FROM ` + m.own("contacts") + ` WHERE contact_id = ` + old + ` LIMIT 18446744073709551615;
DECLARE CONTINUE HANDLER FOR NOT FOUND SET done = TRUE;`
	goes := `OPEN followers;
each_follower: LOOP
  FETCH followers INTO follower;
  IF done THEN LEAVE each_follower; END IF;
  ` + m.task("remove_contact", "follower", old) + `
END LOOP;
CLOSE followers;
` + m.task("refill", old, "")
	moved := s.moved("id")
	return []schema.Trigger{
		s.trigger("users", "AFTER INSERT", body(when(is, comes))),
		s.trigger("users", "AFTER UPDATE", body(declare,
			when(was+" AND ("+moved+" OR NOT ("+is+"))", goes),
			"IF "+is+" AND ("+moved+" OR NOT ("+was+")) THEN\n  "+strings.ReplaceAll(comes, "\n", "\n  ")+
				"\nELSEIF "+is+" AND "+last+" > COALESCE("+s.column("last_upload", "OLD.")+", 0) THEN\n  "+m.task("upload", id, "")+"\nEND IF;")),
		s.trigger("users", "BEFORE DELETE", body(declare, when(was, goes))),
	}
}
