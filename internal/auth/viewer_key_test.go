package auth_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/testing/logtest"
)

func TestKeySetsThatAreRefused(t *testing.T) {
	t.Parallel()
	x, d, k := encode(public), encode(private.Seed()), encode(secret)
	zeroSeed := make([]byte, ed25519.SeedSize)
	zeroX := encode(ed25519.NewKeyFromSeed(zeroSeed).Public().(ed25519.PublicKey))
	okp := func(others string) string {
		return `{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"a"` + others + `}]}`
	}
	oct := func(others string) string { return `{"keys":[{"kty":"oct","alg":"HS256","kid":"a"` + others + `}]}` }
	for text, want := range map[string]string{
		``:                          "want a JSON Web Key Set",
		`{`:                         "want a JSON Web Key Set",
		`[]`:                        "want a JSON Web Key Set",
		`{}`:                        "want a JSON Web Key Set, with 0 to 100",
		`{"keys":{}}`:               "want a JSON Web Key Set",
		`{"keys":[1]}`:              "want a JSON Web Key Set",
		`{"keys":[]} {"keys":[]}`:   "want a JSON Web Key Set",
		okp(``):                     "keys[0].x: has 0 bytes",
		okp(`,"x":"` + x + `="`):    "keys[0].x: want base64",
		okp(`,"x":"` + x[1:] + `"`): "keys[0].x: ",
		okp(`,"x":"AAAA"`):          "keys[0].x: has 3 bytes: want at least 32",
		okp(`,"x":1`):               "want a JSON Web Key Set",
		okp(`,"x":"` + x[:20] + `\n` + x[20:] + `"`):                                       "keys[0].x: want",
		okp(`,"x":"` + x + `","d":"AAAA"`):                                                 "keys[0].d: has 3 bytes",
		okp(`,"x":"` + x + `","d":"` + encode(secret[:32]) + `"`):                          "keys[0].d: is not the private key of x",
		okp(`,"x":"` + x + `","use":"enc"`):                                                "keys[0].use: want sig",
		`{"keys":[{"kty":"OKP","crv":"X25519","alg":"EdDSA","kid":"a","x":"` + x + `"}]}`:  "keys[0].alg: want EdDSA",
		`{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"a","x":"` + x + `"}]}`:               "keys[0].alg: want",
		`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"HS256","kid":"a","x":"` + x + `"}]}`: "keys[0].alg: want EdDSA with the kty OKP",
		`{"keys":[{"kty":"oct","alg":"EdDSA","kid":"a","k":"` + k + `"}]}`:                 "keys[0].alg: want",
		`{"keys":[{"kty":"oct","alg":"HS512","kid":"a","k":"` + k + `"}]}`:                 "keys[0].alg: want",
		`{"keys":[{"kty":"oct","alg":"none","kid":"a","k":"` + k + `"}]}`:                  "keys[0].alg: want",
		`{"keys":[{"kty":"RSA","alg":"RS256","kid":"a","n":"AQ","e":"AQAB"}]}`:             "keys[0].alg: want",
		`{"keys":[{"alg":"HS256","kid":"a","k":"` + k + `"}]}`:                             "keys[0].alg: want",
		`{"keys":[{"kty":"oct","alg":"HS256","k":"` + k + `"}]}`:                           "keys[0].kid: want an id",
		`{"keys":[{"kty":"oct","alg":"HS256","kid":"","k":"` + k + `"}]}`:                  "keys[0].kid: want an id",
		`{"keys":[{"kty":"oct","alg":"HS256","kid":"a b","k":"` + k + `"}]}`:               "keys[0].kid: want an id",
		`{"keys":[{"kty":"oct","alg":"HS256","kid":7,"k":"` + k + `"}]}`:                   "want a JSON Web Key Set",
		oct(``):        "keys[0].k: has 0 bytes",
		oct(`,"k":""`): "keys[0].k: has 0 bytes: want at least 32",
		oct(`,"k":"` + encode(secret[:31]) + `"`):                                                     "keys[0].k: has 31 bytes: want at least 32",
		oct(`,"k":"` + encode(make([]byte, 32)) + `"`):                                                "keys[0].k: has one value in all of its bytes",
		oct(`,"k":"` + encode(strings.Repeat("x", 64)) + `"`):                                         "keys[0].k: has one value in all of its bytes",
		okp(`,"x":"` + zeroX + `","d":"` + encode(zeroSeed) + `"`):                                    "keys[0].d: has one value in all of its bytes",
		oct(`,"k":"not base64!"`):                                                                     "keys[0].k: want base64",
		oct(`,"k":"` + k + `"},{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"a","x":"` + x + `"`): "keys[1].kid: another key has it already",
		`{"keys":[` + strings.Repeat(`{},`, 100) + `{}]}`:                                             "with 0 to 100 keys",
	} {
		keys, err := auth.ParseViewerKeys([]byte(text))
		if err == nil || keys != nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %s", text, keys, err, want)
			continue
		}
		for _, private := range []string{k, d, "not base64"} {
			if strings.Contains(err.Error(), private) {
				t.Errorf("%s: the error quotes a key: %v", text, err)
			}
		}
	}
	if keys, err := auth.ParseViewerKeys([]byte(`{"keys":[]}`)); err != nil || len(keys) != 0 {
		t.Errorf("without keys: %v, %v", keys, err)
	}
}

