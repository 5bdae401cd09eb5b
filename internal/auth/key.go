package auth

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"filippo.io/edwards25519"
	"github.com/golang-jwt/jwt/v5"

	"github.com/activityd/activityd/internal/member"
)

// The algorithms of viewer keys.
const (
	EdDSA = "EdDSA" // Ed25519: the public key checks tokens and cannot make any
	HS256 = "HS256" // HMAC with SHA-256: the same secret makes and checks them
)

const (
	maxViewerKeys = 100 // in a file
	minSecret     = 32  // bytes of a secret of HS256 (RFC 7518, 3.2)
)

// ViewerKey is a key of the site that makes tokens of viewers, or only checks them.
type ViewerKey struct {
	ID  string // the kid of its tokens
	Alg string // the only algorithm of its tokens

	jwk   webKey
	check any // an ed25519.PublicKey or the secret, as []byte
	sign  any // an ed25519.PrivateKey or the secret; nil: it only checks
}

var keyIDFormat = regexp.MustCompile(`^[[:graph:]]{1,128}$`)

// NewViewerKey makes a key with a new secret. It fails for a bad id or an unknown algorithm.
func NewViewerKey(id, alg string) (ViewerKey, error) {
	seed := make([]byte, minSecret)
	_, _ = rand.Read(seed) // it never fails
	w := webKey{Type: "oct", Alg: alg, ID: id, K: keyText.EncodeToString(seed)}
	if alg == EdDSA {
		public, _ := ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)
		w = webKey{Type: "OKP", Curve: "Ed25519", Alg: alg, ID: id, X: keyText.EncodeToString(public), D: w.K}
	}
	return w.key()
}

// CanSign reports whether the key makes tokens, and not only checks them.
func (k ViewerKey) CanSign() bool { return k.sign != nil }

// Sign makes a token for viewer, good until ttl is over, at most
// [MaxViewerToken]. audience is the server's; "" if it has none.
func (k ViewerKey) Sign(viewer member.ID, ttl time.Duration, audience string) (string, error) {
	if !k.CanSign() {
		return "", fmt.Errorf("the key %s has no private part, and so only checks tokens", k.ID)
	}
	if ttl < time.Second || ttl > MaxViewerToken {
		return "", fmt.Errorf("a token cannot live for %v: want 1s to %v", ttl, MaxViewerToken)
	}
	now := time.Now()
	claims := jwt.MapClaims{"sub": viewer.String(), "iat": now.Unix(), "exp": now.Add(ttl).Unix()}
	if audience != "" {
		claims["aud"] = audience
	}
	token := jwt.NewWithClaims(jwt.GetSigningMethod(k.Alg), claims)
	token.Header["kid"] = k.ID
	return token.SignedString(k.sign)
}

// webKey is a key in the form of RFC 7517 and RFC 8037.
type webKey struct {
	Type  string `json:"kty"`
	Curve string `json:"crv,omitempty"`
	Use   string `json:"use,omitempty"`
	Alg   string `json:"alg"`
	ID    string `json:"kid"`
	X     string `json:"x,omitempty"`
	D     string `json:"d,omitempty"`
	K     string `json:"k,omitempty"`
}

// keyText is base64 of JSON Web Keys and tokens. Strict refuses a second spelling, but for line breaks.
var keyText = base64.RawURLEncoding.Strict()

// MarshalJSON writes the key as a JSON Web Key, its private part included.
func (k ViewerKey) MarshalJSON() ([]byte, error) { return json.Marshal(k.jwk) }

