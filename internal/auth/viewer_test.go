package auth_test

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"hash"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/member"
)

// The keys of the tests.
var (
	private = ed25519.NewKeyFromSeed([]byte("a seed of thirty-two bytes, 0123"))
	public  = private.Public().(ed25519.PublicKey)
	secret  = []byte("a secret of at least thirty-two bytes")

	// keySet has the key ed with its private part, ed-public without, and the secret home.
	keySet = fmt.Sprintf(`{"keys":[
		{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"ed","x":"%[1]s","d":"%[2]s","use":"sig","x-note":1},
		{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"ed-public","x":"%[1]s"},
		{"kty":"oct","alg":"HS256","kid":"home","k":"%[3]s"}],"made-by":"hand"}`,
		encode(public), encode(private.Seed()), encode(secret))
)

func encode[T ~[]byte | ~string](raw T) string {
	return base64.RawURLEncoding.EncodeToString([]byte(raw))
}

// join signs header and claims as they are.
func join(header, claims string, sign func(text string) []byte) string {
	text := encode(header) + "." + encode(claims)
	return text + "." + encode(sign(text))
}

func byEd(text string) []byte { return ed25519.Sign(private, []byte(text)) }

func byMAC(h func() hash.Hash, key []byte) func(text string) []byte {
	return func(text string) []byte {
		m := hmac.New(h, key)
		m.Write([]byte(text))
		return m.Sum(nil)
	}
}

func byHome(text string) []byte { return byMAC(sha256.New, secret)(text) }

func unsigned(string) []byte { return nil }

// The headers of tokens that are in order.
const (
	edHeader   = `{"alg":"EdDSA","kid":"ed","typ":"JWT"}`
	homeHeader = `{"alg":"HS256","kid":"home"}`
)

func parseKeys(t testing.TB, set string) []auth.ViewerKey {
	t.Helper()
	keys, err := auth.ParseViewerKeys([]byte(set))
	must(t, err)
	return keys
}

func newViewers(t testing.TB, o auth.ViewerOptions) *auth.Viewers {
	t.Helper()
	return auth.NewViewers(parseKeys(t, keySet), o)
}

// inSeconds is a time as a claim.
func inSeconds(d time.Duration) string { return fmt.Sprint(time.Now().Add(d).Unix()) }

// claims are those of viewer 12345, for an hour, with others besides.
func claims(others string) string {
	return `{"sub":"12345","exp":` + inSeconds(time.Hour) + others + `}`
}

func accept(t testing.TB, v *auth.Viewers, token string) {
	t.Helper()
	if id, err := v.Check(token); err != nil || id != 12345 {
		t.Errorf("%s: viewer %v, %v", token, id, err)
	}
}

// refuse returns why a token is refused.
func refuse(t testing.TB, v *auth.Viewers, token string) *auth.RefusalError {
	t.Helper()
	id, err := v.Check(token)
	e, ok := errors.AsType[*auth.RefusalError](err)
	if !ok || id != 0 {
		t.Fatalf("%.300s: viewer %v, %v, want a refusal", token, id, err)
	}
	return e
}

func TestViewerTokensAreAccepted(t *testing.T) {
	t.Parallel()
	v := newViewers(t, auth.ViewerOptions{})
	for _, token := range []string{
		join(edHeader, claims(``), byEd),
		join(`{"kid":"ed-public","alg":"EdDSA"}`, claims(``), byEd),
		join(homeHeader, claims(``), byHome),
		join(`{"alg":"HS256","kid":"home","typ":"jwt"}`, claims(`,"iss":"site","jti":"1","name":{"a":[1,2]},"roles":null`), byHome),
		join(" {\n\"alg\": \"HS256\", \"kid\": \"home\"}\n", " {\"sub\": \"12345\",\n \"exp\": "+inSeconds(time.Hour)+" } ", byHome),
		join(homeHeader, claims(`,"iat":`+inSeconds(0)+`,"nbf":`+inSeconds(0)), byHome),
	} {
		accept(t, v, token)
	}
	largest, err := parseKeys(t, keySet)[0].Sign(math.MaxUint64, time.Hour, "")
	must(t, err)
	if id, err := v.Check(largest); id != math.MaxUint64 || err != nil {
		t.Errorf("the largest id: %v, %v", id, err)
	}
	for _, k := range parseKeys(t, keySet) {
		token, err := k.Sign(12345, time.Hour, "")
		if k.CanSign() != (err == nil) || k.CanSign() != (k.ID != "ed-public") {
			t.Errorf("%s signs: %v", k.ID, err)
		}
		if err == nil {
			accept(t, v, token)
		}
	}
}

