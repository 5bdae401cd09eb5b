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

var (
	errHash = errors.New("want the hash of a secret, sha256: and 64 hexadecimal digits; the secret itself does not belong here: " +
		"take it for exposed, and make another with: activityd token")
	errEmptyHash = errors.New("this is the hash of an empty secret: was the variable empty that held it?")
)

func parseHash(s string) (Hash, error) {
	digits, ok := strings.CutPrefix(s, hashPrefix)
	raw, err := hex.DecodeString(digits)
	if !ok || err != nil || len(raw) != sha256.Size {
		return Hash{}, errHash
	}
	if h := Hash(raw); h != HashOf("") {
		return h, nil
	}
	return Hash{}, errEmptyHash
}

// Token is what is stored of a token: all but the secret.
type Token struct {
	Name   string // for logs and metrics
	Scopes Scope
	Hash   Hash
	Limit  Limit
	Queues []string // whose tasks it may work on, with the scope work
}

// Issue makes a token with a new secret of 130 random bits. It fails for a bad name, without a scope,
// and unless it has both the scope work and queues, or neither.
func Issue(name string, scopes Scope, limit Limit, queues ...string) (t Token, secret string, err error) {
	if err := checkName(name); err != nil {
		return Token{}, "", err
	}
	if scopes == 0 {
		return Token{}, "", errScopes
	}
	if err := CheckQueues(scopes, queues); err != nil {
		return Token{}, "", err
	}
	secret = secretPrefix + rand.Text()
	return Token{Name: name, Scopes: scopes, Hash: HashOf(secret), Limit: limit, Queues: queues}, secret, nil
}

