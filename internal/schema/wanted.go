package schema

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// wantedTable is a table as schema.sql makes it.
type wantedTable struct {
	name, statement string
	owned           bool // activityd's own; else the site's
	part            Part
	columns         []wantedColumn
	keys            []wantedKey
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
	aVisibility kind = "one of the words" // of the definition
)

// siteColumns are the columns that statements read of the site's tables.
var siteColumns = map[string]map[string]kind{
	"users":    {"id": aNumber, "username": aText, "last_upload": aDate},
	"contacts": {"user_id": aNumber, "contact_id": aNumber, "is_friend": aFlag, "is_family": aFlag},
	"blocks":   {"user_id": aNumber, "blocked_id": aNumber},
	"photos":   {"id": aNumber, "owner_id": aNumber, "title": aText, "visibility": aVisibility, "date_upload": aDate},
}

// queueTables are the tables of the queue.
var queueTables = map[string]bool{"tasks": true, "task_leases": true, "parked_tasks": true, "paused_queues": true, "task_keys": true}

// siteKey is an index that the site's tables need.
type siteKey struct {
	table, name string
	columns     []string
	equal       int    // so many of the first columns are compared with one value
	unique      bool   // or answers are wrong
	without     string // the consequence of its absence
	probe       string // what follows SELECT in a statement that reads by it
}

var siteKeys = []siteKey{
	{"users", "", []string{"id"}, 1, true, "each lookup of a member scans all of them", "last_upload FROM users WHERE id = 1"},
	{"contacts", "", []string{"user_id", "contact_id"}, 2, true, "each lookup of a pair scans other rows, too", "is_friend FROM contacts WHERE user_id = 1 AND contact_id = 2"},
	{"contacts", "", []string{"user_id"}, 1, false, "a refill and a walk scan the whole table", "contact_id FROM contacts WHERE user_id = 1"},
	{"contacts", "followers", []string{"contact_id", "user_id"}, 1, false, "each page of a fan-out scans the whole table", "user_id FROM contacts WHERE contact_id = 1"},
	{"blocks", "", []string{"user_id", "blocked_id"}, 2, false, "each read scans the blocks", "user_id FROM blocks WHERE user_id = 1 AND blocked_id = 2"},
	{"photos", "", []string{"id"}, 1, true, "each comparison of contacts scans all photos", "date_upload FROM photos WHERE id = 1"},
	{"photos", "newest", []string{"owner_id", "visibility", "date_upload", "id"}, 2, false, "each read sorts all photos of an owner, or scans the whole table", "id, date_upload FROM photos WHERE owner_id = 1 AND visibility = 'public' ORDER BY date_upload DESC, id DESC LIMIT 10"},
}

func siteKeysOf(table string) []siteKey {
	return slices.DeleteFunc(slices.Clone(siteKeys), func(k siteKey) bool { return k.table != table })
}

func columnList(columns []string) string { return "(" + strings.Join(columns, ", ") + ")" }

var (
	createTable = regexp.MustCompile(`(?ms)^(CREATE TABLE IF NOT EXISTS (\w+) \(\n(.*?)\n\).*?);$`)
	keyLine     = regexp.MustCompile(`^(?:PRIMARY KEY|(UNIQUE )?KEY (\w+)) \((.*)\)$`)
)

// tablesOf returns the tables that an SQL file makes, which has a line for each column
// and key.
func tablesOf(text string) (tables []wantedTable) {
	for _, found := range createTable.FindAllStringSubmatch(text, -1) {
		t := wantedTable{name: found[2], statement: found[1]}
		site, isSites := siteColumns[t.name]
		t.owned, t.part = !isSites, Site
		if queueTables[t.name] {
			t.part = Queue
		}
		for line := range strings.Lines(found[3]) {
			line = strings.TrimSuffix(strings.Join(strings.Fields(line), " "), ",")
			name, _, _ := strings.Cut(line, " ")
			if key := keyLine.FindStringSubmatch(line); key != nil {
				isPrimary := key[2] == ""
				t.keys = append(t.keys, wantedKey{cmp.Or(key[2], primary), line, strings.Split(key[3], ", "), isPrimary || key[1] != ""})
			} else if t.owned || site[name] != "" {
				t.columns = append(t.columns, wantedColumn{name, line, site[name]})
			}
		}
		tables = append(tables, t)
	}
	return tables
}