// Each is a known way to make a server accept a token that the site had not made. The claims
// and, unless it is what is tried, the signature are in order.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	v := newViewers(t, auth.ViewerOptions{})
	good := claims(``)
	pemOf, err := x509.MarshalPKIXPublicKey(public)
	must(t, err)
	attacker := ed25519.NewKeyFromSeed([]byte("another seed of 32 bytes, 012345"))
	byAttacker := func(text string) []byte { return ed25519.Sign(attacker, []byte(text)) }
	theirs := fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","alg":"EdDSA","kid":"ed","x":%q}`, encode(attacker.Public().(ed25519.PublicKey)))
	ed, home := join(edHeader, good, byEd), join(homeHeader, good, byHome)
	parts := strings.Split(ed, ".")
	flip := func(token string, at int) string {
		parts := strings.Split(token, ".")
		raw, err := base64.RawURLEncoding.DecodeString(parts[at])
		if err != nil {
			t.Fatal(err)
		}
		raw[len(raw)-1] ^= 1
		parts[at] = encode(raw)
		return strings.Join(parts, ".")
	}
	header := func(others string) string { return `{"alg":"EdDSA","kid":"ed"` + others + `}` }
	tokens := map[string]string{
		// The algorithm.
		"alg missing":                          join(`{"kid":"ed"}`, good, byEd),
		"alg empty":                            join(`{"alg":"","kid":"ed"}`, good, byEd),
		"alg null":                             join(`{"alg":null,"kid":"ed"}`, good, byEd),
		"alg a number":                         join(`{"alg":1,"kid":"ed"}`, good, byEd),
		"alg a list":                           join(`{"alg":["EdDSA"],"kid":"ed"}`, good, byEd),
		"alg twice":                            join(`{"alg":"none","alg":"EdDSA","kid":"ed"}`, good, byEd),
		"alg twice, escaped":                   join(`{"\u0061lg":"none","alg":"EdDSA","kid":"ed"}`, good, byEd),
		"alg in capitals":                      join(`{"Alg":"EdDSA","kid":"ed"}`, good, byEd),
		"EdDSA of the key, HS256 in the token": join(`{"alg":"HS256","kid":"ed"}`, good, byEd),
		"HS256 of the key, EdDSA in the token": join(`{"alg":"EdDSA","kid":"home"}`, good, byEd),
		"the algorithm of the other key":       join(`{"alg":"HS256","kid":"ed"}`, good, byHome),
		"eddsa":                                join(`{"alg":"eddsa","kid":"ed"}`, good, byEd),
		"Ed25519":                              join(`{"alg":"Ed25519","kid":"ed"}`, good, byEd),
		"HS512":                                join(`{"alg":"HS512","kid":"home"}`, good, byMAC(sha512.New, secret)),
		"HS384":                                join(`{"alg":"HS384","kid":"home"}`, good, byMAC(sha512.New384, secret)),
		"RS256":                                join(`{"alg":"RS256","kid":"ed"}`, good, byEd),
		// Key confusion: the public key is no secret.
		"HS256 by the public key":           join(`{"alg":"HS256","kid":"ed"}`, good, byMAC(sha256.New, public)),
		"HS256 by the text of it":           join(`{"alg":"HS256","kid":"ed"}`, good, byMAC(sha256.New, []byte(encode(public)))),
		"HS256 by its PEM":                  join(`{"alg":"HS256","kid":"ed"}`, good, byMAC(sha256.New, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: pemOf}))),
		"HS256 by the public key, as home":  join(homeHeader, good, byMAC(sha256.New, public)),
		"HS256 by no key":                   join(homeHeader, good, byMAC(sha256.New, nil)),
		"HS256 by the text of the secret":   join(homeHeader, good, byMAC(sha256.New, []byte(encode(secret)))),
		"EdDSA by the secret's first bytes": join(edHeader, good, func(s string) []byte { return ed25519.Sign(ed25519.NewKeyFromSeed(secret[:32]), []byte(s)) }),
		// The id of the key.
		"kid missing":            join(`{"alg":"EdDSA"}`, good, byEd),
		"kid empty":              join(`{"alg":"EdDSA","kid":""}`, good, byEd),
		"kid null":               join(`{"alg":"EdDSA","kid":null}`, good, byEd),
		"kid a list":             join(`{"alg":"EdDSA","kid":["ed"]}`, good, byEd),
		"kid a number":           join(`{"alg":"EdDSA","kid":0}`, good, byEd),
		"kid an object":          join(`{"alg":"EdDSA","kid":{"ed":1}}`, good, byEd),
		"kid twice":              join(`{"alg":"EdDSA","kid":"other","kid":"ed"}`, good, byEd),
		"kid of another case":    join(`{"alg":"EdDSA","kid":"ED"}`, good, byEd),
		"kid with a space":       join(`{"alg":"EdDSA","kid":"ed "}`, good, byEd),
		"kid with a zero byte":   join(`{"alg":"EdDSA","kid":"ed\u0000"}`, good, byEd),
		"kid a path":             join(`{"alg":"HS256","kid":"../../../../dev/null"}`, good, byMAC(sha256.New, nil)),
		"kid a path to the file": join(`{"alg":"HS256","kid":"/proc/self/environ"}`, good, byMAC(sha256.New, nil)),
		"kid SQL":                join(`{"alg":"HS256","kid":"x' UNION SELECT 'a' -- "}`, good, byMAC(sha256.New, []byte("a"))),
		"kid a command":          join(`{"alg":"HS256","kid":"|id"}`, good, byMAC(sha256.New, nil)),
		"kid a URL":              join(`{"alg":"EdDSA","kid":"https://attacker.example/jwks.json"}`, good, byAttacker),
		"kid a pattern":          join(`{"alg":"EdDSA","kid":"*"}`, good, byEd),
		"kid of no key":          join(`{"alg":"EdDSA","kid":"other"}`, good, byEd),
		"kid long":               join(`{"alg":"EdDSA","kid":"`+strings.Repeat("a", 2000)+`"}`, good, byEd),
		// Keys that the token brings or points to.
		"jwk":      join(header(`,"jwk":`+theirs), good, byAttacker),
		"jwk null": join(header(`,"jwk":null`), good, byEd),
		"jku":      join(header(`,"jku":"https://attacker.example/jwks.json"`), good, byAttacker),
		"x5u":      join(header(`,"x5u":"https://attacker.example/cert.pem"`), good, byAttacker),
		"x5c":      join(header(`,"x5c":["MIIB"]`), good, byAttacker),
		"x5t":      join(header(`,"x5t":"AA"`), good, byEd),
		// Extensions.
		"crit":        join(header(`,"crit":["exp"]`), good, byEd),
		"crit empty":  join(header(`,"crit":[]`), good, byEd),
		"b64":         join(header(`,"b64":false,"crit":["b64"]`), good, byEd),
		"zip":         join(header(`,"zip":"DEF"`), good, byEd),
		"enc":         join(header(`,"enc":"A256GCM"`), good, byEd),
		"cty":         join(header(`,"cty":"JWT"`), ed, byEd),
		"typ":         join(header(`,"typ":"at+jwt"`), good, byEd),
		"typ no text": join(header(`,"typ":1`), good, byEd),
		"nested":      join(edHeader, ed, byEd),
		"nested text": join(edHeader, `"`+ed+`"`, byEd),
		// The header's form.
		"header no object": join(`["EdDSA","ed"]`, good, byEd),
		"header null":      join(`null`, good, byEd),
		"header empty":     join(``, good, byEd),
		"header twice":     join(edHeader+edHeader, good, byEd),
		"header no JSON":   join(`{"alg":"EdDSA","kid":"ed",}`, good, byEd),
		"header no UTF-8":  join("{\"alg\":\"EdDSA\",\"kid\":\"ed\",\"typ\":\"\xff\"}", good, byEd),
		// The size.
		"large header":  join(header(`,"a":"`+strings.Repeat("a", 1<<20)+`"`), good, byEd),
		"large claims":  join(edHeader, claims(`,"a":"`+strings.Repeat("a", 1<<20)+`"`), byEd),
		"deep claims":   join(edHeader, claims(`,"a":`+strings.Repeat("[", 100_000)), byEd),
		"many dots":     strings.Repeat(".", 1<<20),
		"a byte more":   ed + strings.Repeat("A", 4097-len(ed)),
		"deep, in size": join(edHeader, `{"a":`+strings.Repeat("[", 2000), byEd),
		// The signature.
		"none":                    parts[0] + "." + parts[1] + ".",
		"none, without the dot":   parts[0] + "." + parts[1],
		"cut":                     ed[:len(ed)-4],
		"one byte":                parts[0] + "." + parts[1] + ".AA",
		"flipped":                 flip(ed, 2),
		"flipped MAC":             flip(home, 2),
		"cut MAC":                 home[:len(home)-4],
		"zeros":                   join(edHeader, good, func(string) []byte { return make([]byte, 64) }),
		"other claims":            join(edHeader, `{"sub":"1","exp":`+inSeconds(time.Hour)+`}`, func(string) []byte { return byEd(parts[0] + "." + parts[1]) }),
		"other header":            join(`{"kid":"ed","alg":"EdDSA"}`, good, func(string) []byte { return byEd(parts[0] + "." + parts[1]) }),
		"by another key":          join(edHeader, good, byAttacker),
		"of the claims alone":     join(edHeader, good, func(string) []byte { return byEd(parts[1]) }),
		"with the base64 decoded": join(edHeader, good, func(string) []byte { return byEd(edHeader + "." + good) }),
		// The form.
		"empty":                  "",
		"a dot":                  ".",
		"two dots":               "..",
		"a fourth part":          ed + ".",
		"a fourth part, full":    ed + "." + parts[2],
		"five parts, encrypted":  ed + ".a.b",
		"JSON":                   fmt.Sprintf(`{"protected":%q,"payload":%q,"signature":%q}`, parts[0], parts[1], parts[2]),
		"JSON, general":          fmt.Sprintf(`{"payload":%q,"signatures":[{"protected":%q,"signature":%q}]}`, parts[1], parts[0], parts[2]),
		"a space before":         " " + ed,
		"a space behind":         ed + " ",
		"a line break":           ed[:20] + "\n" + ed[20:],
		"a return at the end":    ed + "\r\n",
		"a tab":                  parts[0] + ".\t" + parts[1] + "." + parts[2],
		"padded":                 ed + "==",
		"padded claims":          parts[0] + "." + parts[1] + "=." + parts[2],
		"the other alphabet":     strings.NewReplacer("-", "+", "_", "/").Replace(parts[0]+"."+parts[1]) + "+/." + parts[2],
		"bits that are not read": ed[:len(ed)-1] + string(ed[len(ed)-1]+1), // 64 bytes end with four such bits
		"a zero byte":            ed + "\x00",
		"no ASCII":               ed + "é",
		"percent":                strings.ReplaceAll(ed, ".", "%2e"),
		"the secret of a client": "act_ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		"two tokens":             ed + "," + ed,
		// The claims' form.
		"claims no object":     join(edHeader, `["12345"]`, byEd),
		"claims null":          join(edHeader, `null`, byEd),
		"claims empty":         join(edHeader, ``, byEd),
		"claims twice":         join(edHeader, good+good, byEd),
		"claims, then more":    join(edHeader, good+"x", byEd),
		"claims no UTF-8":      join(edHeader, claims(",\"a\":\"\xff\""), byEd),
		"claims with a BOM":    join(edHeader, "\ufeff"+good, byEd),
		"sub twice":            join(edHeader, claims(`,"sub":"1"`), byEd),
		"sub twice, escaped":   join(edHeader, claims(`,"\u0073ub":"1"`), byEd),
		"exp twice":            join(edHeader, claims(`,"exp":`+inSeconds(time.Hour)), byEd),
		"a name twice":         join(edHeader, claims(`,"a":1,"a":1`), byEd),
		"sub in capitals":      join(edHeader, `{"Sub":"12345","exp":`+inSeconds(time.Hour)+`}`, byEd),
		"exp in capitals only": join(edHeader, `{"sub":"12345","EXP":`+inSeconds(time.Hour)+`}`, byEd),
	}
	for _, none := range []string{"none", "None", "NONE", "nOnE", "NoNe", " none", "none ", "none\u0000", "nоne"} {
		tokens["alg "+none] = join(`{"alg":"`+strings.ReplaceAll(none, "\x00", `\u0000`)+`","kid":"ed"}`, good, unsigned)
		tokens["signed alg "+none] = join(`{"alg":"`+strings.ReplaceAll(none, "\x00", `\u0000`)+`","kid":"home"}`, good, byHome)
	}
	hour := inSeconds(time.Hour)
	for name, text := range map[string]string{
		"sub missing":         `{"exp":` + hour + `}`,
		"sub null":            `{"sub":null,"exp":` + hour + `}`,
		"sub a number":        `{"sub":12345,"exp":` + hour + `}`,
		"sub a list":          `{"sub":["12345"],"exp":` + hour + `}`,
		"sub an object":       `{"sub":{"id":"12345"},"exp":` + hour + `}`,
		"sub true":            `{"sub":true,"exp":` + hour + `}`,
		"sub empty":           `{"sub":"","exp":` + hour + `}`,
		"sub 0":               `{"sub":"0","exp":` + hour + `}`,
		"sub negative":        `{"sub":"-1","exp":` + hour + `}`,
		"sub with a sign":     `{"sub":"+1","exp":` + hour + `}`,
		"sub with a space":    `{"sub":" 12345","exp":` + hour + `}`,
		"sub, a space after":  `{"sub":"12345 ","exp":` + hour + `}`,
		"sub with a line":     `{"sub":"12345\n","exp":` + hour + `}`,
		"sub with a zero":     `{"sub":"012345","exp":` + hour + `}`,
		"sub a fraction":      `{"sub":"12345.0","exp":` + hour + `}`,
		"sub an exponent":     `{"sub":"1e3","exp":` + hour + `}`,
		"sub hexadecimal":     `{"sub":"0x3039","exp":` + hour + `}`,
		"sub in other digits": `{"sub":"١٢٣","exp":` + hour + `}`,
		"sub too large":       `{"sub":"18446744073709551616","exp":` + hour + `}`,
		"sub a name":          `{"sub":"alice","exp":` + hour + `}`,
		"sub two":             `{"sub":"1,2","exp":` + hour + `}`,
		"sub SQL":             `{"sub":"1 OR 1=1","exp":` + hour + `}`,
		"exp missing":         `{"sub":"12345"}`,
		"exp null":            `{"sub":"12345","exp":null}`,
		"exp a string":        `{"sub":"12345","exp":"` + hour + `"}`,
		"exp a fraction":      `{"sub":"12345","exp":` + hour + `.5}`,
		"exp an exponent":     `{"sub":"12345","exp":` + hour + `e0}`,
		"exp negative":        `{"sub":"12345","exp":-1}`,
		"exp huge":            `{"sub":"12345","exp":99999999999999999999}`,
		"exp 2^63":            `{"sub":"12345","exp":9223372036854775807}`,
		"exp 1e300":           `{"sub":"12345","exp":1e300}`,
		"exp in milliseconds": `{"sub":"12345","exp":` + hour + `000}`,
		"exp true":            `{"sub":"12345","exp":true}`,
		"exp a list":          `{"sub":"12345","exp":[` + hour + `]}`,
		"nbf a string":        claims(`,"nbf":"0"`),
		"nbf null":            claims(`,"nbf":null`),
		"iat a fraction":      claims(`,"iat":1.5`),
		"iat negative":        claims(`,"iat":-5`),
		"aud a number":        claims(`,"aud":1`),
		"aud numbers":         claims(`,"aud":[1]`),
		"aud":                 claims(`,"aud":"another"`),
		"aud a list":          claims(`,"aud":["another"]`),
		"aud empty":           claims(`,"aud":""`),
		"aud of none":         claims(`,"aud":[]`),
		"aud null":            claims(`,"aud":null`),
	} {
		tokens[name], tokens[name+", HS256"] = join(edHeader, text, byEd), join(homeHeader, text, byHome)
	}
	for name, token := range tokens {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if e := refuse(t, v, token); e.Verdict != auth.UnknownToken || e.Reason == "" || len(e.Reason) > 1000 {
				t.Errorf("%+v", e)
			}
		})
	}
	accept(t, v, ed)
	accept(t, v, home)
}

