package webpush

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/push"
)

const (
	// A token is made for each push service and half day of UTC, and lives six hours
	// longer, so that a clock may be wrong by hours: at most 18 of the 24 that RFC 8292
	// allows.
	tokenPeriod = 12 * time.Hour
	tokenExtra  = 6 * time.Hour
	maxTokens   = 1000 // that are kept
)

// KeyPair is a VAPID key pair. Subscriptions are made for its public key; with another
// key, nothing can be sent to them.
type KeyPair struct {
	PEM    []byte // the private key, PKCS #8
	Public string // as the browser's applicationServerKey: an uncompressed point in base64url
}

// GenerateKey makes a key pair.
func GenerateKey() (KeyPair, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return KeyPair{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return KeyPair{}, err
	}
	public, err := publicKey(private)
	return KeyPair{PEM: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), Public: public}, err
}

func publicKey(private *ecdsa.PrivateKey) (string, error) {
	point, err := private.PublicKey.Bytes()
	return base64.RawURLEncoding.EncodeToString(point), err
}

// parseKey reads a private key of P-256: PEM (PKCS #8 or SEC 1), or the 32 bytes in
// base64url that other Web Push libraries write.
func parseKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		raw, err := base64.RawURLEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(string(text)), "="))
		if err != nil || len(raw) != 32 {
			return nil, errors.New("no VAPID key: want a private key of P-256 in PEM, or its 32 bytes in base64url; activityd push keys makes one")
		}
		return ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	}
	var parsed any
	var err error
	switch block.Type {
	case "PRIVATE KEY":
		parsed, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	case "EC PRIVATE KEY":
		parsed, err = x509.ParseECPrivateKey(block.Bytes)
	default:
		return nil, fmt.Errorf("PEM block %q: want PRIVATE KEY", block.Type)
	}
	if err != nil {
		return nil, err
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || private.Curve != elliptic.P256() {
		return nil, errors.New("the key is not of the curve P-256")
	}
	return private, nil
}

// checkSubject returns an error if push services would refuse the subject of our tokens.
func checkSubject(subject string) error {
	err := fmt.Errorf("subject %q: want mailto:you@your.site or an https URL by which push services can reach you", subject)
	if address, ok := strings.CutPrefix(subject, "mailto:"); ok {
		parsed, invalid := mail.ParseAddress(address)
		if invalid != nil || parsed.Address != address || !strings.Contains(address[strings.LastIndexByte(address, '@'):], ".") {
			return err // of a host without a dot Apple says BadJwtToken
		}
		return nil
	}
	u, invalid := url.Parse(subject)
	if invalid != nil || u.Scheme != "https" || !strings.Contains(u.Hostname(), ".") {
		return err
	}
	return nil
}

// vapid makes the header by which push services know us. It is safe for concurrent use.
type vapid struct {
	subject string
	private *ecdsa.PrivateKey
	public  string

	mu     sync.Mutex
	period int64             // of the tokens, in units of tokenPeriod
	tokens map[string]string // by origin
}

func newVAPID(text []byte, subject string) (*vapid, error) {
	private, err := parseKey(text)
	if err != nil {
		return nil, err
	}
	public, err := publicKey(private)
	return &vapid{subject: subject, private: private, public: public}, err
}

// authorization returns the header's value for an origin, without the default port.
func (v *vapid) authorization(origin string, now time.Time) (string, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	period := now.Unix() / int64(tokenPeriod/time.Second)
	if period != v.period || len(v.tokens) >= maxTokens {
		v.period, v.tokens = period, make(map[string]string)
	}
	token := v.tokens[origin]
	if token == "" {
		var err error
		if token, err = v.sign(origin, (period+1)*int64(tokenPeriod/time.Second)+int64(tokenExtra/time.Second)); err != nil {
			return "", err
		}
		v.tokens[origin] = token
	}
	return "vapid t=" + token + ", k=" + v.public, nil
}

// sign returns a JSON Web Token by ES256. Signing is deterministic (RFC 6979), so that all
// processes have the same tokens.
func (v *vapid) sign(origin string, expires int64) (string, error) {
	claims, err := json.Marshal(struct {
		Audience string `json:"aud"`
		Expires  int64  `json:"exp"`
		Subject  string `json:"sub"`
	}{origin, expires, v.subject})
	if err != nil {
		return "", err
	}
	return push.SignES256(v.private, []byte(`{"typ":"JWT","alg":"ES256"}`), claims)
}
