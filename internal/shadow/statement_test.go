package shadow

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
)

func TestParseStatement(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ given, text string }{
		{"SELECT id FROM p WHERE v = :viewer LIMIT :limit", "SELECT id FROM p WHERE v = ? LIMIT ?"},
		{"select id from p where v=:viewer limit 10 ; -- the end\n", "select id from p where v=? limit 10  -- the end\n"},
		{"WITH c AS (SELECT :viewer v) SELECT p.id FROM c, p", "WITH c AS (SELECT ? v) SELECT p.id FROM c, p"},
		{"(SELECT 1 WHERE 1 = :viewer) UNION (SELECT :limit)", "(SELECT 1 WHERE 1 = ?) UNION (SELECT ?)"},
		{"SELECT ':viewer; ?', \"it\\\"s :limit\", `a``:viewer` /* :limit ; ' */ FROM p WHERE v = :viewer # :limit", "SELECT ':viewer; ?', \"it\\\"s :limit\", `a``:viewer` /* :limit ; ' */ FROM p WHERE v = ? # :limit"},
		{"SELECT 'it''s :limit' FROM p WHERE v = :viewer", "SELECT 'it''s :limit' FROM p WHERE v = ?"},
		{"SELECT @r := 1, t.lock, `t`.share, d.t.into, `update`, 2--:viewer", "SELECT @r := 1, t.lock, `t`.share, d.t.into, `update`, 2--?"},
		{"SELECT /*+ NO_INDEX_MERGE(p) */ id FROM p FOR SYSTEM_TIME ALL WHERE v = :viewer", "SELECT /*+ NO_INDEX_MERGE(p) */ id FROM p FOR SYSTEM_TIME ALL WHERE v = ?"},
	} {
		s, err := ParseStatement(test.given)
		if err != nil || s.text != test.text {
			t.Errorf("%s\nis %q, %v\nwant %q", test.given, s.text, err, test.text)
		}
	}
	s, err := ParseStatement("SELECT :limit, :viewer, :limit")
	if want := []any{7, uint64(42), 7}; err != nil || !slices.Equal(s.bind(contacts.Viewer{ID: 42}, 7), want) {
		t.Errorf("bound are %v, %v", s.bind(contacts.Viewer{ID: 42}, 7), err)
	}
}

func TestStatementsThatAreRefused(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                                  "it is empty",
		" ; -- nothing":                                     "it is empty",
		"SELECT 1":                                          "it has no :viewer",
		"SELECT ':viewer'":                                  "it has no :viewer: want :viewer, without quotes",
		"SELECT 1 -- :viewer":                               "it has no :viewer",
		"SELECT :user":                                      "unknown placeholder :user: want :viewer and :limit",
		"SELECT :VIEWER":                                    "unknown placeholder :VIEWER",
		"SELECT ? FROM p":                                   "it has a ?",
		"SELECT :viewer; SELECT 2":                          "want one statement",
		"SELECT :viewer;;":                                  "want one statement",
		"DELETE FROM p WHERE v = :viewer":                   "it begins with DELETE: want a SELECT",
		"SET @x = :viewer":                                  "it begins with SET",
		"WITH c AS (SELECT :viewer) DELETE c":               "the word DELETE",
		"SELECT :viewer FROM p FOR UPDATE":                  "the word UPDATE",
		"SELECT :viewer FROM p FOR SHARE":                   "the word SHARE",
		"SELECT :viewer LOCK IN SHARE MODE":                 "the word LOCK",
		"SELECT :viewer INTO OUTFILE '/x'":                  "the word INTO",
		"SELECT :viewer.INTO OUTFILE '/x'":                  "the word INTO",
		"SELECT :viewer, 1. INTO OUTFILE '/x'":              "the word INTO",
		"SELECT :viewer, 1.INTO OUTFILE '/x'":               "the word INTO",
		"SELECT :viewer, 1e5./**/INTO OUTFILE '/x'":         "the word INTO",
		"SELECT :viewer, a. INTO OUTFILE '/x'":              "the word INTO",
		"SELECT :viewer --\x7f '\n INTO OUTFILE '/x' -- '":  "the word INTO",
		"SELECT GET_LOCK('a', :viewer)":                     "the word GET_LOCK",
		"SELECT NEXT VALUE FOR s, :viewer":                  "NEXT VALUE",
		"SELECT nextval(s), :viewer":                        "the word NEXTVAL",
		"SELECT :viewer, 'open":                             "a quote ' is not closed",
		"SELECT :viewer, 'open\\'":                          "a quote ' is not closed",
		"SELECT :viewer /* open":                            "a comment is not closed",
		"SELECT :viewer /*! INTO @x */":                     "leave /*! … */ out",
		"SELECT :viewer /*M! FOR UPDATE */":                 "leave /*! … */ out",
		"SELECT /*+ max_execution_time(0) */ :viewer":       "leave MAX_EXECUTION_TIME",
		"SELECT /*+ SET_VAR(sql_mode='') */ :viewer":        "leave MAX_EXECUTION_TIME",
		"SELECT :viewer \xff":                               "want plain text",
		"SELECT :viewer \x00":                               "want plain text",
		"SELECT :viewer " + strings.Repeat(" ", 64<<10):     "want 65536 at most",
		"EXPLAIN SELECT :viewer":                            "it begins with EXPLAIN",
		"CALL p(:viewer)":                                   "it begins with CALL",
		"SELECT :viewer FROM (SELECT 1) AS x PROCEDURE a()": "the word PROCEDURE",
	} {
		if _, err := ParseStatement(given); !errors.Is(err, ErrStatement) || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", given, err, want)
		}
	}
}

