package check

import (
	"strings"
	"testing"
)

func TestParseStatement(t *testing.T) {
	t.Parallel()
	for given, text := range map[string]string{
		"SELECT id FROM p WHERE v = :viewer LIMIT :limit":                                      "SELECT id FROM p WHERE v = ? LIMIT ?",
		"select id from p where v=:viewer limit 10 ; \n":                                       "select id from p where v=? limit 10",
		"WITH c AS (SELECT :viewer v) SELECT p.id FROM c, p":                                   "WITH c AS (SELECT ? v) SELECT p.id FROM c, p",
		"(SELECT 1 WHERE 1 = :viewer) UNION (SELECT :limit)":                                   "(SELECT 1 WHERE 1 = ?) UNION (SELECT ?)",
		"SELECT 'it''s :limit', '\\':x' FROM p WHERE v = :viewer":                              "SELECT 'it''s :limit', '\\':x' FROM p WHERE v = ?",
		"SELECT @r := 1, `update`, 2--:viewer":                                                 "SELECT @r := 1, `update`, 2--?",
		"SELECT /*+ NO_INDEX_MERGE(p) */ id -- it's\n, :viewer":                                "SELECT /*+ NO_INDEX_MERGE(p) */ id -- it's\n, ?",
		"SELECT ':viewer; ?', `a``:viewer` /* :limit ; ' */ FROM p WHERE v = :viewer # :limit": "SELECT ':viewer; ?', `a``:viewer` /* :limit ; ' */ FROM p WHERE v = ? # :limit",
	} {
		if s, err := ParseStatement(given); err != nil || s.text != text {
			t.Errorf("%s\nis %q, %v\nwant %q", given, s.text, err, text)
		}
	}
}

func TestStatementsThatAreRefused(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"":                                    "want a SELECT",
		"DELETE FROM p WHERE v = :viewer":     "want a SELECT",
		"SELECT 1":                            "has no :viewer",
		"SELECT ':viewer'":                    "has no :viewer: want :viewer, without quotes",
		"SELECT 1 -- :viewer":                 "has no :viewer",
		"SELECT :user":                        "has :user: want one SELECT with :viewer and :limit",
		"SELECT ? FROM p":                     "has ?",
		"SELECT :viewer; SELECT 2":            "has ;: want one SELECT",
		"SELECT :viewer FROM p FOR UPDATE":    "has UPDATE: want one SELECT with :viewer and :limit that neither locks nor writes",
		"SELECT :viewer LOCK IN SHARE MODE":   "has LOCK",
		"SELECT :viewer, 1.INTO OUTFILE '/x'": "has INTO",
		"SELECT :viewer --\x7f '\n INTO @x":   "has INTO",
		"SELECT GET_LOCK('a', :viewer)":       "has GET_LOCK",
		"SELECT :viewer, 'open\\'":            "has '",
		"SELECT :viewer /*! INTO @x */":       "has /*! INTO @x */",
		"SELECT :viewer /*M! FOR UPDATE */":   "has /*M!",
		"SELECT /*+ SET_VAR(x='') */ :viewer": "has /*+ SET_VAR",
	} {
		if _, err := ParseStatement(given); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", given, err, want)
		}
	}
}