// The clocks of the site and of the server may differ by a minute, and not by more.
func TestTheTimesOfAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := newViewers(t, auth.ViewerOptions{})
		token := func(exp time.Duration, others string) string {
			return join(edHeader, `{"sub":"12345","exp":`+inSeconds(exp)+others+`}`, byEd)
		}
		for _, ok := range []string{
			token(time.Second, ""), token(-59*time.Second, ""), token(24*time.Hour, ""), token(24*time.Hour+time.Minute, ""),
			token(time.Hour, `,"nbf":`+inSeconds(time.Minute)), token(time.Hour, `,"iat":`+inSeconds(time.Minute)),
			token(time.Hour, `,"iat":`+inSeconds(-23*time.Hour-time.Minute)+`,"nbf":0`),
		} {
			accept(t, v, ok)
		}
		for want, text := range map[string]string{
			"is expired":         token(-time.Minute, ""),
			"token is expired":   token(-time.Hour, `,"iat":`+inSeconds(-2*time.Hour)),
			"more than 24 hours": token(24*time.Hour+61*time.Second, ""),
			"after it was made":  token(time.Hour, `,"iat":`+inSeconds(-23*time.Hour-61*time.Second)),
			"more than 24":       token(1000*time.Hour, ""),
			"not valid yet":      token(time.Hour, `,"nbf":`+inSeconds(61*time.Second)),
			"used before issued": token(time.Hour, `,"iat":`+inSeconds(61*time.Second)),
			"signature":          join(edHeader, `{"sub":"1","exp":`+inSeconds(-time.Hour)+`}`, byHome),
			"sub: ":              join(edHeader, `{"sub":"x","exp":`+inSeconds(-time.Hour)+`}`, byEd),
		} {
			if e := refuse(t, v, text); !strings.Contains(e.Reason, want) || (e.Verdict == auth.Expired) != strings.Contains(want, "expired") {
				t.Errorf("%+v, want %s", e, want)
			}
		}
		short, err := parseKeys(t, keySet)[0].Sign(12345, time.Second, "")
		if err != nil {
			t.Fatal(err)
		}
		accept(t, v, short)
		<-time.After(time.Minute)
		accept(t, v, short)
		<-time.After(time.Second)
		if e := refuse(t, v, short); e.Verdict != auth.Expired {
			t.Errorf("a second and a minute later: %+v", e)
		}
	})
}

