package auth_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/auth"
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
	identity := append([]byte{1}, make([]byte, ed25519.PublicKeySize-1)...)
	forged := append(slices.Clone(identity), make([]byte, 32)...) // R is the identity, and S zero
	if !ed25519.Verify(identity, []byte("whatever"), forged) {
		t.Fatal("crypto/ed25519 refuses a forged signature by itself")
	}
	for what, list := range map[string][]string{
		"of small order": {
			hex.EncodeToString(identity), "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
			"0000000000000000000000000000000000000000000000000000000000000000", "0000000000000000000000000000000000000000000000000000000000000080",
			"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
			"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
		},
		"the same, written otherwise": {
			"0100000000000000000000000000000000000000000000000000000000000080", "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
			"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
			"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
		},
		"of full order, written otherwise": {"f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"},
		"no point":                         {"0200000000000000000000000000000000000000000000000000000000000000"},
	} {
		for _, text := range list {
			x, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			set := fmt.Sprintf(`{"keys":[{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"a","x":%q}]}`, encode(x))
			if keys, err := auth.ParseViewerKeys([]byte(set)); err == nil || keys != nil || !strings.Contains(err.Error(), "keys[0].x: is not the public key of a private one") {
				t.Errorf("%s, %s: %v, %v", what, text, keys, err)
			}
		}
	}
}

func TestNewKeysAreMadeAndAdded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "keys.json")
	var all []auth.ViewerKey
	for id, alg := range map[string]string{"a": auth.EdDSA, "b": auth.HS256, "c": auth.EdDSA} {
		k, err := auth.NewViewerKey(id, alg)
		if err != nil || k.Alg != alg || k.ID != id {
			t.Fatalf("%+v, %v", k.ID, err)
		}
		all = append(all, k)
		if err := auth.AddViewerKey(path, k); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := parseKeys(t, string(text))
	v := auth.NewViewers(read, auth.ViewerOptions{})
	for i, k := range all {
		if read[i].ID != k.ID {
			t.Errorf("key %d is %s, want %s", i, read[i].ID, k.ID)
		}
		for _, signer := range []auth.ViewerKey{k, read[i]} {
			token, err := signer.Sign(12345, time.Hour, "")
			if err != nil {
				t.Fatal(err)
			}
			accept(t, v, token)
		}
	}
	if err := auth.AddViewerKey(path, all[0]); err == nil || !strings.Contains(err.Error(), "another key has it already") {
		t.Errorf("once more: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, text) {
		t.Errorf("after a refusal: %s, %v", after, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v, %v", left, err)
	}
}

// The keys of the file stay, and so do its mode, its owner and a link to it.
func TestAddingAKeyKeepsTheRest(t *testing.T) {
	t.Parallel()
	path := newFile(t, keySet)
	must(t, os.Chmod(path, 0o640))
	if os.Geteuid() == 0 { // only root can give a file away
		must(t, os.Chown(path, 4711, 4712))
	}
	before, err := os.Stat(path)
	must(t, err)
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(path, link))
	k, err := auth.NewViewerKey("new", auth.HS256)
	must(t, err)
	must(t, auth.AddViewerKey(link, k))
	after, err := os.Stat(path)
	must(t, err)
	was, is := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
	linked, err := os.Lstat(link)
	if err != nil || after.Mode() != 0o640 || is.Uid != was.Uid || is.Gid != was.Gid || linked.Mode()&os.ModeSymlink == 0 {
		t.Errorf("%v of %d:%d, %v", after.Mode(), is.Uid, is.Gid, err)
	}
	text, err := os.ReadFile(link)
	must(t, err)
	if keys := parseKeys(t, string(text)); len(keys) != 4 || !keys[0].CanSign() || keys[1].CanSign() || keys[3].ID != "new" {
		t.Errorf("%s", text)
	}
}

func TestKeysThatCannotBeAdded(t *testing.T) {
	t.Parallel()
	k, err := auth.NewViewerKey("new", auth.EdDSA)
	if err != nil {
		t.Fatal(err)
	}
	broken := newFile(t, `{"keys":[{}]}`)
	if err := auth.AddViewerKey(broken, k); err == nil || !strings.Contains(err.Error(), "keys[0].kid: want an id") {
		t.Errorf("to a file that is not in order: %v", err)
	}
	if text, err := os.ReadFile(broken); err != nil || string(text) != `{"keys":[{}]}` {
		t.Errorf("it is now %s, %v", text, err)
	}
	if err := auth.AddViewerKey(filepath.Join(t.TempDir(), "no", "file"), k); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("to no folder: %v", err)
	}
	for _, bad := range [][2]string{{"", auth.EdDSA}, {"a b", auth.EdDSA}, {strings.Repeat("a", 129), auth.HS256}, {"a\n", auth.HS256}, {"a", "RS256"}, {"a", "none"}, {"a", ""}} {
		if k, err := auth.NewViewerKey(bad[0], bad[1]); err == nil {
			t.Errorf("%q: %+v", bad, k)
		}
	}
	for _, ttl := range []time.Duration{0, -time.Hour, 24*time.Hour + 1, time.Millisecond} {
		if token, err := k.Sign(1, ttl, ""); err == nil {
			t.Errorf("for %v: %s", ttl, token)
		}
	}
}