// FuzzParseStatement: what is accepted is the text as it was given, but for the placeholders and the
// semicolon, and is accepted again.
func FuzzParseStatement(f *testing.F) {
	for _, text := range []string{
		"SELECT id FROM p WHERE v = :viewer LIMIT :limit;", "SELECT ':viewer', \"\\\"\", ``` :limit`, :viewer -- x", "WITH a AS (SELECT /* ; */ :viewer) SELECT * FROM a # ;",
		"SELECT :viewer;;", "SELECT :viewer /*! x */", "SELECT 'a''b\\'' :viewer", "SELECT é, :viewer:limit", "SELECT a.lock, :viewer",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseStatement(text)
		if err != nil {
			if !errors.Is(err, ErrStatement) {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		// Outside of quotes and comments there was no question mark. So the parts between the placeholders
		// are the text, and each can be found in it in turn.
		rest := text
		for i, name := range s.names {
			at := strings.Index(rest, ":"+name)
			if at < 0 {
				t.Fatalf("%q: placeholder %d, %s, is not in the text", text, i, name)
			}
			rest = rest[at+1+len(name):]
		}
		if marks := outside(s.text); marks != len(s.names) {
			t.Fatalf("%q becomes %q: %d question marks for %d placeholders", text, s.text, marks, len(s.names))
		}
		named := s.text
		for p := (parser{rest: text}); p.rest != ""; { // put the names back
			if err := p.next(); err != nil {
				t.Fatalf("%q: %v the second time", text, err)
			}
			if p.rest == "" && p.out.String() != named {
				t.Fatalf("%q: %q, and then %q", text, named, p.out.String())
			}
		}
		if strings.Count(text, ";") == 0 && len(s.text) != len(text)-lengthOf(s.names) {
			t.Fatalf("%q becomes %q: something is lost", text, s.text)
		}
	})
}

// lengthOf is by how much placeholders are longer than question marks.
func lengthOf(names []string) (n int) {
	for _, name := range names {
		n += len(name)
	}
	return n
}

// outside counts the question marks of a text that are neither quoted nor in a comment, by a state machine
// that is written once more.
func outside(text string) (n int) {
	state := byte(0) // the quote; '-' in a comment up to the end of the line, '*' in the other kind
	for i := 0; i < len(text); i++ {
		c, more := text[i], text[i+1:]
		switch {
		case state == 0 && (c == '\'' || c == '"' || c == '`'):
			state = c
		case state == 0 && (c == '#' || c == '-' && strings.HasPrefix(more, "-") && (len(more) == 1 || more[1] <= ' ')):
			state = '-'
		case state == 0 && c == '/' && strings.HasPrefix(more, "*"):
			state, i = '*', i+1
		case state == 0 && c == '?':
			n++
		case state == '-' && c == '\n':
			state = 0
		case state == '*' && c == '*' && strings.HasPrefix(more, "/"):
			state, i = 0, i+1
		case (state == '\'' || state == '"') && c == '\\':
			i++
		case state == c && (c == '\'' || c == '"' || c == '`'):
			if strings.HasPrefix(more, string(c)) {
				i++
			} else {
				state = 0
			}
		}
	}
	return n
}
