package shadow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/activityd/activityd/internal/contacts"
)

// Statement is the site's own statement, whose first column is the ids of the photos that a viewer
// is shown, in their order.
type Statement struct {
	text  string   // with a ? for each placeholder
	names []string // of the placeholders, in order
}

// The placeholders.
const (
	viewerName = "viewer"
	limitName  = "limit"
)

// maxStatement bounds the bytes of a statement.
const maxStatement = 64 << 10

// ErrStatement is wrapped by the errors of [ParseStatement].
var ErrStatement = errors.New("the statement cannot be used")

// ParseStatement reads a statement: one SELECT with the placeholders :viewer, at least once, and
// :limit. It knows strings, quoted names and comments as a session of [mysql.Open] does, and refuses what
// would lock, write a file, or take the time limit away; a transaction that is read-only refuses the rest.
func ParseStatement(text string) (Statement, error) {
	p := parser{rest: text}
	if err := p.parse(); err != nil {
		return Statement{}, fmt.Errorf("%w: %w", ErrStatement, err)
	}
	return Statement{p.out.String(), p.names}, nil
}

// bind returns the arguments for the question marks.
func (s Statement) bind(v contacts.Viewer, limit int) []any {
	args := make([]any, len(s.names))
	for i, name := range s.names {
		if args[i] = any(limit); name == viewerName {
			args[i] = uint64(v.ID)
		}
	}
	return args
}

// parser goes through a statement, token by token.
type parser struct {
	rest   string
	out    strings.Builder
	names  []string
	words  []string // in capitals, the last two
	count  int      // of words
	named  bool     // the last token was a name, quoted or not
	member bool     // it was a dot behind a name: what follows at once is a name, too
	ended  bool     // by a semicolon
}

func (p *parser) parse() error {
	switch {
	case len(p.rest) > maxStatement:
		return fmt.Errorf("it has %d bytes: want %d at most", len(p.rest), maxStatement)
	case !utf8.ValidString(p.rest) || strings.ContainsRune(p.rest, 0):
		return errors.New("want plain text in UTF-8")
	}
	for p.rest != "" {
		if err := p.next(); err != nil {
			return err
		}
	}
	switch {
	case p.count == 0:
		return errors.New("it is empty: want a SELECT")
	case !slices.Contains(p.names, viewerName):
		return errors.New("it has no :viewer: want :viewer, without quotes, where the id of the member belongs")
	}
	return nil
}

// next takes one token.
func (p *parser) next() error {
	n, skip, err := p.space()
	if err != nil {
		return err
	}
	if skip {
		p.take(n)
		p.named, p.member = false, false
		return nil
	}
	if p.ended {
		return errors.New("want one statement, and there is more behind the semicolon")
	}
	c := p.rest[0]
	switch {
	case c == ';':
		p.ended, p.rest = true, p.rest[1:]
		return nil
	case c == '\'' || c == '"' || c == '`':
		end := quoted(p.rest)
		if end < 0 {
			return fmt.Errorf("a quote %c is not closed", c)
		}
		p.take(end)
		p.named = c == '`'
	case c == '?':
		return errors.New("it has a ?: want :viewer and :limit")
	case c == ':' && wordLength(p.rest[1:]) > 0:
		return p.placeholder()
	case wordLength(p.rest) > 0:
		return p.word()
	default:
		_, size := utf8.DecodeRuneInString(p.rest)
		p.take(size)
		p.named, p.member = false, c == '.' && p.named
		return nil
	}
	p.member = false
	return nil
}

func (p *parser) take(n int) {
	p.out.WriteString(p.rest[:n])
	p.rest = p.rest[n:]
}

func (p *parser) placeholder() error {
	n := wordLength(p.rest[1:])
	name := p.rest[1 : 1+n]
	if name != viewerName && name != limitName {
		return fmt.Errorf("unknown placeholder :%s: want :viewer and :limit", name)
	}
	p.names = append(p.names, name)
	p.out.WriteByte('?')
	p.rest, p.named, p.member = p.rest[1+n:], false, false
	return nil
}

// refused are words that a statement which only reads does not need. Where a word is a name, it can be
// quoted.
var refused = map[string]string{
	"INTO": "it writes what it reads", "UPDATE": "it locks or changes rows", "DELETE": "it changes rows", "SHARE": "it locks rows",
	"LOCK": "it locks rows", "GET_LOCK": "it takes a lock", "RELEASE_LOCK": "it releases a lock", "RELEASE_ALL_LOCKS": "it releases locks",
	"NEXTVAL": "it changes a sequence", "SETVAL": "it changes a sequence", "PROCEDURE": "it runs a procedure",
}

func (p *parser) word() error {
	n := wordLength(p.rest)
	word := strings.ToUpper(p.rest[:n])
	p.take(n)
	isName := p.member // as in t.lock, but not behind the dot of a number, as in 1.INTO
	p.named, p.member = word[0] < '0' || word[0] > '9', false
	p.count++
	if p.count == 1 && word != "SELECT" && word != "WITH" {
		return fmt.Errorf("it begins with %s: want a SELECT", word)
	}
	last := ""
	if len(p.words) > 0 {
		last = p.words[0]
	}
	p.words = []string{word}
	if isName {
		return nil
	}
	if why, is := refused[word]; is {
		return fmt.Errorf("it has the word %s: %s; if it is a name, quote it with backticks", word, why)
	}
	if word == "VALUE" && last == "NEXT" {
		return errors.New("it has NEXT VALUE: it changes a sequence")
	}
	return nil
}

// space returns how long the space or comment is that the rest begins with.
func (p *parser) space() (n int, is bool, err error) {
	rest := p.rest
	switch {
	case isSpace(rest[0]):
		return 1, true, nil
	case rest[0] == '#', strings.HasPrefix(rest, "--") && (len(rest) == 2 || rest[2] <= ' ' || rest[2] == 0x7f):
		if end := strings.IndexByte(rest, '\n'); end >= 0 {
			return end + 1, true, nil
		}
		return len(rest), true, nil
	case strings.HasPrefix(rest, "/*"):
		end := strings.Index(rest[2:], "*/")
		if end < 0 {
			return 0, false, errors.New("a comment is not closed")
		}
		body := rest[2 : 2+end]
		if strings.HasPrefix(body, "!") || strings.HasPrefix(body, "M!") {
			return 0, false, errors.New("it has a comment that servers read as SQL: leave /*! … */ out")
		}
		hint := strings.ToUpper(body)
		if strings.HasPrefix(body, "+") && (strings.Contains(hint, "MAX_EXECUTION_TIME") || strings.Contains(hint, "SET_VAR")) {
			return 0, false, errors.New("it has a hint that would change the time limit or the session: leave MAX_EXECUTION_TIME and SET_VAR out")
		}
		return 2 + end + 2, true, nil
	}
	return 0, false, nil
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// quoted returns how long the string or quoted name is that text begins with, or -1 if it has no end.
// A quote that is there twice is part of it, and so is one behind a backslash, but in a name.
func quoted(text string) int {
	quote := text[0]
	for i := 1; i < len(text); i++ {
		switch {
		case text[i] == '\\' && quote != '`':
			i++
		case text[i] == quote && i+1 < len(text) && text[i+1] == quote:
			i++
		case text[i] == quote:
			return i + 1
		}
	}
	return -1
}

// wordLength returns how long the word is that text begins with: a keyword, a name or a number.
func wordLength(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool {
		return r != '_' && r != '$' && r < utf8.RuneSelf && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	})
	if end < 0 {
		return len(text)
	}
	return end
}