// unfit returns why a column cannot hold what is read or written there; "" if it can.
func (c wantedColumn) unfit(have row, inView bool) string {
	if c.kind == "" {
		return c.differs(have)
	}
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

// unfitVisibility is strict: a word that is compared with a number is 0, which may be the
// number for private.
func (c wantedColumn) unfitVisibility(have row, is string) string {
	words := strings.Split(columnParts.FindStringSubmatch(c.definition)[3], ",")
	is += " " + strings.ReplaceAll(strings.Join(words, ", "), "'", "")
	switch have["data_type"] {
	case "char", "varchar":
		return ""
	case "enum":
		words = slices.DeleteFunc(words, func(word string) bool { return word == "'private'" })
		if !slices.ContainsFunc(words, func(word string) bool { return strings.Contains(have["column_type"], word) }) {
			return is + "; no photo would ever be shown"
		}
		return ""
	}
	return is + "; MySQL takes each word for the number 0, so that what is private may be shown"
}

// integers are the types of whole numbers, with their sizes in bytes.
var integers = map[string]int{"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}

// columnParts are a column's type, as a whole and in its parts, and what follows.
var columnParts = regexp.MustCompile(`^\w+ ((\w+)(?:\((.*?)\))?( UNSIGNED)?)(.*?)(?: COMMENT '.*')?$`)

// differs describes a column of activityd's own that cannot take the place of the one in
// schema.sql, which may be narrower; "" if it can.
func (c wantedColumn) differs(have row) string {
	parts := columnParts.FindStringSubmatch(c.definition)
	rest := parts[5]
	_, collation, _ := strings.Cut(rest, "COLLATE ")
	collation, _, _ = strings.Cut(collation, " ")
	_, defaults, hasDefaults := strings.Cut(rest, "DEFAULT ")
	isExpression := strings.HasPrefix(defaults, "(") // which each server writes in its own way
	if holds(have, parts) &&
		(collation == "" || have["collation_name"] == collation) &&
		strings.Contains(rest, "NOT NULL") == (have["is_nullable"] == "NO") &&
		strings.Contains(rest, "AUTO_INCREMENT") == strings.Contains(have["extra"], "auto_increment") &&
		(!hasDefaults || hasDefault(have) && (isExpression || strings.Trim(have["column_default"], "'") == strings.Trim(defaults, "'"))) {
		return ""
	}
	is := strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", have["column_type"], have["collation_name"], have["extra"])), " ")
	return fmt.Sprintf("is %s, nullable: %s, default: %s; want %s%s", is, have["is_nullable"], have["column_default"], parts[1], rest)
}

// holds reports whether a column holds all values of the type with these parts.
func holds(have row, parts []string) bool {
	dataType, length, unsigned := strings.ToLower(parts[2]), parts[3], parts[4] != ""
	if size := integers[dataType]; size > 0 {
		of, haveUnsigned := integers[have["data_type"]], strings.Contains(have["column_type"], "unsigned")
		return unsigned == haveUnsigned && of >= size || unsigned && of > size
	}
	switch dataType {
	case "json": // which MariaDB calls longtext
		return have["data_type"] == "json" || have["data_type"] == "longtext"
	case "enum":
		absent := func(word string) bool { return !strings.Contains(have["column_type"], word) }
		return have["data_type"] == "enum" && !slices.ContainsFunc(strings.Split(length, ","), absent)
	case "varchar":
		needed, _ := strconv.Atoi(length)
		maxLength, _ := strconv.Atoi(have["character_maximum_length"]) // 0: none
		return have["data_type"] == "varchar" && maxLength >= needed
	}
	return strings.EqualFold(have["column_type"], parts[1])
}

// hasDefault reports whether a column has a default; NULL stands for none.
func hasDefault(have row) bool { return have["column_default"] != "NULL" }
