package mapping

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// The columns that a table of photos gets where its own cannot be in an index as they have to be.
const (
	ownVisibility = "activityd_visibility"
	ownDate       = "activityd_date"
)

// all joins conditions with AND.
func all(conditions ...string) string {
	return strings.Join(slices.DeleteFunc(conditions, func(c string) bool { return c == "" }), " AND ")
}

// isTrue makes 0 or 1 of a condition, and never NULL.
func isTrue(condition string) string { return "(" + condition + ") IS TRUE" }

// where returns the condition that the file says, in parentheses; "" if there is none.
func (s *section) where(row string) string {
	if !s.has("where") {
		return ""
	}
	return "(" + s.column("where", row) + ")"
}

// exists returns the condition that a row counts. activityd's ids are positive.
func (s *section) exists(row string) string {
	positive := func(key string) string { return s.column(key, row) + " > 0" }
	switch s.name {
	case "users":
		return all(positive("id"), s.where(row))
	case "contacts":
		return all(positive("user_id"), positive("contact_id"), s.where(row))
	case "blocks":
		return all(positive("user_id"), positive("blocked_id"), s.where(row))
	}
	id, inTime := "", ""
	if row == "" { // the id is not known before a photo is inserted
		id = positive("id")
	}
	if s.dateType() == seconds {
		inTime = s.column("date_upload", row) + " >= 0"
	}
	return all(id, positive("owner_id"), inTime, s.where(row))
}

func (s *section) dateType() string {
	if v := s.values["date_type"]; v.line > 0 {
		return v.text
	}
	return seconds
}

// date returns the date of a photo in unix seconds.
func (s *section) date(row string) string {
	column := s.column("date_upload", row)
	switch s.dateType() {
	case milliseconds:
		column += " DIV 1000"
	case datetime:
		column = "TIMESTAMPDIFF(SECOND, '1970-01-01', " + column + ")" // UNIX_TIMESTAMP would depend on the session
	default:
		return column
	}
	return "COALESCE(GREATEST(0, " + column + "), 0)"
}

// visible returns the condition that somebody else may see a photo.
func (s *section) visible(row string) string {
	if s.has("visibility") {
		return isTrue(all(s.exists(row), s.column("visibility", row)+" IN ('"+strings.Join(classes, "', '")+"')"))
	}
	var some []string
	for _, class := range classes {
		if s.has(class) {
			some = append(some, "("+s.column(class, row)+")")
		}
	}
	return isTrue(all(s.exists(row), "("+strings.Join(some, " OR ")+")"))
}

// visibility returns the word for a photo. It is NULL for a photo that does not count, so that the index has
// only photos that do where it is read, and for a word that is none of activityd's, as the column might not hold it.
func (s *section) visibility() string {
	var text strings.Builder
	text.WriteString("CASE")
	if where := s.where(""); where != "" {
		text.WriteString(" WHEN " + where + " IS NOT TRUE THEN NULL")
	}
	if s.has("visibility") {
		for _, word := range append([]string{"private"}, classes...) {
			fmt.Fprintf(&text, " WHEN %s = '%s' THEN '%s'", s.column("visibility", ""), word, word)
		}
		return text.String() + " END"
	}
	for _, class := range classes {
		if s.has(class) {
			fmt.Fprintf(&text, " WHEN %s THEN '%s'", s.column(class, ""), class)
		}
	}
	text.WriteString(" ELSE 'private' END")
	return text.String()
}

// generatesVisibility reports whether the table of photos needs a column for it: an index takes no
// expression that a view could name.
func (s *section) generatesVisibility() bool { return !s.has("visibility") || s.has("where") }

func (s *section) generatesDate() bool { return s.dateType() != seconds }

// indexed returns the columns of the visibility and the date that an index can have.
func (s *section) indexed() (visibility, date string) {
	visibility, date = s.column("visibility", ""), s.column("date_upload", "")
	if s.generatesVisibility() {
		visibility = schema.Quote(ownVisibility)
	}
	if s.generatesDate() {
		date = schema.Quote(ownDate)
	}
	return visibility, date
}

