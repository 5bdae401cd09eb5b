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

// rendered returns the result of a template. It fails only if the template is wrong.
func rendered(name string, data any) string {
	var text strings.Builder
	if err := templates.ExecuteTemplate(&text, name, data); err != nil {
		panic("mapping: " + err.Error())
	}
	return text.String()
}

// The templates see a section by these methods. Row, New and Old are [section.row] of the row of a statement, and of
// the rows after and before a change.

func (s *section) Name() string                  { return s.name }
func (s *section) Table() string                 { return s.table.String() }
func (s *section) Own(name string) string        { return s.m.own(name) }
func (s *section) Users() *section               { return s.m.Users() }
func (s *section) Row() map[string]string        { return s.row("") }
func (s *section) New() map[string]string        { return s.row("NEW.") }
func (s *section) Old() map[string]string        { return s.row("OLD.") }
func (s *section) At(pair map[string]string) any { return about{s, pair} }

// about is a section, and the row about whose pair a template asks.
type about struct {
	*section

	Pair map[string]string
}

// All are the sections of contacts.
func (s *section) All() []*section { return s.m.Contacts() }

// OfTable are the sections of contacts of the same table.
func (s *section) OfTable() []*section {
	return slices.DeleteFunc(slices.Clone(s.All()), func(o *section) bool { return o.table != s.table })
}

// Users is the section of members.
func (m *Map) Users() *section { return m.sections["users"][0] }

// Blocks is the section of blocks, nil if there is no table for it.
func (m *Map) Blocks() *section {
	if s := m.sections["blocks"][0]; !s.none {
		return s
	}
	return nil
}

// Photos is the section of photos.
func (m *Map) Photos() *section { return m.sections["photos"][0] }

// Contacts are the sections of contacts.
func (m *Map) Contacts() []*section { return m.sections["contacts"] }

// File is the name of the file.
func (m *Map) File() string { return m.file }

// QuotedDatabase is the database of the views as an identifier.
func (m *Map) QuotedDatabase() string { return schema.Quote(m.database) }

// Copy is the first section of contacts, if a table of activityd's own has them; else nil.
func (m *Map) Copy() *section {
	if !m.copied() {
		return nil
	}
	return m.Contacts()[0]
}

// PrintViews writes all that a site's database gets, but for the triggers, in statements for the MySQL
// client: columns, indexes, the views, and how to bring up the columns that triggers keep.
func (m *Map) PrintViews(out io.Writer) error { return templates.ExecuteTemplate(out, "parts", m) }

// PrintTriggers writes the triggers, in statements for the MySQL client.
func (m *Map) PrintTriggers(out io.Writer) error { return templates.ExecuteTemplate(out, "script", m) }

// View is a view that takes the place of a table of the site's.
type View struct {
	Name, Statement string

	query string
}

// Views returns the views. Contacts of several sections have none.
func (m *Map) Views() (list []View) {
	for _, s := range m.all() {
		if s.name != "contacts" || !m.copied() {
			query := rendered(s.name, s)
			list = append(list, View{s.name, "CREATE OR REPLACE VIEW " + m.own(s.name) + " AS\n" + query, query})
		}
	}
	return list
}

// Triggers returns the triggers that report the changes of the site's tables. Triggers on updates of photos come
// first: a photo that is uploaded in private and shown before the last is replaced would be missed.
func (m *Map) Triggers() schema.Triggers {
	all := schema.Triggers{Probes: m.probes(), Required: m.copied()}
	for _, s := range m.all() {
		all.Databases = append(all.Databases, s.table.database)
	}
	all.Databases = slices.Compact(slices.Sorted(slices.Values(all.Databases)))
	add := func(s *section, body, label string, events ...string) {
		for _, event := range events {
			all.List = append(all.List, schema.Trigger{
				Database: s.table.database, Table: s.table.name, When: event, Origin: m.place(s.line) + " [" + s.name + "]",
				Name: "activityd_" + label + "_" + strings.ToLower(strings.ReplaceAll(event, " ", "_")),
				Body: rendered(body+" "+event, s),
			})
		}
	}
	add(m.Photos(), "photos", "photos", "BEFORE UPDATE", "AFTER UPDATE", "BEFORE INSERT", "AFTER INSERT")
	tables := 0
	for _, s := range m.Contacts() {
		switch {
		case !m.copied():
			add(s, "contacts", "contacts", "AFTER INSERT", "AFTER UPDATE", "AFTER DELETE")
		case s == s.OfTable()[0]:
			tables++
			add(s, "copies", fmt.Sprintf("contacts_%d", tables), "AFTER INSERT", "AFTER UPDATE", "AFTER DELETE")
		}
	}
	add(m.Users(), "users", "users", "AFTER INSERT", "AFTER UPDATE", "BEFORE DELETE")
	return all
}

// probes are statements that change nothing and fail where a trigger would.
func (m *Map) probes() []string { return strings.Split(rendered("probes", m), ";\n") }
