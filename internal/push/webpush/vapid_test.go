package webpush

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"
)

const subject = "mailto:push@example.com"

func newPair(t testing.TB) KeyPair {
	t.Helper()
	pair, err := GenerateKey()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func TestOneTokenForAnOriginAndHalfADay(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	v, err := newVAPID(pair.PEM, subject)
	if err != nil {
		t.Fatal(err)
	}
	other, err := newVAPID(pair.PEM, subject) // of another process
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	seen := make(map[string]bool)
	for minute := range 24 * 60 {
		now := start.Add(time.Duration(minute) * time.Minute)
		for _, origin := range []string{"https://a.example", "https://b.example"} {
			header, err := v.authorization(origin, now)
			if err != nil {
				t.Fatal(err)
			}
			seen[header] = true
			if same, err := other.authorization(origin, now); err != nil || same != header {
				t.Fatalf("two processes with the same key have different tokens: %v", err)
			}
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d tokens for 2 origins in 24 hours, want 4", len(seen))
	}
	for i := range 3 * maxTokens {
		if _, err := v.authorization(fmt.Sprint("https://", i, ".example"), start); err != nil {
			t.Fatal(err)
		}
	}
	if len(v.tokens) > maxTokens {
		t.Errorf("%d tokens are kept", len(v.tokens))
	}
}

func TestKeysAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	pair := newPair(t)
	private, err := parseKey(pair.PEM)
	if err != nil {
		t.Fatal(err)
	}
	if public, err := publicKey(private); err != nil || public != pair.Public || len(decode(t, public)) != pointSize {
		t.Errorf("the public key is %s, want %s: %v", public, pair.Public, err)
	}
	raw, err := private.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"base64url": base64.RawURLEncoding.EncodeToString(raw) + "\n",
		"padded":    base64.URLEncoding.EncodeToString(raw),
		"SEC 1":     string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: sec1})),
	} {
		if got, err := parseKey([]byte(text)); err != nil || !got.Equal(private) {
			t.Errorf("%s: %v", name, err)
		}
	}
	wrong, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := x509.MarshalPKCS8PrivateKey(wrong)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"empty":       "",
		"public":      pair.Public,
		"zero":        base64.RawURLEncoding.EncodeToString(make([]byte, 32)),
		"P-384":       string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p384})),
		"other block": string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p384})),
		"broken":      string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: p384[:20]})),
	} {
		if _, err := parseKey([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		} else if text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%s: the error tells the key", name)
		}
	}
}

func TestSubjects(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"mailto:push@example.com": true, "https://example.com/contact": true,
		"": false, "push@example.com": false, "mailto:": false, "mailto:push": false, "mailto:push@localhost": false,
		"mailto:Push <push@example.com>": false, "http://example.com": false, "https://": false, "https://localhost/": false,
	} {
		if err := checkSubject(text); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
