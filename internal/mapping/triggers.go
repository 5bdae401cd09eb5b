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

// The templates see a map and a section by their fields, and by these methods. Row, New and Old are [section.row] of the row of a
// statement, and of the rows after and before a change.

func (s *section) Table() string          { return s.table.String() }
func (s *section) Row() map[string]string { return s.row("") }
func (s *section) New() map[string]string { return s.row("NEW.") }
func (s *section) Old() map[string]string { return s.row("OLD.") }

// At is a section, and the row about whose pair a template asks.
func (s *section) At(pair map[string]string) any {
	return struct {
		*section

		Pair map[string]string
	}{s, pair}
}

// OfTable are the sections of contacts of the same table.
func (s *section) OfTable() []*section {
	return slices.DeleteFunc(slices.Clone(s.Contacts), func(o *section) bool { return o.table != s.table })
}

// QuotedDatabase is the database of the views as an identifier.
func (m *Map) QuotedDatabase() string { return schema.Quote(m.Database) }

// Copy is the first section of contacts, if a table of activityd's own has them, as they are in several sections; else nil.
func (m *Map) Copy() *section {
	if len(m.Contacts) == 1 {
		return nil
	}
	return m.Contacts[0]
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
	line  int
}

// Views returns the views. Contacts of several sections have none.
func (m *Map) Views() (list []View) {
	for _, s := range m.all() {
		if s.Name != "contacts" || m.Copy() == nil {
			query := rendered(s.Name, s)
			list = append(list, View{s.Name, "CREATE OR REPLACE VIEW " + m.Own(s.Name) + " AS\n" + query, query, s.line})
		}
	}
	return list
}

// Triggers returns the triggers that report the changes of the site's tables. Triggers on updates of photos come
// first: a photo that is uploaded in private and shown before the last is replaced would be missed.
func (m *Map) Triggers() schema.Triggers {
	all := schema.Triggers{Probes: strings.Split(rendered("probes", m), ";\n"), Required: m.Copy() != nil}
	for _, s := range m.all() {
		all.Databases = append(all.Databases, s.table.database)
	}
	all.Databases = slices.Compact(slices.Sorted(slices.Values(all.Databases)))
	add := func(s *section, body, label string, events ...string) {
		for _, event := range events {
			all.List = append(all.List, schema.Trigger{
				Database: s.table.database, Table: s.table.name, When: event, Origin: m.place(s.line) + " [" + s.Name + "]",
				Name: "activityd_" + label + "_" + strings.ToLower(strings.ReplaceAll(event, " ", "_")),
				Body: rendered(body+" "+event, s),
			})
		}
	}
	add(m.Photos, "photos", "photos", "BEFORE UPDATE", "AFTER UPDATE", "BEFORE INSERT", "AFTER INSERT")
	tables := 0
	for _, s := range m.Contacts {
		body, label := "contacts", "contacts"
		if m.Copy() != nil {
			if s != s.OfTable()[0] {
				continue
			}
			tables++
			body, label = "copies", fmt.Sprintf("contacts_%d", tables)
		}
		add(s, body, label, "AFTER INSERT", "AFTER UPDATE", "AFTER DELETE")
	}
	add(m.Users, "users", "users", "AFTER INSERT", "AFTER UPDATE", "BEFORE DELETE")
	return all
}
