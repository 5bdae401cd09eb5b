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
	File, Database string     // Database has the views, and activityd's tables
	Contacts       []*section // a section each
	Users, Photos  *section
	Blocks         *section // nil: the site has no table for it
	line           int      // that names the database
}

// section describes a table that holds the rows of an activityd table.
type section struct {
	*Map

	Name   string // as in users
	line   int
	table  table
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

// kinds are the sections, in the order of activityd's tables, and their keys: table takes the name of a table, date_type a word,
// and every other key a column. ! follows a required key, = a key that takes an expression, too.
var kinds = []struct{ name, keys string }{
	{"users", "table! id! username last_upload! where="},
	{"contacts", "table! user_id! contact_id! is_friend= is_family= where="},
	{"blocks", "table! user_id! blocked_id! where="},
	{"photos", "table! id! owner_id! title visibility " + strings.Join(classes, "= ") + "= date_upload! date_type where="},
}

// keysOf returns the keys of a section, each with its sign; none if there is no section of the name.
func keysOf(section string) []string {
	for _, k := range kinds {
		if k.name == section {
			return strings.Fields(k.keys)
		}
	}
	return nil
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
	p := &parser{Map: &Map{File: file}, sections: make(map[string][]*section)}
	n := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) { // some editors begin a file with a BOM
		n++
		p.read(n, strings.TrimSpace(line))
	}
	if p.Database == "" {
		p.failf(1, noDatabase)
	}
	for _, k := range kinds {
		list := p.sections[k.name]
		if len(list) == 0 {
			p.failf(n, "there is no section [%s]; a site without blocks says table = none there", k.name)
		}
		for _, s := range list {
			p.whole(s)
		}
		if len(list) > 1 && k.name != "contacts" {
			p.failf(list[1].line, "a second section %s: only contacts may be in several", k.name)
		}
	}
	if err := errors.Join(p.errs...); err != nil {
		return nil, err
	}
	p.Users, p.Contacts, p.Photos = p.sections["users"][0], p.sections["contacts"], p.sections["photos"][0]
	if s := p.sections["blocks"][0]; !s.isNone() {
		p.Blocks = s
	}
	return p.Map, nil
}

// parser collects all mistakes of a file.
type parser struct {
	*Map

	sections map[string][]*section
	in       *section // nil: before the first section
	errs     []error
}

func (p *parser) failf(line int, format string, args ...any) {
	p.errs = append(p.errs, fmt.Errorf("%s: %w", p.place(line), fmt.Errorf(format, args...)))
}

// place returns how errors name a line.
func (m *Map) place(line int) string { return fmt.Sprintf("%s:%d", m.File, line) }

var (
	sectionLine = regexp.MustCompile(`^\[(\w+)\]$`)
	keyLine     = regexp.MustCompile(`^(\w+)\s*=\s*(.*)$`)
	nameInSQL   = regexp.MustCompile(`^[\pL\d_$-]+$`)
	tableInSQL  = regexp.MustCompile("^(?:([\\pL\\d_$-]+|`[^`]+`)\\.)?([\\pL\\d_$-]+|`[^`]+`)$")
)

const noDatabase = "want database = NAME before the first section: the database of the views, and of activityd's tables"

// read reads a line.
func (p *parser) read(n int, text string) {
	head, found := sectionLine.FindStringSubmatch(text), keyLine.FindStringSubmatch(text)
	switch {
	case text == "" || text[0] == '#':
	case head != nil:
		p.in = &section{Map: p.Map, Name: head[1], line: n, values: make(map[string]value)}
		p.sections[p.in.Name] = append(p.sections[p.in.Name], p.in)
		if keysOf(p.in.Name) == nil {
			p.failf(n, "there is no section %s: want users, contacts, blocks or photos", p.in.Name)
		}
	case found == nil:
		p.failf(n, "want [section], key = value, or a comment that begins with #")
	case p.in != nil:
		p.key(n, found[1], found[2])
	case found[1] == "database" && nameInSQL.MatchString(strings.Trim(found[2], "`")):
		p.Database, p.line = strings.Trim(found[2], "`"), n
	default:
		p.failf(n, noDatabase)
	}
}

// key reads the value of a key.
func (p *parser) key(n int, name, text string) {
	keys := keysOf(p.in.Name)
	at := slices.IndexFunc(keys, func(key string) bool { return strings.TrimRight(key, "!=") == name })
	switch {
	case keys == nil: // it has no section
		return
	case at < 0:
		p.failf(n, "%s has no key %s: want %s", p.in.Name, name, strings.NewReplacer("!", "", "=", "").Replace(strings.Join(keys, ", ")))
		return
	case p.in.has(name):
		p.failf(n, "%s is there twice", name)
	}
	var err error
	v := value{text: text, line: n}
	switch isColumn := !strings.HasSuffix(keys[at], "="); {
	case name == "table":
		err = p.table(text)
	case name == "date_type":
		if text != seconds && text != milliseconds && text != datetime {
			p.failf(n, "date_type is %s: want seconds or milliseconds since 1970, or datetime", text)
		}
	case isColumn && strings.Contains(text, "-") && nameInSQL.MatchString(text):
		v.expr, err = parseExpression(schema.Quote(text))
	default:
		v.expr, err = parseExpression(text)
		if err == nil && isColumn && !v.expr.isColumn() {
			err = errors.New("want the name of one column")
		}
	}
	if err != nil {
		p.failf(n, "%s: %w", name, err)
	}
	p.in.values[name] = v
}

// table reads the name of a table.
func (p *parser) table(text string) error {
	found := tableInSQL.FindStringSubmatch(text)
	switch {
	case p.in.Name == "blocks" && text == "none":
		return nil
	case found == nil:
		return errors.New("want the name of a table, as in site.members")
	}
	p.in.table = table{cmp.Or(strings.Trim(found[1], "`"), p.Database), strings.Trim(found[2], "`")}
	if p.in.table == (table{p.Database, p.in.Name}) {
		return fmt.Errorf("the view %s would have the name of this table: let database be another one", p.in.table.plain())
	}
	return nil
}

// whole checks a section once the file is read.
func (p *parser) whole(s *section) {
	if s.isNone() {
		if len(s.values) > 1 {
			p.failf(s.line, "with table = none there is nothing else to say of %s", s.Name)
		}
		return
	}
	for _, key := range keysOf(s.Name) {
		if name, isRequired := strings.CutSuffix(key, "!"); isRequired && !s.has(name) {
			p.failf(s.line, "%s has no %s", s.Name, name)
		}
	}
	if inWords := slices.ContainsFunc(classes, s.has); s.Name == "photos" && inWords == s.has("visibility") {
		p.failf(s.line, "photos: want either visibility, a column of activityd's words, or conditions for %s", strings.Join(classes, ", "))
	}
}

// all returns the sections that have a table, in order.
func (m *Map) all() []*section {
	list := append([]*section{m.Users}, m.Contacts...)
	if m.Blocks != nil {
		list = append(list, m.Blocks)
	}
	return append(list, m.Photos)
}

// Own returns the name of a table of activityd's, or of a view.
func (m *Map) Own(name string) string { return table{m.Database, name}.String() }

func (s *section) has(key string) bool { return s.values[key].line > 0 }

// isNone reports whether the site has no table for the section.
func (s *section) isNone() bool { return s.Name == "blocks" && s.values["table"].text == "none" }
