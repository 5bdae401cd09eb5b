package schema

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wantedTable is a table as schema.sql makes it.
type wantedTable struct {
	name    string
	owned   bool // activityd's own; else the site's
	columns []wantedColumn
	keys    []wantedKey
}

// wantedColumn is a column of schema.sql.
type wantedColumn struct {
	name, definition string
	kind             kind // in a table of the site's
}

// wantedKey is a key of schema.sql.
type wantedKey struct {
	name, definition string
	columns          []string
	unique           bool
}

// primary is the name that the servers give to a primary key.
const primary = "PRIMARY"

// kind is what a column of the site's holds, in words.
type kind string

const (
	aNumber     kind = "a whole number"
	aFlag       kind = "a number, 0 for no"
	aText       kind = "text that is never NULL"
	aDate       kind = "unix seconds, a whole number"
	aVisibility kind = "one of the words private, friends, family, friends_family and public"
)

// siteColumns are the columns of the site's tables that statements read.
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
	equal       int    // so many of the first columns are compared with one value
	unique      bool   // or answers are wrong
	without     string // what it is like without
	probe       string // a statement that finds its rows by it
}

var siteKeys = []siteKey{
	{"users", "", []string{"id"}, 1, true, "each look at a member scans all of them", "SELECT last_upload FROM users WHERE id = 1"},
	{"contacts", "", []string{"user_id", "contact_id"}, 2, true, "each look at a pair scans more than it", "SELECT is_friend FROM contacts WHERE user_id = 1 AND contact_id = 2"},
	{"contacts", "", []string{"user_id"}, 1, false, "a refill and a walk scan all contacts of everybody", "SELECT contact_id FROM contacts WHERE user_id = 1"},
	{"contacts", "followers", []string{"contact_id", "user_id"}, 1, false, "each page of a fan-out scans all contacts of everybody", "SELECT user_id FROM contacts WHERE contact_id = 1"},
	{"blocks", "", []string{"user_id", "blocked_id"}, 2, false, "each read scans the blocks", "SELECT user_id FROM blocks WHERE user_id = 1 AND blocked_id = 2"},
	{"photos", "", []string{"id"}, 1, true, "each comparison of contacts scans all photos", "SELECT date_upload FROM photos WHERE id = 1"},
	{"photos", "newest", []string{"owner_id", "visibility", "date_upload", "id"}, 2, false, "each read sorts all photos of an owner, or scans those of everybody", "SELECT id, date_upload FROM photos WHERE owner_id = 1 AND visibility = 'public' ORDER BY date_upload DESC, id DESC LIMIT 10"},
}

func siteKeysOf(table string) []siteKey {
	return slices.DeleteFunc(slices.Clone(siteKeys), func(k siteKey) bool { return k.table != table })
}

func columnList(columns []string) string { return "(" + strings.Join(columns, ", ") + ")" }

