package mapping

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/activityd/activityd/internal/schema"
)

//go:embed *.tmpl
var files embed.FS

var templates = template.Must(template.New("").ParseFS(files, "*.tmpl"))

// rendered returns the result of a template for a section, or for the map. It fails only if the template is wrong.
func rendered(name string, data any) string {
	var text strings.Builder
	if err := templates.ExecuteTemplate(&text, name, data); err != nil {
		panic("mapping: " + err.Error())
	}
	return text.String()
}

// model is a section as templates see it.
type model struct {
	*section
	m *Map

	// The SQL of its keys, and of their consequences, over a row of a statement, and over the row after
	// and before a change.
	Row, New, Old map[string]string
	// Pair is the row about whose pair a template asks.
	Pair map[string]string
}

func (m *Map) model(s *section) model {
	return model{section: s, m: m, Row: s.row(""), New: s.row("NEW."), Old: s.row("OLD.")}
}

func (m *Map) models(sections []*section) (list []model) {
	for _, s := range sections {
		list = append(list, m.model(s))
	}
	return list
}

// At returns the model for the pair of a row.
func (m model) At(row map[string]string) model {
	m.Pair = row
	return m
}

// Name is that of the section.
func (m model) Name() string { return m.name }

// Table is the site's.
func (m model) Table() string { return m.table.String() }

// Own returns the name of a table of activityd's, or of a view.
func (m model) Own(name string) string { return m.m.own(name) }

// Users is the section of members.
func (m model) Users() model { return m.m.Users() }

// All are the sections of the same name.
func (m model) All() []model { return m.m.models(m.m.sections[m.name]) }

// OfTable are the sections of the same table.
func (m model) OfTable() []model {
	return m.m.models(slices.DeleteFunc(slices.Clone(m.m.sections[m.name]), func(s *section) bool { return s.table != m.table }))
}

// Other is the second member's key in a pair.
func (m model) Other() string { return m.other() }

// Moved is the condition that a row has come to be about different members.
func (m model) Moved() string {
	keys := []string{"id"}
	if m.name == "contacts" || m.name == "blocks" {
		keys = []string{"user_id", "other"}
	}
	var same []string
	for _, key := range keys {
		same = append(same, m.New[key]+" <=> "+m.Old[key])
	}
	return "NOT (" + strings.Join(same, " AND ") + ")"
}

// Changed is the condition that a row means another pair, or grants something else. It compares the
// results of conditions: columns of text may be equal in their collation where a condition differs.
func (m model) Changed() string {
	conditions := []string{m.Moved()}
	for _, key := range []string{"is", "is_friend", "is_family"} {
		if m.New[key] != m.Old[key] { // it depends on the row
			conditions = append(conditions, "("+m.New[key]+") <> ("+m.Old[key]+")")
		}
	}
	return strings.Join(conditions, " OR\n    ")
}

// row returns the SQL of a section over a row: "NEW.", "OLD.", or "" for that of a statement.
func (s *section) row(prefix string) map[string]string {
	is := make(map[string]string)
	for key, v := range s.values {
		is[key] = v.expr.of(prefix)
	}
	is["exists"] = s.exists(prefix)
	is["is"] = isTrue(is["exists"])
	is["is_friend"], is["is_family"] = s.flag("is_friend", prefix), s.flag("is_family", prefix)
	is["other"] = is[s.other()]
	is["username"], is["title"] = s.text("username"), s.text("title")
	if s.name == "photos" {
		is["visible"], is["date"] = s.visible(prefix), s.date(prefix)
		is["indexed_visibility"], is["indexed_date"] = s.indexed()
	}
	return is
}

// The rest is the map as the templates of printed statements see it.

// Users is the section of members.
func (m *Map) Users() model { return m.model(m.users()) }

// File is the name of the file.
func (m *Map) File() string { return m.file }

// QuotedDatabase is the database of the views as an identifier.
func (m *Map) QuotedDatabase() string { return schema.Quote(m.database) }