// ParseViewerKeys reads a JSON Web Key Set (RFC 7517) whose keys each have a kid of its own
// and an alg, EdDSA or HS256. It refuses keys of all further kinds, as the tokens of an ignored key
// would fail. The error quotes no part of a key. A set without keys is no error.
func ParseViewerKeys(text []byte) (keys []ViewerKey, err error) {
	var set struct {
		Keys []webKey `json:"keys"`
	}
	if err := json.Unmarshal(text, &set); err != nil || set.Keys == nil || len(set.Keys) > maxViewerKeys {
		return nil, errors.Join(fmt.Errorf("want a JSON Web Key Set, with 0 to %d keys", maxViewerKeys), err)
	}
	for i, w := range set.Keys {
		k, err := w.key()
		if err == nil && slices.ContainsFunc(keys, func(other ViewerKey) bool { return other.ID == k.ID }) {
			err = errors.New("kid: another key has it already")
		}
		if err != nil {
			return nil, fmt.Errorf("keys[%d].%w", i, err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// key returns the key of w. An error begins with the member that is wrong.
func (w webKey) key() (k ViewerKey, err error) {
	switch k = (ViewerKey{ID: w.ID, Alg: w.Alg, jwk: w}); {
	case !keyIDFormat.MatchString(w.ID):
		return k, errors.New("kid: want an id of 1 to 128 printable ASCII characters without spaces, as in 2026-11")
	case w.Use != "" && w.Use != "sig":
		return k, errors.New("use: want sig, or none")
	case w.Alg == HS256 && w.Type == "oct":
		secret, err := readBytes("k", w.K, minSecret, maxViewerText)
		k.check, k.sign = secret, secret
		return k, err
	case w.Alg != EdDSA || w.Type != "OKP" || w.Curve != "Ed25519":
		return k, errors.New("alg: want EdDSA with the kty OKP and the crv Ed25519, or HS256 with the kty oct")
	}
	x, err := readBytes("x", w.X, ed25519.PublicKeySize, ed25519.PublicKeySize)
	if err != nil {
		return k, err
	}
	// Anyone can sign for a key of order 8 or less, which [ed25519.Verify] does not look for.
	point, err := new(edwards25519.Point).SetBytes(x)
	if err != nil || !bytes.Equal(point.Bytes(), x) || new(edwards25519.Point).MultByCofactor(point).Equal(edwards25519.NewIdentityPoint()) == 1 {
		return k, errors.New("x: is not the public key of a private one: make a pair with: activityd token key")
	}
	if k.check = ed25519.PublicKey(x); w.D == "" {
		return k, nil
	}
	seed, err := readBytes("d", w.D, ed25519.SeedSize, ed25519.SeedSize)
	if err != nil {
		return k, err
	}
	private := ed25519.NewKeyFromSeed(seed)
	if k.sign = private; !ed25519.PublicKey(x).Equal(private.Public()) {
		return k, errors.New("d: is not the private key of x")
	}
	return k, nil
}

// readBytes reads a key of least to most bytes. A secret with the same value in all bytes was never filled, or filled
// by hand.
func readBytes(name, text string, least, most int) ([]byte, error) {
	raw, err := keyText.DecodeString(text)
	switch {
	case err != nil || keyText.EncodeToString(raw) != text: // it has a line break
		return nil, fmt.Errorf("%s: want base64 for URLs without padding", name)
	case len(raw) < least || len(raw) > most:
		return nil, fmt.Errorf("%s: has %d bytes: want at least %d, and at most %d", name, len(raw), least, most)
	case name != "x" && bytes.Count(raw, raw[:1]) == len(raw):
		return nil, fmt.Errorf("%s: has one value in all of its bytes: anyone can guess it; make a key with: activityd token key", name)
	}
	return raw, nil
}

// AddViewerKey adds a key to a file, and makes the file, for this user alone, if needed. It refuses an id that the file
// has, and a file with a fault. It drops members of the file that activityd does not know.
func AddViewerKey(path string, k ViewerKey) error {
	return changeFile(path, func(before []byte) (after []byte, err error) {
		var keys []ViewerKey
		if len(before) > 0 {
			keys, err = ParseViewerKeys(before)
		}
		if err == nil {
			after, err = json.MarshalIndent(map[string]any{"keys": append(keys, k)}, "", "  ")
		}
		if err == nil {
			_, err = ParseViewerKeys(after)
		}
		return append(after, '\n'), err
	})
}