func TestAudience(t *testing.T) {
	t.Parallel()
	v := newViewers(t, auth.ViewerOptions{Audience: "photos"})
	for _, aud := range []string{`,"aud":"photos"`, `,"aud":["photos"]`, `,"aud":["shop","photos"]`} {
		accept(t, v, join(edHeader, claims(aud), byEd))
	}
	for _, aud := range []string{``, `,"aud":""`, `,"aud":[]`, `,"aud":null`, `,"aud":"shop"`, `,"aud":"Photos"`, `,"aud":"photos "`, `,"aud":["shop"]`, `,"aud":"photos,shop"`, `,"aud":{"photos":1}`, `,"aud":[["photos"]]`} {
		if e := refuse(t, v, join(edHeader, claims(aud), byEd)); !strings.Contains(e.Reason, "aud") {
			t.Errorf("%s: %+v", aud, e)
		}
		old := join(edHeader, `{"sub":"12345","exp":`+inSeconds(-time.Hour)+aud+`}`, byEd)
		if e := refuse(t, v, old); e.Verdict != auth.UnknownToken {
			t.Errorf("%s, and expired: %+v", aud, e)
		}
	}
	k := parseKeys(t, keySet)[0]
	token, err := k.Sign(12345, time.Hour, "photos")
	must(t, err)
	accept(t, v, token)
	refuse(t, newViewers(t, auth.ViewerOptions{}), token)
}

