package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
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
	if err := t.check(); err != nil {
		return Token{}, "", err
	}
	return t, secret, nil
}

// String returns the line that [Parse] reads.
func (t Token) String() string {
	fields := []string{t.Name, t.Scopes.String(), t.Hash.String()}
	if t.Limit.Count > 0 {
		fields = append(fields, t.Limit.String())
	}
	if len(t.Queues) > 0 {
		fields = append(fields, "queues="+strings.Join(t.Queues, ","))
	}
	return strings.Join(fields, " ")
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
)

// check returns an error for a bad name or scope or bad queues.
func (t Token) check() error {
	switch {
	case strings.HasPrefix(t.Name, secretPrefix): // each request would be logged with the secret
		return errIsSecret
	case !nameFormat.MatchString(t.Name):
		return errName
	case t.Scopes == 0:
		return errScopes
	}
	return CheckQueues(t.Scopes, t.Queues)
}

// IsQueue reports whether a token may name a queue so.
func IsQueue(name string) bool { return queueFormat.MatchString(name) }

// CheckQueues returns an error unless there are both the scope work and names of queues, or neither.
func CheckQueues(scopes Scope, queues []string) error {
	if (scopes&Work != 0) != (len(queues) > 0) {
		return errNoQueues
	}
	for i, name := range queues {
		if !IsQueue(name) || slices.Contains(queues[:i], name) {
			return errQueues
		}
	}
	return nil
}

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

var errScopes = errors.New("want scopes from read, write, admin, inspect and work, as in read,write")

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
	Count int    // requests
	Per   string // "s", "m" or "h": in a second, a minute or an hour
	Burst int    // requests at once, after a pause
}

// maxLimit is the largest rate and the largest burst.
const maxLimit = 1_000_000

var (
	errRate    = errors.New("want a rate of 1 to 1000000 requests a second, minute or hour, as in 100/s, 600/m or 5000/h")
	errBurst   = errors.New("want a burst of 1 to 1000000 requests beside a rate, as in rate=100/s burst=200")
	rateFormat = regexp.MustCompile(`^([1-9]\d{0,6})/([smh])$`)
	seconds    = map[string]float64{"s": 1, "m": 60, "h": 3600}
)

// ParseLimit reads a rate like 100/s, 600/m or 5000/h. A burst of 0 means
// the requests of one second, or 1 if that is less.
func ParseLimit(rate string, burst int) (Limit, error) {
	parts := rateFormat.FindStringSubmatch(rate)
	if parts == nil {
		return Limit{}, errRate
	}
	count, err := strconv.Atoi(parts[1])
	if err != nil || count > maxLimit {
		return Limit{}, errRate
	}
	if burst < 0 || burst > maxLimit {
		return Limit{}, errBurst
	}
	l := Limit{Count: count, Per: parts[2], Burst: burst}
	if burst == 0 {
		l.Burst = int(math.Ceil(l.perSecond()))
	}
	return l, nil
}

func (l Limit) perSecond() float64 { return float64(l.Count) / seconds[l.Per] }

// String returns the limit in the form of a line.
func (l Limit) String() string { return fmt.Sprintf("rate=%d/%s burst=%d", l.Count, l.Per, l.Burst) }

var (
	errFields = errors.New("want: name scopes sha256:hash [rate=100/s] [burst=200] [queues=mail,thumbnails]")
	errTwice  = errors.New("an option is given twice")
)

// Parse reads tokens, one a line, in the form that package auth describes. It skips empty lines and text behind a #.
// Names and hashes must differ. The error names five wrong lines at most. A text without tokens
// is no error.
func Parse(text string) (tokens []Token, err error) {
	const maxFaults = 5
	var faults []string
	for i, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t, err := parseToken(fields)
		if err == nil && slices.ContainsFunc(tokens, func(o Token) bool { return o.Name == t.Name }) {
			err = fmt.Errorf("a line above has the name %s already: choose another", t.Name)
		}
		if err == nil && slices.ContainsFunc(tokens, func(o Token) bool { return o.Hash == t.Hash }) {
			err = errors.New("a line above has this secret already: give every client its own")
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("line %d: %v", i+1, err))
		}
		tokens = append(tokens, t)
	}
	if len(faults) > 0 {
		return nil, errors.New(strings.Join(faults[:min(len(faults), maxFaults)], "; "))
	}
	return tokens, nil
}

func parseToken(fields []string) (t Token, err error) {
	if len(fields) < 3 {
		return Token{}, errFields
	}
	t.Name = fields[0]
	if t.Scopes, err = ParseScope(fields[1]); err != nil {
		return Token{}, err
	}
	digits, ok := strings.CutPrefix(fields[2], hashPrefix)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != sha256.Size {
		return Token{}, errHash
	}
	if t.Hash = Hash(raw); t.Hash == HashOf("") {
		return Token{}, errEmptyHash
	}
	if err := t.parseOptions(fields[3:]); err != nil {
		return Token{}, err
	}
	return t, t.check()
}

func (t *Token) parseOptions(options []string) (err error) {
	given, burst := make(map[string]string), 0
	for _, o := range options {
		name, value, ok := strings.Cut(o, "=")
		if !ok || name != "rate" && name != "burst" && name != "queues" {
			return errFields
		}
		if _, twice := given[name]; twice {
			return errTwice
		}
		given[name] = value
	}
	if text, ok := given["queues"]; ok {
		t.Queues = strings.Split(text, ",")
	}
	rate, isLimited := given["rate"]
	if text, ok := given["burst"]; ok {
		if burst, err = strconv.Atoi(text); err != nil || burst < 1 || !isLimited {
			return errBurst
		}
	}
	if isLimited {
		t.Limit, err = ParseLimit(rate, burst)
	}
	return err
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
