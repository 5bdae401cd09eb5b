package webpush

import (
	"bytes"
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/testing/webpushtest"
)

func decode(t testing.TB, text string) []byte {
	t.Helper()
	raw, err := base64.RawURLEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The example of RFC 8291, section 5, with the values of appendix A.
const (
	vectorText          = "When I grow up, I want to be a watermelon"
	vectorServerPrivate = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
	vectorServerPublic  = "BP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A8"
	vectorPrivate       = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
	vectorPublic        = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
	vectorSalt          = "DGv6ra1nlYgDCS1FRnbzlw"
	vectorAuth          = "BTBZMqHH6r4Tts7J_aSIgg"
	vectorBody          = `DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27ml
		mlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPT
		pK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN`
)

func privateKey(t testing.TB, text string) *ecdh.PrivateKey {
	t.Helper()
	key, err := ecdh.P256().NewPrivateKey(decode(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestEncryptsAsTheVectorsOfTheRFC(t *testing.T) {
	t.Parallel()
	browser, server := privateKey(t, vectorPrivate), privateKey(t, vectorServerPrivate)
	if !bytes.Equal(browser.PublicKey().Bytes(), decode(t, vectorPublic)) || !bytes.Equal(server.PublicKey().Bytes(), decode(t, vectorServerPublic)) {
		t.Fatal("the vectors are not those of the RFC: a public key is not that of its private key")
	}
	body, err := seal([]byte(vectorText), 0, browser.PublicKey(), decode(t, vectorAuth), server, decode(t, vectorSalt))
	if err != nil {
		t.Fatal(err)
	}
	if want := decode(t, vectorBody); !bytes.Equal(body, want) {
		t.Errorf("the body is\n%x, want\n%x", body, want)
	}
	text, err := webpushtest.Decrypt(decode(t, vectorBody), browser, decode(t, vectorAuth))
	if err != nil || string(text) != vectorText {
		t.Errorf("decrypted: %q, %v", text, err)
	}
}

func TestWhatIsEncryptedIsDecrypted(t *testing.T) {
	t.Parallel()
	browser, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, maxPayload).Draw(t, "text")
		auth := rapid.SliceOfN(rapid.Byte(), authSize, authSize).Draw(t, "auth")
		body, err := encrypt(text, browser.PublicKey().Bytes(), auth)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(body) - headerSize - tagSize - 1; len(body) > 4096 || n%padTo != 0 && n != maxPayload {
			t.Errorf("%d bytes of text became %d", len(text), len(body))
		}
		decrypted, err := webpushtest.Decrypt(body, browser, auth)
		if err != nil || !bytes.Equal(decrypted, text) {
			t.Fatalf("decrypted %q, %v", decrypted, err)
		}
		// Each bit matters.
		body[rapid.IntRange(0, len(body)-1).Draw(t, "place")] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if again, err := webpushtest.Decrypt(body, browser, auth); err == nil {
			// But for the record size: it only bounds the length.
			if !bytes.Equal(again, text) {
				t.Errorf("a changed body was decrypted to %q", again)
			}
		}
	})
}

func TestEachMessageHasAKeyAndASaltOfItsOwn(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for range 100 {
		body, err := encrypt([]byte("text"), decode(t, vectorPublic), decode(t, vectorAuth))
		if err != nil {
			t.Fatal(err)
		}
		seen[string(body[:saltSize])], seen[string(body[saltSize+5:headerSize])] = true, true
	}
	if len(seen) != 200 {
		t.Errorf("%d different salts and keys in 100 messages", len(seen))
	}
}

func TestKeysThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	good, auth := decode(t, vectorPublic), decode(t, vectorAuth)
	if _, err := parseKeys(good, auth); err != nil {
		t.Fatal(err)
	}
	off := bytes.Clone(good)
	off[pointSize-1] ^= 1
	compressed := append([]byte{2 + good[pointSize-1]&1}, good[1:33]...)
	zero := append([]byte{4}, make([]byte, pointSize-1)...)
	for name, keys := range map[string][2][]byte{
		"not on the curve": {off, auth},
		"compressed":       {compressed, auth},
		"infinity":         {{0}, auth},
		"zero":             {zero, auth},
		"empty":            {nil, auth},
		"short auth":       {good, auth[:15]},
		"long auth":        {good, append(bytes.Clone(auth), 0)},
		"no auth":          {good, nil},
	} {
		if _, err := parseKeys(keys[0], keys[1]); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

func BenchmarkEncrypt(b *testing.B) {
	public, auth, text := decode(b, vectorPublic), decode(b, vectorAuth), make([]byte, 300)
	for b.Loop() {
		if _, err := encrypt(text, public, auth); err != nil {
			b.Fatal(err)
		}
	}
}