// The limit is that of the member, however many tokens it has, and a token that is refused
// costs nothing of it.
func TestTheLimitOfAViewer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v, keys := newViewers(t, auth.ViewerOptions{Limit: auth.Limit{PerSecond: 1, Burst: 2}}), parseKeys(t, keySet)
		ask := func(key int, id member.ID) error {
			t.Helper()
			token, err := keys[key].Sign(id, time.Hour, "")
			must(t, err)
			_, err = v.Check(token)
			return err
		}
		refuse(t, v, join(edHeader, claims(``), byHome))
		if err := errors.Join(ask(0, 12345), ask(2, 12345)); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			e, ok := errors.AsType[*auth.RefusalError](ask(0, 12345))
			if !ok || e.RetryAfter != time.Second {
				t.Errorf("the third: %+v, want a second", e)
			}
		}
		if err := ask(0, 6); err != nil {
			t.Errorf("another viewer: %v", err)
		}
		v.Replace(keys[:1]) // a reload fills no bucket
		if _, ok := errors.AsType[*auth.RefusalError](ask(0, 12345)); !ok {
			t.Error("a reload filled the bucket")
		}
		<-time.After(time.Second)
		if err := ask(0, 12345); err != nil {
			t.Errorf("a second later: %v", err)
		}
	})
}

