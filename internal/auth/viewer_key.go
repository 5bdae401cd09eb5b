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
	"github.com/activityd/activityd/internal/strictjson"
)

// The algorithms of viewer keys.
const (
	EdDSA = "EdDSA" // Ed25519: the public key checks tokens and cannot make any
	HS256 = "HS256" // HMAC with SHA-256: one secret makes and checks them
)

// maxViewerKeys bounds the keys of a file.
const maxViewerKeys = 100

// minSecret is the length of the shortest secret of HS256, in bytes (RFC 7518, 3.2).
const minSecret = 32

// ViewerKey is a key of the site that makes tokens of viewers, or only checks them.
type ViewerKey struct {
	ID  string // the kid of its tokens
	Alg string // the only algorithm of its tokens

	check any // an ed25519.PublicKey or the secret, as []byte
	sign  any // an ed25519.PrivateKey or the secret; nil: it only checks
}

var (
	keyIDFormat = regexp.MustCompile(`^[[:graph:]]{1,128}$`)
	errKeyID    = errors.New("want an id of 1 to 128 printable ASCII characters without spaces, as in 2026-11")
	errKeyAlg   = fmt.Errorf("want %s or %s", EdDSA, HS256)
)

// NewViewerKey makes a key with a new secret. It fails for a bad id or an unknown algorithm.
func NewViewerKey(id, alg string) (ViewerKey, error) {
	if !keyIDFormat.MatchString(id) {
		return ViewerKey{}, errKeyID
	}
	switch alg {
	case EdDSA:
		public, private, err := ed25519.GenerateKey(nil)
		return ViewerKey{ID: id, Alg: alg, check: public, sign: private}, err
	case HS256:
		secret := make([]byte, minSecret)
		_, err := rand.Read(secret)
		return ViewerKey{ID: id, Alg: alg, check: secret, sign: secret}, err
	}
	return ViewerKey{}, errKeyAlg
}

// CanSign reports whether the key makes tokens. One without its private part only checks them.
func (k ViewerKey) CanSign() bool { return k.sign != nil }

// Sign makes a token with which viewer may ask for itself until ttl is over, at most
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

// The values of kty, and of crv (RFC 7517, RFC 8037).
const (
	typeOKP = "OKP"
	typeOct = "oct"
	ed      = "Ed25519"
)

// keyText is base64 of JSON Web Keys and tokens. Strict refuses what other text stands for,
// too; the line breaks that it still ignores are refused before.
var keyText = base64.RawURLEncoding.Strict()

// MarshalJSON writes the key as a JSON Web Key, its private part included.
func (k ViewerKey) MarshalJSON() ([]byte, error) {
	out := map[string]string{"kid": k.ID, "alg": k.Alg}
	switch check := k.check.(type) {
	case ed25519.PublicKey:
		out["kty"], out["crv"], out["x"] = typeOKP, ed, keyText.EncodeToString(check)
		if private, ok := k.sign.(ed25519.PrivateKey); ok {
			out["d"] = keyText.EncodeToString(private.Seed())
		}
	case []byte:
		out["kty"], out["k"] = typeOct, keyText.EncodeToString(check)
	}
	return json.Marshal(out)
}

// ParseViewerKeys reads a JSON Web Key Set (RFC 7517) of which each key has a kid of its own
// and an alg, EdDSA or HS256. Keys of other kinds are refused, not ignored: one that was
// misspelt would be missed by its tokens. The error names what is wrong, and quotes no part
// of a key. A set without keys is no error.
func ParseViewerKeys(text []byte) (keys []ViewerKey, err error) {
	root, err := strictjson.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("want a JSON Web Key Set: %w", err)
	}
	r := &strictjson.Reader{Root: "the set"}
	set, _ := r.Object("", root)
	list, ok := set.Need("keys", "an array of keys")
	if !ok {
		return nil, r.Err()
	}
	items, _ := r.Array("keys", list, "keys", 0, maxViewerKeys)
	for i, item := range items {
		o, ok := r.Object(strictjson.Item("keys", i), item)
		if !ok {
			continue
		}
		k := readViewerKey(o)
		if first := slices.IndexFunc(keys, func(other ViewerKey) bool { return other.ID == k.ID }); first >= 0 {
			o.Addf("kid", "is that of %s already", strictjson.Item("keys", first))
		}
		keys = append(keys, k)
	}
	if err := r.Err(); err != nil {
		return nil, err
	}
	return keys, nil
}

