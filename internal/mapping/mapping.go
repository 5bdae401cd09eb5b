package mapping

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/activityd/activityd/internal/schema"
)

// Map is the description of a site.
type Map struct {
	file     string
	database string // of the views, and of activityd's tables
	line     int    // that names it
	sections map[string][]*section
}

// section describes a table that holds the rows of an activityd table.
type section struct {
	name   string // as in users
	line   int
	origin string // as in "site.map:12 [users]"
	table  table
	none   bool // the site has no table for it
	values map[string]value
}

// table is a table of the site's.
type table struct{ database, name string }

func (t table) String() string { return schema.Quote(t.database) + "." + schema.Quote(t.name) }

// plain is the name as people write it.
func (t table) plain() string { return t.database + "." + t.name }

// value is the value of a line.
type value struct {
	text string
	line int
	expr expression // unless it is a word
}

// key is a key of a section: table takes the name of a table, date_type a word, and every other key a column.
type key struct {
	name       string
	required   bool
	expression bool // it takes an expression, too
}

// kind is a kind of section.
type kind struct {
	name string
	many bool // there may be several
	keys []key
}

// kinds are the sections, in the order of activityd's tables.
var kinds = []kind{
	{"users", false, keys("table! id! username last_upload! where=")},
	{"contacts", true, keys("table! user_id! contact_id! is_friend= is_family= where=")},
	{"blocks", true, keys("table! user_id! blocked_id! where=")},
	{"photos", false, keys("table! id! owner_id! title visibility " + strings.Join(classes, "= ") + "= date_upload! date_type where=")},
}

// keys reads a list of names: ! follows a required key, = a key that takes an expression.
func keys(list string) (all []key) {
	for text := range strings.FieldsSeq(list) {
		name := strings.TrimRight(text, "!=")
		all = append(all, key{name, strings.HasSuffix(text, "!"), strings.HasSuffix(text, "=")})
	}
	return all
}

// classes are the visibility classes in the order in which their conditions are asked: the first
// that holds counts, and the widest is the last. The words are schema.sql's.
var classes = []string{"friends_family", "friends", "family", "followers", "public"}

// The types of dates.
const (
	seconds      = "seconds"
	milliseconds = "milliseconds"
	datetime     = "datetime"
)

// Read reads a description. The error has a line for each mistake, with the file and the line that it
// is in, as in "site.map:12: …".
func Read(file string) (*Map, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, string(text))
}

// Parse is [Read] of a text that is from a file of this name.
func Parse(file, text string) (*Map, error) {
	p := &parser{Map: &Map{file: file, sections: make(map[string][]*section)}}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) { // some editors begin a file with a BOM
		n++
		p.line(n, strings.TrimSpace(line))
	}
	p.end(n)
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return p.Map, nil
}

// parser collects all mistakes of a file.
type parser struct {
	*Map

	in   *section // nil: before the first section; without a name: an unknown section
	errs []error
}

func (p *parser) failf(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s: %w", p.place(line), fmt.Errorf(format, args...)))
}

// place returns how errors name a line.
func (m *Map) place(line int) string { return fmt.Sprintf("%s:%d", m.file, line) }

var (
	sectionLine = regexp.MustCompile(`^\[(\w+)\]$`)
	keyLine     = regexp.MustCompile(`^(\w+)\s*=\s*(.*)$`)
	nameInSQL   = regexp.MustCompile(`^[\pL\d_$-]+$`)
	tableInSQL  = regexp.MustCompile("^(?:([\\pL\\d_$-]+|`[^`]+`)\\.)?([\\pL\\d_$-]+|`[^`]+`)$")
)

func (p *parser) line(n int, text string) {
	head, found := sectionLine.FindStringSubmatch(text), keyLine.FindStringSubmatch(text)
	switch {
	case text == "" || text[0] == '#':
	case head != nil:
		p.section(n, head[1])
	case found == nil:
		p.failf(n, "want [section], key = value, or a comment that begins with #")
	case p.in != nil:
		p.key(n, found[1], found[2])
	case found[1] == "database" && nameInSQL.MatchString(strings.Trim(found[2], "`")):
		p.database, p.Map.line = strings.Trim(found[2], "`"), n
	default:
		p.failf(n, noDatabase)
	}
}

const noDatabase = "want database = NAME before the first section: the database of the views, and of activityd's tables"

