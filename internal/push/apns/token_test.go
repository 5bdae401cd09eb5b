package apns

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The vector of RFC 6979, A.2.5: P-256, SHA-256, "sample".
func TestSignatureIsOfRFC6979(t *testing.T) {
	t.Parallel()
	number := func(s string) []byte {
		n, ok := new(big.Int).SetString(s, 16)
		if !ok {
			t.Fatalf("no number: %s", s)
		}
		return n.FillBytes(make([]byte, 32))
	}
	key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), number("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721"))
	if err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256([]byte("sample"))
	der, err := key.Sign(nil, digest[:], crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	var pair struct{ R, S *big.Int }
	if _, err := asn1.Unmarshal(der, &pair); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%X %X", pair.R, pair.S)
	want := "EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716 F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8"
	if got != want {
		t.Errorf("r and s are %s, want %s", got, want)
	}
}

// newKey returns the content of a .p8 file.
func newKey(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return pkcs8(t, key)
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func TestTokenIsTheSameInAllProcesses(t *testing.T) {
	t.Parallel()
	text := newKey(t)
	var processes [2]*signer
	for i := range processes {
		var err error
		if processes[i], err = newSigner(text, "K", "T"); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC)
	var last string
	var changed time.Time
	for now := begin; now.Before(begin.Add(5 * time.Hour)); now = now.Add(time.Minute) {
		token, err := processes[0].bearer(now)
		if err != nil {
			t.Fatal(err)
		}
		if age := now.Sub(time.Unix(issuedAt(now), 0)); age < tokenLag || age >= tokenLag+tokenLife {
			t.Fatalf("%v: the age of the token is %v", now, age)
		}
		if now.Minute()%7 == 0 { // the second process asks at times of its own
			if other, err := processes[1].bearer(now); err != nil || other != token {
				t.Fatalf("%v: another process has %q, %v; want %q", now, other, err, token)
			}
		}
		if token == last {
			continue
		}
		if !changed.IsZero() && now.Sub(changed) < 20*time.Minute && changed != begin {
			t.Errorf("the token changed at %v and at %v", changed, now)
		}
		last, changed = token, now
	}
}

func TestClockThatIsSetBack(t *testing.T) {
	t.Parallel()
	s, err := newSigner(newKey(t), "K", "T")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(issuedAt(time.Unix(1795300000, 0)), 0).Add(tokenLag) // the first instant of a token
	token := func(now time.Time) string {
		token, err := s.bearer(now)
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	first := token(now)
	if token(now.Add(-time.Minute)) != first {
		t.Error("a clock that is set back by a minute brings back the old token")
	}
	if token(now.Add(-24*time.Hour)) == first {
		t.Error("a token of tomorrow is used today")
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := newKey(t)
	for name, test := range map[string]struct {
		text []byte
		id   string
		want string
	}{
		"no id":   {good, "", "no key id"},
		"empty":   {nil, "K", "no PEM block"},
		"text":    {[]byte("hunter2"), "K", "no PEM block"},
		"damaged": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("hunter2")}), "K", "cannot be read"},
		"P-384":   {pkcs8(t, p384), "K", "P-256"},
		"RSA":     {pkcs8(t, other), "K", "P-256"},
	} {
		_, err := newSigner(test.text, test.id, "T")
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v, want one with %q and without the content", name, err, test.want)
		}
	}
}

func TestTheKeysIDIsOfItsFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "apns.p8")
	for name, want := range map[string]string{"AuthKey_FIRST12345.p8": "FIRST12345", "key.p8": "", "AuthKey_X.pem": ""} {
		path := filepath.Join(dir, name)
		_ = os.Remove(link)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Symlink(path, link)); err != nil {
			t.Fatal(err)
		}
		for _, at := range []string{path, link} {
			if id := keyIDOf(at); id != want {
				t.Errorf("%s: %q, want %q", name, id, want)
			}
		}
	}
	if id := keyIDOf(filepath.Join(dir, "none")); id != "" {
		t.Errorf("the id of no file is %q", id)
	}
}