var (
	createTable = regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS (\w+) \(`)
	keyLine     = regexp.MustCompile(`^(?:PRIMARY KEY|(UNIQUE )?KEY (\w+)) \((.*)\)$`)
)

// wantedTables are the tables of schema.sql, which has a line for each column and key.
func wantedTables() (tables []wantedTable) {
	for _, statement := range Statements() {
		lines := strings.Split(statement, "\n")
		t := wantedTable{name: createTable.FindStringSubmatch(lines[0])[1]}
		site, isSites := siteColumns[t.name]
		t.owned = !isSites
		for _, line := range lines[1 : len(lines)-1] {
			line = strings.TrimSuffix(strings.Join(strings.Fields(line), " "), ",")
			name, _, _ := strings.Cut(line, " ")
			if key := keyLine.FindStringSubmatch(line); key != nil {
				t.keys = append(t.keys, wantedKey{
					name: key[2], definition: line, columns: strings.Split(key[3], ", "), unique: key[2] == "" || key[1] != "",
				})
			} else if t.owned || site[name] != "" {
				t.columns = append(t.columns, wantedColumn{name, line, site[name]})
			}
		}
		for i := range t.keys {
			if t.keys[i].name == "" {
				t.keys[i].name = primary
			}
		}
		tables = append(tables, t)
	}
	return tables
}

// unfit says why a column of the site's, or of a view, cannot hold what is read
// there; "" if it can.
func (c wantedColumn) unfit(have row, inView bool) string {
	is := "is " + have["column_type"] + ": want " + string(c.kind)
	// Where tables are put together by UNION, servers make decimals of numbers.
	whole := integers[have["data_type"]] != 0 || have["data_type"] == "decimal" && have["numeric_scale"] == "0"
	switch c.kind {
	case aNumber:
		if !whole {
			return is
		}
	case aFlag:
		if !whole && have["column_type"] != "bit(1)" {
			return is + "; others would count as yes or no by chance"
		}
	case aDate:
		// A generated column may be NULL on MariaDB, whatever it is made of.
		plain := !inView && !strings.Contains(strings.ToUpper(have["extra"]), "GENERATED")
		switch {
		case !whole:
			return is
		case c.name == "date_upload" && plain && have["is_nullable"] == "YES":
			return "may be NULL: a photo without a date fails the answer that it is in"
		}
	case aText:
		switch {
		case have["collation_name"] == "" || strings.HasPrefix(have["data_type"], "enum"):
			return is
		case have["is_nullable"] == "YES":
			return "may be NULL: a row without it fails the answer that it is in"
		}
	case aVisibility:
		return c.unfitVisibility(have, is)
	}
	return ""
}

// unfitVisibility is strict: a word that is compared with a number is 0, and so equal
// to what may stand for private.
func (c wantedColumn) unfitVisibility(have row, is string) string {
	switch have["data_type"] {
	case "char", "varchar":
		return ""
	case "enum":
		for _, word := range []string{"'public'", "'friends'", "'family'", "'friends_family'"} {
			if strings.Contains(have["column_type"], word) {
				return ""
			}
		}
		return is + "; no photo would ever be shown"
	}
	return is + "; MySQL takes each word for the number 0, so that what is private may be shown"
}

// integers are the types of whole numbers, with their sizes in bytes.
var integers = map[string]int{"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}

var columnParts = regexp.MustCompile(`^\w+ (\w+)(?:\((.*?)\))?( UNSIGNED)?(.*?)(?: COMMENT '.*')?$`)

// differs says in what a column of activityd's own cannot hold what schema.sql's
// does; "" if it can.
func (c wantedColumn) differs(have row) string {
	parts := columnParts.FindStringSubmatch(c.definition)
	dataType, length, unsigned, rest := strings.ToLower(parts[1]), parts[2], parts[3] != "", parts[4]
	is := "is " + have["column_type"]
	if have["collation_name"] != "" {
		is += " " + have["collation_name"]
	}
	if !holds(have, dataType, length, unsigned) {
		return is + ": want " + strings.TrimSpace(parts[1]+withParens(length)+parts[3])
	}
	if _, after, ok := strings.Cut(rest, "COLLATE "); ok {
		if want, _, _ := strings.Cut(after, " "); have["collation_name"] != want {
			return is + ": want " + want + ", in whose order other keys sort before those of tasks that have begun"
		}
	}
	if notNull := strings.Contains(rest, "NOT NULL"); notNull != (have["is_nullable"] == "NO") {
		if notNull {
			return "may be NULL: want NOT NULL"
		}
		return "must not be NULL: want NULL"
	}
	if strings.Contains(rest, "AUTO_INCREMENT") != strings.Contains(have["extra"], "auto_increment") {
		return "does not count up: want AUTO_INCREMENT"
	}
	if _, want, ok := strings.Cut(rest, "DEFAULT "); ok {
		literal := !strings.HasPrefix(want, "(")
		if !hasDefault(have) || literal && strings.Trim(have["column_default"], "'") != strings.Trim(want, "'") {
			return "has another default, or none: want DEFAULT " + want
		}
	}
	return ""
}

// holds tells whether a column holds all values of a type.
func holds(have row, dataType, length string, unsigned bool) bool {
	if size := integers[dataType]; size > 0 {
		of, haveUnsigned := integers[have["data_type"]], strings.Contains(have["column_type"], "unsigned")
		switch {
		case unsigned == haveUnsigned:
			return of >= size
		case unsigned:
			return of > size
		}
		return false
	}
	switch dataType {
	case "json": // which MariaDB calls longtext
		return have["data_type"] == "json" || have["data_type"] == "longtext"
	case "enum":
		for word := range strings.SplitSeq(length, ",") {
			if !strings.Contains(have["column_type"], word) {
				return false
			}
		}
		return have["data_type"] == "enum"
	case "varchar":
		least, err := strconv.Atoi(length)
		most, err2 := strconv.Atoi(have["character_maximum_length"])
		return err == nil && err2 == nil && have["data_type"] == "varchar" && most >= least
	}
	return have["column_type"] == dataType+withParens(length)
}

func withParens(length string) string {
	if length == "" {
		return ""
	}
	return fmt.Sprintf("(%s)", length)
}

// hasDefault: MariaDB writes NULL for a default that is none.
func hasDefault(have row) bool { return have["column_default"] != "NULL" }
