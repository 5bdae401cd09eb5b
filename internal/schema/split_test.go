package schema

import (
	"slices"
	"testing"
)

func TestSplit(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		text string
		want []string
	}{
		"nothing":                    {"", nil},
		"space and empty statements": {" ;\n; ", nil},
		"two statements":             {"a;\n b c ;", []string{"a", "b c"}},
		"no last semicolon":          {"a; b", []string{"a", "b"}},
		"semicolon in quotes":        {"a ';' \";\" `;`; b", []string{"a ';' \";\" `;`", "b"}},
		"doubled quote":              {"a 'it''s; so'; b", []string{"a 'it''s; so'", "b"}},
		"escaped quote":              {`a 'it\'s; so'; b`, []string{`a 'it\'s; so'`, "b"}},
		"backslash in a name":        {"a `\\`; b", []string{"a `\\`", "b"}},
		"comment with an apostrophe": {"a -- it's; so\n b; c", []string{"a  \n b", "c"}},
		"comment of hashes":          {"a # it's; so\n b", []string{"a  \n b"}},
		"block comment":              {"a/* it's;\n so */b", []string{"a b"}},
		"comment at the end":         {"a; -- b", []string{"a"}},
		"bare dashes at the end":     {"a; --", []string{"a"}},
		"dashes that are arithmetic": {"a 1--1; b", []string{"a 1--1", "b"}},
		"comment signs in quotes":    {"a '-- /* # '; b", []string{"a '-- /* # '", "b"}},
		"other delimiter":            {"DELIMITER //\na; b//\nc // d;\n//\n", []string{"a; b", "c", "d;"}},
		"delimiter and back":         {"a;\ndelimiter $$\nb;c$$\nDelimiter ;\nd; e", []string{"a", "b;c", "d", "e"}},
		"delimiter in quotes":        {"DELIMITER //\na '//' -- //\n b//c", []string{"a '//'  \n b", "c"}},
		"delimiter in a statement":   {"a\nDELIMITER b; c", []string{"a\nDELIMITER b", "c"}},
		"delimiter within a line":    {"a; DELIMITER //\nb; c", []string{"a", "DELIMITER //\nb", "c"}},
		"delimiter without one":      {"DELIMITER\na; b", []string{"DELIMITER\na", "b"}},
		"a word that begins so":      {"DELIMITERS x; b", []string{"DELIMITERS x", "b"}},
		"open block comment":         {"a; /* b", []string{"a"}},
		"open quote":                 {"a; 'b; c", []string{"a", "'b; c"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := split(test.text); !slices.Equal(got, test.want) {
				t.Errorf("split(%q) = %q, want %q", test.text, got, test.want)
			}
		})
	}
}
