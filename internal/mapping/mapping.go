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
	line     int    // that names the database
	sections map[string][]*section
}

// section describes a table that holds the rows of an activityd table.
type section struct {
	m      *Map
	name   string // as in users
	line   int
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

// kinds are the sections, in the order of activityd's tables, and their keys: ! follows a required key, = a key that
// takes an expression.
var kinds = []struct{ name, keys string }{
	{"users", "table! id! username last_upload! where="},
	{"contacts", "table! user_id! contact_id! is_friend= is_family= where="},
	{"blocks", "table! user_id! blocked_id! where="},
	{"photos", "table! id! owner_id! title visibility " + strings.Join(classes, "= ") + "= date_upload! date_type where="},
}

// keysOf returns the keys of a section; none if there is no section of the name.
func keysOf(section string) (all []key) {
	for _, k := range kinds {
		for text := range strings.FieldsSeq(k.keys) {
			if k.name == section {
				all = append(all, key{strings.TrimRight(text, "!="), strings.HasSuffix(text, "!"), strings.HasSuffix(text, "=")})
			}
		}
	}
	return all
}

func namesOf(keys []key) string {
	var names []string
	for _, k := range keys {
		names = append(names, k.name)
	}
	return strings.Join(names, ", ")
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

// Read reads a description. The error has a line for each mistake, with the file and the number of the line, as in
// "site.map:12: …".
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
	if p.database == "" {
		p.failf(1, noDatabase)
	}
	for _, k := range kinds {
		if len(p.sections[k.name]) == 0 {
			p.failf(n, "there is no section [%s]; a site without blocks says table = none there", k.name)
		}
		for i, s := range p.sections[k.name] {
			p.whole(s, i)
		}
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	return p.Map, nil
}

// parser collects all mistakes of a file.
type parser struct {
	*Map

	in   *section // nil: before the first section
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

const noDatabase = "want database = NAME before the first section: the database of the views, and of activityd's tables"

func (p *parser) line(n int, text string) {
	head, found := sectionLine.FindStringSubmatch(text), keyLine.FindStringSubmatch(text)
	switch {
	case text == "" || text[0] == '#':
	case head != nil:
		p.in = &section{m: p.Map, name: head[1], line: n, values: make(map[string]value)}
		p.sections[p.in.name] = append(p.sections[p.in.name], p.in)
		if keysOf(p.in.name) == nil {
			p.failf(n, "there is no section %s: want users, contacts, blocks or photos", p.in.name)
		}
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

func (p *parser) key(n int, name, text string) {
	keys := keysOf(p.in.name)
	at := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	switch {
	case keys == nil: // it has no section
		return
	case at < 0:
		p.failf(n, "%s has no key %s: want %s", p.in.name, name, namesOf(keys))
		return
	case p.in.has(name):
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
		if err == nil && isColumn && (len(v.expr.tokens) != 1 || len(v.expr.columns) != 1) {
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

// whole checks the i-th section of a name, once the file is read.
func (p *parser) whole(s *section, i int) {
	if i > 0 && s.name != "contacts" {
		p.failf(s.line, "a second section %s: only contacts may be in several", s.name)
	}
	if s.none {
		if len(s.values) > 1 {
			p.failf(s.line, "with table = none there is nothing else to say of %s", s.name)
		}
		return
	}
	for _, k := range keysOf(s.name) {
		if k.required && !s.has(k.name) {
			p.failf(s.line, "%s has no %s", s.name, k.name)
		}
	}
	if inWords := slices.ContainsFunc(classes, s.has); s.name == "photos" && inWords == s.has("visibility") {
		p.failf(s.line, "photos: want either visibility, a column of activityd's words, or conditions for %s", strings.Join(classes, ", "))
	}
	if v := s.values["date_type"]; v.line > 0 && v.text != seconds && v.text != milliseconds && v.text != datetime {
		p.failf(v.line, "date_type is %s: want seconds or milliseconds since 1970, or datetime", v.text)
	}
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

// copied reports whether a table of activityd's own has the contacts.
func (m *Map) copied() bool { return len(m.sections["contacts"]) > 1 }

// own returns the name of a table of activityd's, or of a view.
func (m *Map) own(name string) string { return table{m.database, name}.String() }

func (s *section) has(key string) bool { return s.values[key].line > 0 }