// Copies are the first sections of each name that is copied.
func (m *Map) Copies() (list []model) {
	for _, name := range []string{"contacts", "blocks"} {
		if m.copied(name) {
			list = append(list, m.model(m.sections[name][0]))
		}
	}
	return list
}

// PrintViews writes all that a site's database gets, but for the triggers, in statements for the MySQL
// client: columns, indexes, the views, and how to bring up the columns that triggers keep.
func (m *Map) PrintViews(out io.Writer) error { return templates.ExecuteTemplate(out, "parts", m) }

// PrintTriggers writes the triggers, in statements for the MySQL client.
func (m *Map) PrintTriggers(out io.Writer) error { return templates.ExecuteTemplate(out, "script", m) }

// Views returns the views. Where several sections have a name, it has no view.
func (m *Map) Views() (list []View) {
	for _, s := range m.all() {
		if !m.copied(s.name) {
			list = append(list, View{s.name, "CREATE OR REPLACE VIEW " + m.own(s.name) + " AS\n" + rendered(s.name, m.model(s)), columnsOf[s.name]})
		}
	}
	return list
}

// Triggers returns the triggers that report the changes of the site's tables. Triggers on updates of photos come
// first: a photo that is uploaded in private and shown before the last is replaced would be missed.
func (m *Map) Triggers() schema.Triggers {
	var list []schema.Trigger
	add := func(s *section, body, label string, events ...string) {
		for _, event := range events {
			list = append(list, schema.Trigger{
				Database: s.table.database, Table: s.table.name, When: event, Origin: s.origin,
				Name: "activityd_" + label + "_" + strings.ToLower(strings.ReplaceAll(event, " ", "_")),
				Body: rendered(body+" "+event, m.model(s)),
			})
		}
	}
	add(m.photos(), "photos", "photos", "BEFORE UPDATE", "AFTER UPDATE", "BEFORE INSERT", "AFTER INSERT")
	for _, name := range []string{"contacts", "blocks"} {
		var tables []table
		for _, s := range m.sections[name] {
			switch {
			case m.copied(name) && !slices.Contains(tables, s.table):
				tables = append(tables, s.table)
				add(s, "copies", fmt.Sprintf("%s_%d", name, len(tables)), "AFTER INSERT", "AFTER UPDATE", "AFTER DELETE")
			case !m.copied(name) && name == "contacts":
				add(s, "contacts", name, "AFTER INSERT", "AFTER UPDATE", "AFTER DELETE")
			}
		}
	}
	add(m.users(), "users", "users", "AFTER INSERT", "AFTER UPDATE", "BEFORE DELETE")
	return schema.Triggers{Databases: m.databases(), List: list, Probes: m.probes(), Required: len(m.Copies()) > 0}
}

// probes are statements that change nothing and fail where a trigger would.
func (m *Map) probes() (list []string) {
	users := m.Users()
	list = []string{
		"UPDATE " + users.Table() + " SET " + users.Row["last_upload"] + " = " + users.Row["last_upload"] + " WHERE FALSE",
		"SELECT " + users.Row["id"] + " FROM " + users.Table() + " WHERE FALSE FOR UPDATE",
		"SELECT user_id, contact_id FROM " + m.own("contacts") + " WHERE FALSE",
		"INSERT INTO " + m.own("tasks") + " (type, subject, args) SELECT 'upload', 0, JSON_OBJECT() FROM DUAL WHERE FALSE",
	}
	for _, c := range m.Copies() {
		for _, s := range c.All() {
			list = append(list, rendered(s.name, s)+" AND FALSE LOCK IN SHARE MODE")
		}
		own := m.own(c.name)
		list = append(list, "UPDATE "+own+" SET user_id = user_id WHERE FALSE", "DELETE FROM "+own+" WHERE FALSE",
			fmt.Sprintf("INSERT INTO %s (user_id, %s) SELECT 0, 0 FROM DUAL WHERE FALSE", own, c.other()))
	}
	return list
}