// However many viewers ask, the buckets that are kept are bounded.
func TestTheBucketsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the time stands still
		take, kept := auth.NewTake(), 0
		for id := range member.ID(auth.MaxBuckets + 10) {
			n, err := take(id, limitOf(t, "1/s"))
			must(t, err)
			kept = max(kept, n)
		}
		if kept != auth.MaxBuckets {
			t.Errorf("%d buckets were kept, want %d", kept, auth.MaxBuckets)
		}
	})
}

// FuzzViewerToken: whatever is sent, no token is accepted that the keys did not sign as it
// stands.
func FuzzViewerToken(f *testing.F) {
	const exp = `"exp":4000000000`
	for _, seed := range []string{
		join(edHeader, claims(``), byEd), join(homeHeader, claims(`,"aud":"a"`), byHome),
		join(homeHeader, `{"sub":"0",`+exp+`}`, byHome), join(`{"alg":"none","kid":"ed"}`, claims(``), unsigned),
		"..", "a.b.c", "", strings.Repeat("A", 5000),
	} {
		parts := append(strings.Split(seed, "."), "", "")
		raw := func(i int) []byte {
			text, _ := base64.RawURLEncoding.DecodeString(parts[i])
			return text
		}
		f.Add(seed, raw(0), raw(1))
	}
	v := newViewers(f, auth.ViewerOptions{})
	f.Fuzz(func(t *testing.T, token string, header, claims []byte) {
		if id, err := v.Check(token); err == nil {
			parts := strings.Split(token, ".")
			text := parts[0] + "." + parts[1]
			if signature := parts[2]; signature != encode(byEd(text)) && signature != encode(byHome(text)) || id == 0 {
				t.Errorf("%q is accepted", token)
			}
		}
		// With a signature that is right, what is signed is read.
		for _, sign := range []func(string) []byte{byEd, byHome} {
			id, err := v.Check(join(string(header), string(claims), sign))
			if _, refused := errors.AsType[*auth.RefusalError](err); (err == nil) != (id != 0) || err != nil && !refused {
				t.Errorf("%q, %q: %v, %v", header, claims, id, err)
			}
		}
	})
}
