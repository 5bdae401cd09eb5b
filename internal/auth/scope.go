package auth

import (
	"errors"
	"strings"
)

// Scope is a set of things that a token may do. The zero Scope is nothing.
type Scope uint8

// The scopes.
const (
	Read  Scope = 1 << iota // ask for answers
	Write                   // enqueue tasks
	Admin                   // both, and see what is an operator's to see
)

// scopeNames are in the order in which scopes are written.
var scopeNames = []struct {
	scope Scope
	name  string
}{{Read, "read"}, {Write, "write"}, {Admin, "admin"}}

// errScopes does not quote what was found: in a line whose fields are mixed up,
// that may be a secret.
var errScopes = errors.New("want scopes from read, write and admin, as in read,write")

// ParseScope reads names of scopes with commas between them. There must be at
// least one.
func ParseScope(s string) (Scope, error) {
	var all Scope
	for name := range strings.SplitSeq(s, ",") {
		one := scopeOf(name)
		if one == 0 {
			return 0, errScopes
		}
		all |= one
	}
	return all, nil
}

func scopeOf(name string) Scope {
	for _, n := range scopeNames {
		if n.name == name {
			return n.scope
		}
	}
	return 0
}

// Has reports whether s includes all of need. Admin includes everything.
func (s Scope) Has(need Scope) bool { return s&Admin != 0 || s&need == need }

// String returns the names with commas between them, in the form of [ParseScope].
func (s Scope) String() string {
	var names []string
	for _, n := range scopeNames {
		if s&n.scope != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, ",")
}