// With a public key of small order anyone can sign. Text that is no point, or not the only
// encoding of a point, is no key of a pair either.
func TestPublicKeysThatAreRefused(t *testing.T) {
	t.Parallel()
	for what, text := range map[string]string{
		"the identity":                "01" + strings.Repeat("0", 62),
		"of order 2":                  "ec" + strings.Repeat("f", 60) + "7f",
		"of order 4":                  strings.Repeat("0", 64),
		"of order 8":                  "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"of order 8, the second":      "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		"the identity, written anew":  "01" + strings.Repeat("0", 60) + "80",
		"of full order, written anew": "f0" + strings.Repeat("f", 60) + "7f",
		"no point":                    "02" + strings.Repeat("0", 62),
	} {
		x, err := hex.DecodeString(text)
		must(t, err)
		set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"a","x":%q}]}`, encode(x))
		if keys, err := auth.ParseViewerKeys([]byte(set)); err == nil || keys != nil || !strings.Contains(err.Error(), "keys[0].x: is not the public key of a private one") {
			t.Errorf("%s, %s: %v, %v", what, text, keys, err)
		}
	}
}

// A new key goes to the end of a file, and signs tokens that the file's keys check.
func TestNewKeysAreMadeAndAdded(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys.json")
	var all []auth.ViewerKey
	for id, alg := range map[string]string{"a": auth.EdDSA, "b": auth.HS256} {
		k, err := auth.NewViewerKey(id, alg)
		must(t, err)
		all = append(all, k)
		must(t, auth.AddViewerKey(path, k))
	}
	text, err := os.ReadFile(path)
	must(t, err)
	read := parseKeys(t, string(text))
	v := auth.NewViewers(read, auth.ViewerOptions{})
	for i, k := range all {
		if read[i].ID != k.ID || read[i].Alg != k.Alg {
			t.Errorf("key %d is %s, want %s", i, read[i].ID, k.ID)
		}
		for _, signer := range []auth.ViewerKey{k, read[i]} {
			token, err := signer.Sign(12345, time.Hour, "")
			must(t, err)
			accept(t, v, token)
		}
		for _, ttl := range []time.Duration{0, -time.Hour, 24*time.Hour + 1, time.Millisecond} {
			if token, err := k.Sign(1, ttl, ""); err == nil {
				t.Errorf("for %v: %s", ttl, token)
			}
		}
	}
	if err := auth.AddViewerKey(path, all[0]); err == nil || !strings.Contains(err.Error(), "another key has it already") {
		t.Errorf("again: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
		t.Errorf("after a refusal: %s, %v", after, err)
	}
	for _, bad := range [][2]string{{"", auth.EdDSA}, {"a b", auth.EdDSA}, {strings.Repeat("a", 129), auth.HS256}, {"a\n", auth.HS256}, {"a", "RS256"}, {"a", "none"}, {"a", ""}} {
		if k, err := auth.NewViewerKey(bad[0], bad[1]); err == nil {
			t.Errorf("%q: %+v", bad, k)
		}
	}
}

// The file has the keys of the tokens that are accepted: a removed key, or another secret under its id, ends them with
// the next request. Unusable content changes nothing, and the log has no part of a key.
func TestRotation(t *testing.T) {
	t.Parallel()
	key := func(id, alg string) (auth.ViewerKey, string) {
		k, err := auth.NewViewerKey(id, alg)
		must(t, err)
		token, err := k.Sign(12345, time.Hour, "")
		must(t, err)
		return k, token
	}
	set := func(keys ...auth.ViewerKey) string {
		text, err := json.Marshal(map[string]any{"keys": append([]auth.ViewerKey{}, keys...)})
		must(t, err)
		return string(text)
	}
	old, oldToken := key("old", auth.HS256)
	fresh, freshToken := key("fresh", auth.EdDSA)
	again, againToken := key("old", auth.HS256)
	path, log := newFile(t, set(old)), &logtest.Log{}
	v, r, err := auth.LoadViewers(path, auth.ViewerOptions{}, log.Logger())
	must(t, err)
	for _, step := range []struct {
		text           string
		accept, refuse []string
	}{
		{set(old, fresh), []string{oldToken, freshToken}, []string{againToken}},
		{`{"keys":[{"kid":"fresh"}]}`, []string{oldToken, freshToken}, []string{againToken}},
		{set(fresh, again), []string{freshToken, againToken}, []string{oldToken}},
		{set(), nil, []string{freshToken, oldToken, againToken}},
	} {
		write(t, path, step.text)
		r.Reload(t.Context(), true)
		for _, token := range step.accept {
			accept(t, v, token)
		}
		for _, token := range step.refuse {
			refuse(t, v, token)
		}
	}
	for _, secret := range regexp.MustCompile(`"[dk]":"([^"]+)"`).FindAllStringSubmatch(set(old, fresh, again), -1) {
		if strings.Contains(log.String(), secret[1]) {
			t.Errorf("the log has a secret: %s", log)
		}
	}
}
