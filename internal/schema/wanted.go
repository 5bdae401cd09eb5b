package schema

import (
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd"
)

// wantedTable is a table as schema.sql makes it.
type wantedTable struct {
	name, statement string
	owned           bool // activityd's own; else the site's
	columns         []wantedColumn
	keys            []string
}

// wantedColumn is a column of schema.sql; of the site's tables, a column that statements read.
type wantedColumn struct {
	name, definition string
	kind             kind // in a table of the site's
}

// kind is the content of a column of the site's, in words.
type kind string

const (
	aNumber kind = "a whole number"
	aFlag   kind = "a number, 0 for no"
	aText   kind = "text that is never NULL"
	aDate   kind = "unix seconds, a whole number"
)

// visibilities are the words of photos.visibility.
var visibilities = func() []string {
	_, definition, _ := strings.Cut(activityd.Schema, "\n  visibility ")
	return Words(definition)
}()

var aVisibility = kind("one of the words " + strings.Join(visibilities, ", "))

// siteColumns are the columns that statements read of the site's tables.
var siteColumns = map[string]map[string]kind{
	"users":    {"id": aNumber, "username": aText, "last_upload": aDate},
	"contacts": {"user_id": aNumber, "contact_id": aNumber, "is_friend": aFlag, "is_family": aFlag},
	"blocks":   {"user_id": aNumber, "blocked_id": aNumber},
	"photos":   {"id": aNumber, "owner_id": aNumber, "title": aText, "visibility": aVisibility, "date_upload": aDate},
}

// siteKey is an index that the site's tables need.
type siteKey struct {
	table, name string
	columns     []string
	unique      bool   // or answers are wrong
	without     string // the consequence of its absence
	probe       string // what follows SELECT in a statement that reads by it
}

var siteKeys = []siteKey{
	{"users", "", []string{"id"}, true, "each lookup of a member scans all of them", "last_upload FROM users WHERE id = 1"},
	{"contacts", "", []string{"user_id", "contact_id"}, true, "each lookup of a pair scans other rows, too", "is_friend FROM contacts WHERE user_id = 1 AND contact_id = 2"},
	{"contacts", "", []string{"user_id"}, false, "a refill and a walk scan the whole table", "contact_id FROM contacts WHERE user_id = 1"},
	{"contacts", "followers", []string{"contact_id", "user_id"}, false, "each page of a fan-out scans the whole table", "user_id FROM contacts WHERE contact_id = 1"},
	{"blocks", "", []string{"user_id", "blocked_id"}, false, "each read scans the blocks", "user_id FROM blocks WHERE user_id = 1 AND blocked_id = 2"},
	{"photos", "", []string{"id"}, true, "each comparison of contacts scans all photos", "date_upload FROM photos WHERE id = 1"},
	{"photos", "newest", []string{"owner_id", "visibility", "date_upload", "id"}, false, "each read sorts all photos of an owner, or scans the whole table", "id, date_upload FROM photos WHERE owner_id = 1 AND visibility = 'public' ORDER BY date_upload DESC, id DESC LIMIT 10"},
}

var (
	createTable = regexp.MustCompile(`(?ms)^(CREATE TABLE IF NOT EXISTS (\w+) \(\n(.*?)\n\).*?);$`)
	keyLine     = regexp.MustCompile(`^(PRIMARY |UNIQUE )?KEY `)
	enumWords   = regexp.MustCompile(`(?i)enum\('(.*?)'\)`)
)

// wanted are the tables of schema.sql, which has a line for each column and key.
var wanted = func() (tables []wantedTable) {
	for _, found := range createTable.FindAllStringSubmatch(activityd.Schema, -1) {
		t := wantedTable{name: found[2], statement: found[1]}
		site, isSites := siteColumns[t.name]
		t.owned = !isSites
		for line := range strings.Lines(found[3]) {
			line = strings.TrimSuffix(strings.Join(strings.Fields(line), " "), ",")
			name, _, _ := strings.Cut(line, " ")
			if keyLine.MatchString(line) {
				t.keys = append(t.keys, line)
			} else if t.owned || site[name] != "" {
				t.columns = append(t.columns, wantedColumn{name, line, site[name]})
			}
		}
		tables = append(tables, t)
	}
	return tables
}()

// Tables returns the names of the tables of schema.sql.
func Tables() (names []string) {
	for _, t := range wanted {
		names = append(names, t.name)
	}
	return names
}

// Words returns the words of an ENUM in a column's type or definition; nil if it is none.
func Words(definition string) []string {
	found := enumWords.FindStringSubmatch(definition)
	if found == nil {
		return nil
	}
	words := strings.Split(found[1], "','")
	for i, word := range words {
		words[i] = strings.ReplaceAll(word, "''", "'")
	}
	return words
}

// integers are the types of whole numbers.
var integers = []string{"tinyint", "smallint", "mediumint", "int", "bigint"}

// unfit returns why a column does not serve the statements; "" if it does.
func (c wantedColumn) unfit(have row, inView bool) string {
	is := "is " + have["column_type"] + ": want " + string(c.kind)
	data, nullable := have["data_type"], have["is_nullable"] == "YES"
	// Where tables are put together by UNION, servers make decimals of numbers.
	whole := slices.Contains(integers, data) || data == "decimal" && have["numeric_scale"] == "0"
	// A generated column may be NULL on MariaDB, whatever it is made of.
	plain := !inView && !strings.Contains(strings.ToUpper(have["extra"]), "GENERATED")
	words := Words(have["column_type"])
	isShown := func(word string) bool { return word != "private" && slices.Contains(words, word) }
	switch {
	case c.kind == aFlag && !whole && have["column_type"] != "bit(1)":
		return is + "; others would count as yes or no by chance"
	case (c.kind == aNumber || c.kind == aDate) && !whole, c.kind == aText && (have["collation_name"] == "" || data == "enum"):
		return is
	case c.name == "date_upload" && plain && nullable:
		return "may be NULL: a photo without a date fails the answer that it is in"
	case c.kind == aText && nullable:
		return "may be NULL: a row without it fails the answer that it is in"
	case c.kind != aVisibility || data == "char" || data == "varchar":
		return ""
	case data != "enum": // a word that is compared with a number is 0, which may be the number for private
		return is + "; MySQL takes each word for the number 0, so that what is private may be shown"
	case !slices.ContainsFunc(visibilities, isShown):
		return is + "; no photo would ever be shown"
	}
	return ""
}
