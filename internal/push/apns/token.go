package apns

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/push"
)

// A token is valid for an hour from its iat, and APNs refuses providers whose tokens change
// more often than every 20 minutes. So its iat is a multiple of tokenLife, and its signature
// is deterministic: all processes have the same token at the same time, and it changes once
// in tokenLife. It is used from tokenLag after its iat, so that clocks may be off by that
// much in either direction: its age is at most tokenLag + tokenLife = 55 minutes.
const (
	tokenLife = 50 * time.Minute
	tokenLag  = 5 * time.Minute
)

// issuedAt returns the iat of the token that is used at a time.
func issuedAt(now time.Time) int64 {
	life := int64(tokenLife / time.Second)
	return now.Add(-tokenLag).Unix() / life * life
}

// signer makes the tokens of a key.
type signer struct {
	key    *ecdsa.PrivateKey
	keyID  string
	teamID string

	mu    sync.Mutex
	iat   int64
	token string // with "bearer "
}

// newSigner returns the signer of a key as Apple gives it: PKCS #8 in PEM.
func newSigner(text []byte, keyID, teamID string) (*signer, error) {
	if keyID == "" {
		return nil, errors.New("apns: no key id: give it, or keep the file's name, AuthKey_<key id>.p8")
	}
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New(`apns: the key is no PEM block "PRIVATE KEY": want a .p8 file as Apple gives it`)
	}
	// The parser's error about a key that it cannot read may quote it.
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("apns: the key cannot be read: want a .p8 file as Apple gives it")
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("apns: the key is not one of ECDSA on the curve P-256: want a .p8 file as Apple gives it")
	}
	return &signer{key: key, keyID: keyID, teamID: teamID}, nil
}

// keyIDOf returns the id of a key by the name AuthKey_<id>.p8 of the file, or of the file that a symbolic link points
// to; "" for a different name.
func keyIDOf(path string) string {
	target, err := filepath.EvalSymlinks(path)
	if err != nil {
		return ""
	}
	name, isKey := strings.CutPrefix(filepath.Base(target), "AuthKey_")
	if name, isP8 := strings.CutSuffix(name, ".p8"); isKey && isP8 {
		return name
	}
	return ""
}

// bearer returns the value of the header Authorization.
func (s *signer) bearer(now time.Time) (string, error) {
	iat := issuedAt(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	// A clock that is set back by a little does not bring back the token before.
	if s.token != "" && (iat == s.iat || iat < s.iat && s.iat <= now.Add(tokenLag).Unix()) {
		return s.token, nil
	}
	token, err := s.sign(iat)
	if err != nil {
		return "", err
	}
	s.iat, s.token = iat, "bearer "+token
	return s.token, nil
}

// sign returns the token for an iat: a JWT by ES256, whose signature is by RFC 6979.
func (s *signer) sign(iat int64) (string, error) {
	header, err := json.Marshal(struct {
		Algorithm string `json:"alg"`
		KeyID     string `json:"kid"`
	}{"ES256", s.keyID})
	if err != nil {
		return "", err
	}
	claims, err := json.Marshal(struct {
		Issuer   string `json:"iss"`
		IssuedAt int64  `json:"iat"`
	}{s.teamID, iat})
	if err != nil {
		return "", err
	}
	return push.SignES256(s.key, header, claims)
}
