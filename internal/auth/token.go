package auth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// secretPrefix lets scanners of source code and logs recognise a secret.
const secretPrefix = "act_"

// hashPrefix stands before a hash, and leaves room for other kinds.
const hashPrefix = "sha256:"

// Hash is the SHA-256 of a secret.
type Hash [sha256.Size]byte

// HashOf returns the hash of a secret.
func HashOf(secret string) Hash { return sha256.Sum256([]byte(secret)) }

// String returns the hash as it stands in a line.
func (h Hash) String() string { return hashPrefix + hex.EncodeToString(h[:]) }

var (
	errHash = errors.New("want the hash of a secret, sha256: and 64 hexadecimal digits; the secret itself does not belong here: " +
		"take it for exposed, and make another with: activityd token")
	errEmptyHash = errors.New("this is the hash of nothing at all: was the variable empty that held the secret?")
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
	Name   string // tells tokens apart in logs; no secret
	Scopes Scope
	Hash   Hash
	Limit  Limit
}

// Issue makes a token with a new secret of 130 random bits. The error is about
// the name or the scopes.
func Issue(name string, scopes Scope, limit Limit) (t Token, secret string, err error) {
	if err := checkName(name); err != nil {
		return Token{}, "", err
	}
	if scopes == 0 {
		return Token{}, "", errScopes
	}
	secret = secretPrefix + rand.Text()
	return Token{Name: name, Scopes: scopes, Hash: HashOf(secret), Limit: limit}, secret, nil
}

// String returns the line that [Parse] reads.
func (t Token) String() string {
	line := fmt.Sprintf("%s %s %s %s", t.Name, t.Scopes, t.Hash, t.Limit)
	return strings.TrimRight(line, " ")
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
