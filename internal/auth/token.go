package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// secretPrefix lets scanners of source code and logs recognise a secret.
const secretPrefix = "act_"

// Hash is the SHA-256 of a secret.
type Hash [sha256.Size]byte

const hashPrefix = "sha256:"

// HashOf returns the hash of a secret.
func HashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// String returns the hash in the form of a line.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

// Token is a client's token without its secret.
type Token struct {
	Name   string // for logs and metrics
	Scopes Scope
	Hash   Hash
	Limit  Limit
	Queues []string // whose tasks the client may work on, with the scope work
}

// Issue makes a token with a new secret of 130 random bits. It fails for a bad name, without a scope,
// and unless it has both the scope work and queues, or neither.
func Issue(name string, scopes Scope, limit Limit, queues ...string) (t Token, secret string, err error) {
	secret = secretPrefix + rand.Text()
	t = Token{Name: name, Scopes: scopes, Hash: HashOf(secret), Limit: limit, Queues: queues}
	return t, secret, t.check()
}

// String returns the line that [Parse] reads.
func (t Token) String() string {
	line := fmt.Sprintf("%s %s %s", t.Name, t.Scopes, t.Hash)
	if t.Limit.PerSecond > 0 {
		line += fmt.Sprintf(" rate=%.0f/s", t.Limit.PerSecond)
	}
	if len(t.Queues) > 0 {
		line += " queues=" + strings.Join(t.Queues, ",")
	}
	return line
}

// An error about a line quotes nothing of it, as a secret may stand at the wrong place.
var (
	nameFormat  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	errName     = errors.New("want a name of 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
	errIsSecret = fmt.Errorf("the name begins like a secret, with %s; names are logged: choose another", secretPrefix)

	// A database takes names in capitals, and with accents, for the same.
	queueFormat = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)
	errQueues   = errors.New("want queues, as in queues=mail,thumbnails: " +
		"names of 1 to 32 small letters, digits, dots, dashes and underscores, a letter or digit first")
	errNoQueues = errors.New("the scope work needs queues, as in queues=mail,thumbnails, and queues need the scope work")

	errHash = errors.New("want the hash of a secret, sha256: and 64 hexadecimal digits; the secret itself does not belong here: " +
		"take it for exposed, and make another with: activityd token")
	errEmptyHash = errors.New("this is the hash of an empty secret: was the variable empty that held it?")
	errFields    = errors.New("want: name scopes sha256:hash [rate=100/s] [queues=mail,thumbnails]")
	errScopes    = errors.New("want scopes from read, write, admin, inspect and work, as in read,write")
	errRate      = errors.New("want a rate of 1 to 1000000 requests a second, as in 100/s")
)

// check returns an error for a bad name, no scope, bad queues, and unless there are both the scope work and queues, or
// neither.
func (t Token) check() error {
	switch {
	case strings.HasPrefix(t.Name, secretPrefix): // each request would be logged with the secret
		return errIsSecret
	case !nameFormat.MatchString(t.Name):
		return errName
	case t.Scopes == 0:
		return errScopes
	case (t.Scopes&Work != 0) != (len(t.Queues) > 0):
		return errNoQueues
	}
	for i, name := range t.Queues {
		if !IsQueue(name) || slices.Contains(t.Queues[:i], name) {
			return errQueues
		}
	}
	return nil
}

// IsQueue reports whether a token may name a queue so.
func IsQueue(name string) bool { return queueFormat.MatchString(name) }

// Scope is a set of rights of a token. The zero Scope is empty.
type Scope uint8

// The scopes.
const (
	Read    Scope = 1 << iota // ask for answers
	Write                     // enqueue tasks
	Admin                     // all but Work, and change the state of queues on the console
	Inspect                   // see the console
	Work                      // work on the tasks of the token's queues
)

// scopeNames are in the order of the bits.
var scopeNames = []string{"read", "write", "admin", "inspect", "work"}

// ParseScope reads at least one name of a scope, with commas between several.
func ParseScope(s string) (Scope, error) {
	var all Scope
	for name := range strings.SplitSeq(s, ",") {
		i := slices.Index(scopeNames, name)
		if i < 0 {
			return 0, errScopes
		}
		all |= 1 << i
	}
	return all, nil
}

// Has reports whether s includes all of need.
func (s Scope) Has(need Scope) bool {
	if s&Admin != 0 {
		s |= Read | Write | Inspect
	}
	return s&need == need
}

// String returns the names with commas between them, in the form of [ParseScope].
func (s Scope) String() string {
	var names []string
	for i, name := range scopeNames {
		if s&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// Limit is how many requests a token may make. The zero Limit does not limit.
type Limit struct {
	PerSecond float64
	Burst     int // requests at once, after a pause
}

// ParseLimit reads a rate like 100/s. The burst is the requests of a second.
func ParseLimit(rate string) (Limit, error) {
	count, ok := strings.CutSuffix(rate, "/s")
	n, err := strconv.Atoi(count)
	if !ok || err != nil || n < 1 || n > 1_000_000 {
		return Limit{}, errRate
	}
	return Limit{float64(n), n}, nil
}

// Parse reads tokens, one a line, in the form that package auth describes. It skips empty lines and text behind a #.
// Names and hashes must differ. The error names the first wrong line. A text without tokens is no error.
func Parse(text string) (tokens []Token, err error) {
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t, err := parseToken(fields)
		for _, other := range tokens {
			switch {
			case err != nil:
			case other.Name == t.Name:
				err = fmt.Errorf("a line above has the name %s already: choose another", t.Name)
			case other.Hash == t.Hash:
				err = errors.New("a line above has this secret already: give every client its own")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		tokens = append(tokens, t)
	}
	return tokens, nil
}

func parseToken(fields []string) (t Token, err error) {
	if len(fields) < 3 {
		return t, errFields
	}
	t.Name = fields[0]
	if t.Scopes, err = ParseScope(fields[1]); err != nil {
		return t, err
	}
	digits, ok := strings.CutPrefix(fields[2], hashPrefix)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != sha256.Size {
		return t, errHash
	}
	if t.Hash = Hash(raw); t.Hash == HashOf("") {
		return t, errEmptyHash
	}
	for _, option := range fields[3:] {
		name, value, _ := strings.Cut(option, "=")
		switch {
		case name == "rate" && t.Limit.PerSecond == 0:
			if t.Limit, err = ParseLimit(value); err != nil {
				return t, err
			}
		case name == "queues" && t.Queues == nil:
			t.Queues = strings.Split(value, ",")
		default: // unknown, or there twice
			return t, errFields
		}
	}
	return t, t.check()
}

// AppendToken appends a token to a file, and makes the file, for this user alone, if needed. It refuses a name that the
// file has, and a file with a fault.
func AppendToken(path string, t Token) error {
	return changeFile(path, func(before []byte) ([]byte, error) {
		text := string(before)
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += t.String() + "\n"
		_, err := Parse(text)
		return []byte(text), err
	})
}