var (
	// A database takes names in capitals, and with accents, for the same.
	queueFormat = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,31}$`)
	errQueues   = errors.New("want queues, as in queues=mail,thumbnails: names of 1 to 32 small letters, digits, dots, dashes and underscores, a letter or digit first")
	errNoQueues = errors.New("the scope work needs queues, as in queues=mail,thumbnails, and queues need the scope work")
)

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

// String returns the line that [Parse] reads.
func (t Token) String() string {
	line := fmt.Sprintf("%s %s %s %s", t.Name, t.Scopes, t.Hash, t.Limit)
	if len(t.Queues) > 0 {
		line = strings.TrimSpace(line) + " queues=" + strings.Join(t.Queues, ",")
	}
	return strings.TrimSpace(line)
}

var (
	nameFormat = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	errName    = errors.New("want a name of 1 to 64 letters, digits, dots, dashes and underscores, a letter or digit first")
	// A secret in the place of the name would be logged with every request.
	errNameIsSecret = fmt.Errorf("the name begins like a secret, with %s; names are logged: choose another", secretPrefix)
)

// checkName does not quote the name, which may be a secret at the wrong place.
func checkName(name string) error {
	if strings.HasPrefix(name, secretPrefix) {
		return errNameIsSecret
	}
	if !nameFormat.MatchString(name) {
		return errName
	}
	return nil
}

// Scope is a set of things that a token may do. The zero Scope is nothing.
type Scope uint8

// The scopes.
const (
	Read    Scope = 1 << iota // ask for answers
	Write                     // enqueue tasks
	Admin                     // all but Work, and see and change what is for operators
	Inspect                   // see what is for operators, on their page, and compare answers
	Work                      // work on the tasks of the token's queues
)

// scopeNames are in the order of the bits, in which scopes are written.
var scopeNames = []string{"read", "write", "admin", "inspect", "work"}

// errScopes does not quote the field: in a line whose fields are mixed up it may be a
// secret.
var errScopes = errors.New("want scopes from read, write, admin, inspect and work, as in read,write")

// ParseScope reads names of scopes with commas between them. There must be at
// least one.
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

// Has reports whether s includes all of need. Admin includes everything but Work, which is bound to
// queues.
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

// Limit is how many requests a token may make. The zero Limit is none.
type Limit struct {
	Count int    // requests
	Per   string // "s", "m" or "h": in a second, a minute or an hour
	Burst int    // requests at once, after a pause
}

// maxLimit is the largest rate and the largest burst.
const maxLimit = 1_000_000

var (
	errRate    = errors.New("want a rate of 1 to 1000000 requests a second, minute or hour, as in 100/s, 600/m or 5000/h")
	rateFormat = regexp.MustCompile(`^([1-9]\d{0,6})/([smh])$`)
	seconds    = map[string]float64{"s": 1, "m": 60, "h": 3600}
)

// ParseLimit reads a rate such as 100/s, 600/m or 5000/h. A burst of 0 means
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
		return Limit{}, fmt.Errorf("want a burst of 1 to %d requests", maxLimit)
	}
	l := Limit{Count: count, Per: parts[2], Burst: burst}
	if burst == 0 {
		l.Burst = int(math.Ceil(l.perSecond()))
	}
	return l, nil
}

func (l Limit) perSecond() float64 { return float64(l.Count) / seconds[l.Per] }

// String returns the limit in the form of a line, "" if there is none.
func (l Limit) String() string {
	if l.Count == 0 {
		return ""
	}
	return fmt.Sprintf("rate=%d/%s burst=%d", l.Count, l.Per, l.Burst)
}

var (
	errFields = errors.New("want: name scopes sha256:hash [rate=100/s] [burst=200] [queues=mail,thumbnails]")
	errTwice  = errors.New("an option is given twice")
	errBurst  = errors.New("burst needs a rate, and is a number of requests from 1 to 1000000, as in rate=100/s burst=200")
)

// Parse reads tokens, one a line, in the form that package auth describes. Empty lines,
// and what follows a #, are skipped. Names and hashes must be different from each
// other. The error names the lines that are wrong, and quotes nothing of them, as there
// may be a secret where it does not belong. A text without tokens is no error.
func Parse(text string) (tokens []Token, err error) {
	names, hashes := make(map[string]int), make(map[Hash]int) // the numbers of the lines
	var faults []string
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t, err := parseToken(fields)
		// A name is quoted: the rest of its line is in order.
		if first := names[t.Name]; err == nil && first != 0 {
			err = fmt.Errorf("the name %s is that of line %d already: choose another", t.Name, first)
		}
		if first := hashes[t.Hash]; err == nil && first != 0 {
			err = fmt.Errorf("the secret is that of line %d already: give every client its own", first)
		}
		if err != nil {
			faults = append(faults, fmt.Sprintf("line %d: %v", number, err))
			continue
		}
		names[t.Name], hashes[t.Hash] = number, number
		tokens = append(tokens, t)
	}
	if len(faults) == 0 {
		return tokens, nil
	}
	const most = 5
	if more := len(faults) - most; more > 0 {
		faults = append(faults[:most], fmt.Sprintf("and %d more", more))
	}
	return nil, errors.New(strings.Join(faults, "; "))
}

func parseToken(fields []string) (t Token, err error) {
	if len(fields) < 3 {
		return Token{}, errFields
	}
	t.Name = fields[0]
	if err := checkName(t.Name); err != nil {
		return Token{}, err
	}
	if t.Scopes, err = ParseScope(fields[1]); err != nil {
		return Token{}, err
	}
	if t.Hash, err = parseHash(fields[2]); err != nil {
		return Token{}, err
	}
	if len(fields) > 3 {
		t.Limit, t.Queues, err = parseOptions(fields[3:])
	}
	if err == nil {
		err = CheckQueues(t.Scopes, t.Queues)
	}
	return t, err
}

func parseOptions(options []string) (l Limit, queues []string, err error) {
	given, burst := make(map[string]string), 0
	for _, o := range options {
		name, value, ok := strings.Cut(o, "=")
		if !ok || name != "rate" && name != "burst" && name != "queues" {
			return l, nil, errFields
		}
		if _, twice := given[name]; twice {
			return l, nil, errTwice
		}
		given[name] = value
	}
	if text, ok := given["queues"]; ok {
		queues = strings.Split(text, ",")
	}
	text, isBurst := given["burst"]
	rate, isLimited := given["rate"]
	if isBurst {
		if burst, err = strconv.Atoi(text); err != nil || burst < 1 || !isLimited {
			return l, nil, errBurst
		}
	}
	if isLimited {
		l, err = ParseLimit(rate, burst)
	}
	return l, queues, err
}

// AppendToken appends a token to a file, and makes the file, for this user alone, if needed. It refuses a name that the file
// has, and a file that is not in order.
func AppendToken(path string, t Token) error {
	err := changeFile(path, func(before []byte) ([]byte, error) {
		text := string(before)
		if text != "" && !strings.HasSuffix(text, "\n") {
			text += "\n"
		}
		text += t.String() + "\n"
		_, err := Parse(text)
		return []byte(text), err
	})
	if err != nil {
		return fmt.Errorf("the token cannot be added: %w", err)
	}
	return nil
}