func (p *parser) section(n int, name string) {
	p.in = &section{line: n, origin: p.place(n) + " [" + name + "]", values: make(map[string]value)}
	at := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if at < 0 {
		p.failf(n, "there is no section %s: want users, contacts, blocks or photos", name)
		return
	}
	if len(p.sections[name]) > 0 && !kinds[at].many {
		p.failf(n, "a second section %s: only contacts and blocks may be in several tables", name)
	}
	p.in.name = name
	p.sections[name] = append(p.sections[name], p.in)
}

func (p *parser) key(n int, name, text string) {
	if p.in.name == "" {
		return
	}
	keys := keysOf(p.in.name)
	at := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if at < 0 {
		p.failf(n, "%s has no key %s: want %s", p.in.name, name, namesOf(keys))
		return
	}
	if p.in.has(name) {
		p.failf(n, "%s is there twice", name)
	}
	v := value{text: text, line: n}
	switch name {
	case "table":
		p.table(n, text)
	case "date_type":
	default:
		isColumn := !keys[at].expression
		if isColumn && strings.Contains(text, "-") && nameInSQL.MatchString(text) {
			text = schema.Quote(text)
		}
		var err error
		v.expr, err = parseExpression(text)
		if err == nil && isColumn && len(v.expr.tokens) != 1 {
			err = errors.New("want the name of one column")
		}
		if err != nil {
			p.failf(n, "%s: %w", name, err)
		}
	}
	p.in.values[name] = v
}

func (p *parser) table(n int, text string) {
	if p.in.none = text == "none" && p.in.name == "blocks"; p.in.none {
		return
	}
	found := tableInSQL.FindStringSubmatch(text)
	if found == nil {
		p.failf(n, "table: want the name of a table, as in site.members")
		return
	}
	p.in.table = table{cmp.Or(strings.Trim(found[1], "`"), p.database), strings.Trim(found[2], "`")}
	if p.in.table == (table{p.database, p.in.name}) {
		p.failf(n, "the view %s would have the name of this table: let database be another one", p.in.table.plain())
	}
}

// end makes the checks that need the whole file.
func (p *parser) end(last int) {
	if p.database == "" {
		p.failf(1, noDatabase)
	}
	for _, k := range kinds {
		if len(p.sections[k.name]) == 0 {
			none := ""
			if k.name == "blocks" {
				none = "; a site that has none says table = none"
			}
			p.failf(last, "there is no section [%s]%s", k.name, none)
		}
		for _, s := range p.sections[k.name] {
			p.whole(s, k.keys)
		}
	}
}

// whole checks that a section has all required keys.
func (p *parser) whole(s *section, keys []key) {
	if s.none {
		if len(s.values) > 1 || len(p.sections[s.name]) > 1 {
			p.failf(s.line, "with table = none there is nothing else to say of %s", s.name)
		}
		return
	}
	for _, k := range keys {
		if k.required && !s.has(k.name) {
			p.failf(s.line, "%s has no %s", s.name, k.name)
		}
	}
	if s.name != "photos" {
		return
	}
	inWords := slices.ContainsFunc(classes, func(class string) bool { return s.has(class) })
	if inWords == s.has("visibility") {
		p.failf(s.line, "photos: want either visibility, a column of activityd's words, or conditions for %s", strings.Join(classes, ", "))
	}
	if v := s.values["date_type"]; v.line > 0 && v.text != seconds && v.text != milliseconds && v.text != datetime {
		p.failf(v.line, "date_type is %s: want seconds or milliseconds since 1970, or datetime", v.text)
	}
}

func keysOf(name string) []key {
	for _, k := range kinds {
		if k.name == name {
			return k.keys
		}
	}
	return nil
}

func namesOf(keys []key) string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
}

// databases returns all databases that have triggers.
func (m *Map) databases() []string {
	var list []string
	for _, s := range m.all() {
		list = append(list, s.table.database)
	}
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// all returns the sections that have a table, in order.
func (m *Map) all() (list []*section) {
	for _, k := range kinds {
		for _, s := range m.sections[k.name] {
			if !s.none {
				list = append(list, s)
			}
		}
	}
	return list
}

func (m *Map) users() *section  { return m.sections["users"][0] }
func (m *Map) photos() *section { return m.sections["photos"][0] }

// copied reports whether a table of activityd's own holds copies of the rows.
func (m *Map) copied(name string) bool { return len(m.sections[name]) > 1 }

// own returns the name of a table of activityd's, or of a view.
func (m *Map) own(name string) string { return table{m.database, name}.String() }

func (s *section) has(key string) bool { return s.values[key].line > 0 }

// column returns the column of a key in a row.
func (s *section) column(key, row string) string { return s.values[key].expr.of(row) }
