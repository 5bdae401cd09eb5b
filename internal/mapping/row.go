package mapping

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// The columns that a table of photos gets where its own cannot be in an index as they have to be.
const (
	ownVisibility = "activityd_visibility"
	ownDate       = "activityd_date"
)

// isTrue makes 0 or 1 of a condition, and never NULL.
func isTrue(condition string) string { return "(" + condition + ") IS TRUE" }

// row returns the SQL of the keys of a section, and of their consequences, over a row: "NEW.", "OLD.", or "" for that
// of a statement.
//
//	exists, is      the condition that the row counts; as 0 or 1
//	visible         the condition that a photo may be seen by members other than its owner, as 0 or 1
//	date            the date of a photo in unix seconds
//	visibility      the word for a photo
//	indexed_…       the columns of the visibility and the date that an index can have
func (s *section) row(prefix string) map[string]string {
	is := make(map[string]string)
	for key, v := range s.values {
		is[key] = v.expr.of(prefix)
	}
	var exists []string
	for _, id := range []string{"id", "owner_id", "user_id", "contact_id", "blocked_id"} { // activityd's ids are positive
		if is[id] != "" && (id != "id" || s.Name != "photos" || prefix == "") { // that of a photo is not known before it is inserted
			exists = append(exists, is[id]+" > 0")
		}
	}
	if s.Name == "photos" && s.dateType() == seconds {
		exists = append(exists, is["date_upload"]+" >= 0")
	}
	if s.has("where") {
		exists = append(exists, "("+is["where"]+")")
	}
	is["exists"] = strings.Join(exists, " AND ")
	is["is"] = isTrue(is["exists"])
	for _, flag := range []string{"is_friend", "is_family"} {
		if is[flag] = "FALSE"; s.has(flag) {
			is[flag] = isTrue(s.values[flag].expr.of(prefix))
		}
	}
	for _, text := range []string{"username", "title"} { // as text that is never NULL; it may be bytes, as in VARBINARY
		if is[text] = "''"; s.has(text) {
			is[text] = "COALESCE(CONVERT(" + s.values[text].expr.of(prefix) + " USING utf8mb4), '')"
		}
	}
	if s.Name == "photos" {
		s.photo(is)
	}
	return is
}

// photo adds the keys that only photos have.
func (s *section) photo(is map[string]string) {
	var seen, cases []string
	// The word is NULL for a photo that does not count, so that the index has only photos that do where it is read, and
	// for a word that is none of activityd's, as the column might not hold it.
	if s.has("where") {
		cases = append(cases, "WHEN ("+is["where"]+") IS NOT TRUE THEN NULL")
	}
	is["indexed_visibility"] = schema.Quote(ownVisibility)
	if column := is["visibility"]; s.has("visibility") {
		seen = []string{column + " IN ('" + strings.Join(classes, "', '") + "')"}
		for _, class := range append([]string{"private"}, classes...) {
			cases = append(cases, "WHEN "+column+" = '"+class+"' THEN '"+class+"'")
		}
		if !s.has("where") {
			is["indexed_visibility"] = column
		}
	} else {
		for _, class := range classes {
			if s.has(class) {
				seen = append(seen, "("+is[class]+")")
				cases = append(cases, "WHEN "+is[class]+" THEN '"+class+"'")
			}
		}
		cases = append(cases, "ELSE 'private'")
	}
	is["visibility"] = "CASE " + strings.Join(cases, " ") + " END"
	is["visible"] = isTrue(is["exists"] + " AND (" + strings.Join(seen, " OR ") + ")")
	column := is["date_upload"]
	is["date"], is["indexed_date"] = column, column
	if s.dateType() != seconds {
		of := map[string]string{
			milliseconds: column + " DIV 1000",
			datetime:     "TIMESTAMPDIFF(SECOND, '1970-01-01', " + column + ")", // UNIX_TIMESTAMP would depend on the session
		}
		is["date"] = "COALESCE(GREATEST(0, " + of[s.dateType()] + "), 0)"
		is["indexed_date"] = schema.Quote(ownDate)
	}
}

func (s *section) dateType() string { return cmp.Or(s.values["date_type"].text, seconds) }

// Column is a column that the site's tables get.
type Column struct {
	// Statement is the ALTER TABLE. It hides the column from statements that do not name it.
	Statement string

	table table
	name  string
	line  int // that asks for it
	// mark is the comment of a generated column, by which a column of another description is known: each server
	// writes its expression in a way of its own. Empty for a plain column.
	mark string
}

// Columns returns the columns that the site's tables get. An index takes no expression that a view could name.
func (m *Map) Columns() (list []Column) {
	add := func(s *section, name string, line int, definition string) {
		c := Column{"ALTER TABLE " + s.Table() + " ADD COLUMN " + schema.Quote(name) + " " + definition + " INVISIBLE", s.table, name, line, ""}
		if strings.Contains(definition, "GENERATED") {
			c.mark = fmt.Sprintf("activityd %.4x", sha256.Sum256([]byte(definition)))
			c.Statement += " COMMENT '" + c.mark + "'"
		}
		list = append(list, c)
	}
	last, is := m.Users.values["last_upload"], m.Photos.Row()
	add(m.Users, last.expr.columns()[0], last.line, "BIGINT UNSIGNED NULL")
	if is["indexed_visibility"] == schema.Quote(ownVisibility) {
		add(m.Photos, ownVisibility, m.Photos.line, "VARCHAR(14) CHARACTER SET ascii GENERATED ALWAYS AS ("+is["visibility"]+") VIRTUAL")
	}
	if is["indexed_date"] == schema.Quote(ownDate) {
		add(m.Photos, ownDate, m.Photos.values["date_upload"].line, "BIGINT UNSIGNED GENERATED ALWAYS AS ("+is["date"]+") VIRTUAL")
	}
	return list
}

// Indexes returns the statements that add the indexes that the site's tables need, or their like. Their primary keys
// are taken for granted.
func (m *Map) Indexes() []string { return strings.Split(rendered("indexes", m), ";\n") }