// other returns the second member's key in a pair.
func (s *section) other() string {
	if s.name == "blocks" {
		return "blocked_id"
	}
	return "contact_id"
}

func (s *section) flag(name, row string) string {
	if !s.has(name) {
		return "FALSE"
	}
	return isTrue(s.column(name, row))
}

// text returns a column as text that is never NULL. It may hold bytes, as VARBINARY does.
func (s *section) text(key string) string {
	if !s.has(key) {
		return "''"
	}
	return "COALESCE(CONVERT(" + s.column(key, "") + " USING utf8mb4), '')"
}

// columnsOf are the columns of the views, in the order of their definitions.
var columnsOf = map[string]string{
	"users":    "id, username, last_upload",
	"contacts": "user_id, contact_id, is_friend, is_family",
	"blocks":   "user_id, blocked_id",
	"photos":   "id, owner_id, title, visibility, date_upload",
}

// View is a view that takes the place of a table of the site's.
type View struct {
	Name, Statement string

	columns string // that statements read
}

// Column is a column that the site's tables get.
type Column struct {
	table      table
	name       string
	line       int    // that asks for it
	definition string // behind the name
	// mark is the comment of a generated column, by which a column of another description is known: each server
	// writes its expression in a way of its own. Empty for a plain column.
	mark string
}

// generated returns a column that the server computes.
func generated(t table, name string, line int, kind, expression string) Column {
	definition := kind + " GENERATED ALWAYS AS (" + expression + ") VIRTUAL"
	return Column{t, name, line, definition, fmt.Sprintf("activityd %.4x", sha256.Sum256([]byte(definition)))}
}

// Statement returns the ALTER TABLE of the column. It is hidden from statements that do not name it.
func (c Column) Statement() string {
	statement := "ALTER TABLE " + c.table.String() + " ADD COLUMN " + schema.Quote(c.name) + " " + c.definition + " INVISIBLE"
	if c.mark != "" {
		statement += " COMMENT '" + c.mark + "'"
	}
	return statement
}

// Columns returns the columns that the site's tables get.
func (m *Map) Columns() []Column {
	users, photos := m.users(), m.photos()
	last := users.values["last_upload"]
	list := []Column{{users.table, last.expr.columns[0], last.line, "BIGINT UNSIGNED NULL", ""}}
	if photos.generatesVisibility() {
		list = append(list, generated(photos.table, ownVisibility, photos.line, "VARCHAR(14) CHARACTER SET ascii", photos.visibility()))
	}
	if photos.generatesDate() {
		list = append(list, generated(photos.table, ownDate, photos.values["date_upload"].line, "BIGINT UNSIGNED", photos.date("")))
	}
	return list
}

// Index is an index that the site's tables need.
type Index struct {
	table   table
	name    string
	columns []string
}

// Statement returns the ALTER TABLE of the index.
func (i Index) Statement() string {
	return "ALTER TABLE " + i.table.String() + " ADD KEY " + i.name + " (" + strings.Join(i.columns, ", ") + ")"
}

// Indexes returns the indexes that the site's tables need, or their like. Their primary keys
// are taken for granted.
func (m *Map) Indexes() (list []Index) {
	for _, name := range []string{"contacts", "blocks"} {
		for n, s := range m.sections[name] {
			if s.none {
				continue
			}
			user, other := s.column("user_id", ""), s.column(s.other(), "")
			list = append(list, Index{s.table, fmt.Sprintf("activityd_%s_%d", name, n+1), []string{user, other}})
			if name == "contacts" && !m.copied(name) {
				list = append(list, Index{s.table, "activityd_followers", []string{other, user}})
			}
		}
	}
	s := m.photos()
	visibility, date := s.indexed()
	return append(list, Index{s.table, "activityd_newest", []string{s.column("owner_id", ""), visibility, date, s.column("id", "")}})
}