// A key is added and, when no token of the old one is wanted, the old one removed: its tokens
// end with the next request. Unusable content changes nothing.
func TestRotation(t *testing.T) {
	t.Parallel()
	key := func(id, alg string) (auth.ViewerKey, string) {
		k, err := auth.NewViewerKey(id, alg)
		if err != nil {
			t.Fatal(err)
		}
		token, err := k.Sign(12345, time.Hour, "")
		if err != nil {
			t.Fatal(err)
		}
		return k, token
	}
	set := func(keys ...auth.ViewerKey) string {
		text, err := json.Marshal(map[string]any{"keys": append([]auth.ViewerKey{}, keys...)})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	old, oldToken := key("old", auth.HS256)
	fresh, freshToken := key("fresh", auth.EdDSA)
	again, againToken := key("old", auth.HS256) // another secret under the same id
	path, log := newFile(t, set(old)), &logBuffer{}
	v, r, err := auth.LoadViewers(path, auth.ViewerOptions{}, log.logger())
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text           string
		accept, refuse []string
		faults         int // errors that were logged so far
	}{
		{set(old), []string{oldToken}, []string{freshToken, againToken}, 0},
		{set(old, fresh), []string{oldToken, freshToken}, []string{againToken}, 0},
		{`{"keys":[{"kid":"fresh"}]}`, []string{oldToken, freshToken}, []string{againToken}, 1},
		{"", []string{oldToken, freshToken}, []string{againToken}, 2},
		{set(fresh), []string{freshToken}, []string{oldToken, againToken}, 2},
		{set(fresh, again), []string{freshToken, againToken}, []string{oldToken}, 2},
		{set(), nil, []string{freshToken, oldToken, againToken}, 2},
		{set(fresh), []string{freshToken}, []string{oldToken}, 2},
	} {
		write(t, path, step.text)
		r.Reload(t.Context(), true)
		for _, token := range step.accept {
			accept(t, v, token)
		}
		for _, token := range step.refuse {
			refuse(t, v, token)
		}
		if got := log.at(t, slog.LevelError); len(got) != step.faults {
			t.Fatalf("%s: %d errors were logged, want %d: %v", step.text, len(got), step.faults, got)
		}
	}
	if text := log.String(); strings.Contains(text, strings.Split(oldToken, ".")[2]) || strings.Contains(text, `"d"`) || strings.Contains(text, `"k"`) {
		t.Errorf("the log has what makes tokens: %s", text)
	}
	if warned := log.at(t, slog.LevelWarn); len(warned) != 1 {
		t.Errorf("warned %v, want once, of a file without keys", warned)
	}
}

func TestTheFirstKeysMustBeUsable(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "keys")
	for path, want := range map[string]string{
		missing:        missing,
		newFile(t, ``): "want a JSON Web Key Set",
	} {
		if _, _, err := auth.LoadViewers(path, auth.ViewerOptions{}, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