func readViewerKey(o strictjson.Object) (k ViewerKey) {
	if k.ID = needText(o, "kid", "the id of the key"); !keyIDFormat.MatchString(k.ID) {
		o.Addf("kid", "%v", errKeyID)
	}
	if use, given := o.String("use", "sig"); given && use != "sig" {
		o.Addf("use", "want sig, or none")
	}
	k.Alg = needText(o, "alg", "the algorithm of the key")
	kind := needText(o, "kty", "the type of the key")
	switch {
	case k.Alg == EdDSA && kind == typeOKP:
		if needText(o, "crv", ed) != ed {
			o.Addf("crv", "want %s", ed)
		}
		k.check, k.sign = readEd25519(o)
	case k.Alg == HS256 && kind == typeOct:
		secret := readBytes(o, "k", "the secret", minSecret, maxViewerText)
		k.check, k.sign = secret, secret
	default:
		o.Addf("alg", "want %s with the kty %s, or %s with the kty %s", EdDSA, typeOKP, HS256, typeOct)
	}
	return k
}

// readEd25519 reads a pair of keys, or the public one alone.
func readEd25519(o strictjson.Object) (check, sign any) {
	public := ed25519.PublicKey(readBytes(o, "x", "the public key", ed25519.PublicKeySize, ed25519.PublicKeySize))
	if public != nil && !isPublicKey(public) {
		o.Addf("x", "is not the public key of a private one: make a pair with: activityd token --new-key")
	}
	if _, given := o.Get("d"); !given {
		return public, nil
	}
	seed := readBytes(o, "d", "the private key", ed25519.SeedSize, ed25519.SeedSize)
	if seed == nil {
		return public, nil
	}
	private := ed25519.NewKeyFromSeed(seed)
	if !public.Equal(private.Public()) {
		o.Addf("d", "is not the private key of x")
	}
	return public, private
}

// readBytes reads a key of at least and at most so many bytes, or returns nil and reports what is wrong. A secret with one value in
// all bytes was never filled, or filled by hand.
func readBytes(o strictjson.Object, name, what string, least, most int) []byte {
	want := what + ", as base64 for URLs without padding"
	text := needText(o, name, want)
	if _, given := o.Get(name); !given {
		return nil
	}
	raw, err := keyText.DecodeString(text)
	switch {
	case err != nil || keyText.EncodeToString(raw) != text: // it has a line break
		o.Addf(name, "want %s", want)
	case len(raw) < least && least < most:
		o.Addf(name, "has %d bytes: want at least %d", len(raw), least)
	case len(raw) < least || len(raw) > most:
		o.Addf(name, "has %d bytes: want %d", len(raw), least)
	case name != "x" && bytes.Count(raw, raw[:1]) == len(raw):
		o.Addf(name, "has one value in all of its bytes: anyone can guess it; make a key with: activityd token --new-key")
	default:
		return raw
	}
	return nil
}

// isPublicKey reports whether x is a point of Ed25519 in its one encoding, and not of small
// order. [ed25519.Verify] does not check the order, and with a key of order 8 or less
// anyone can sign; with one that is no point it accepts no signature.
func isPublicKey(x []byte) bool {
	point, err := new(edwards25519.Point).SetBytes(x)
	return err == nil && bytes.Equal(point.Bytes(), x) &&
		new(edwards25519.Point).MultByCofactor(point).Equal(edwards25519.NewIdentityPoint()) == 0
}

// AddViewerKey adds a key to a file, and makes the file, for this user alone, if needed. It refuses an id that the file
// has, and a file that is not in order. The file is written again: members that activityd does not know are dropped.
func AddViewerKey(path string, k ViewerKey) error {
	err := changeFile(path, func(before []byte) (after []byte, err error) {
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
	if err != nil {
		return fmt.Errorf("the key cannot be added: %w", err)
	}
	return nil
}
