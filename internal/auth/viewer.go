package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
)

// MaxViewerToken is how far ahead the end of a viewer's token may be.
const MaxViewerToken = 24 * time.Hour

const (
	viewerLeeway  = time.Minute  // difference of the clocks of the site and of this server
	maxViewerText = 4096         // bytes of a token
	maxSeconds    = 253402300799 // the end of the year 9999, in unix seconds
)

// AnyViewer is the name of all viewers in logs and metrics, so that they do not tell members apart.
const AnyViewer = "(viewer)"

func refuse(format string, args ...any) error {
	return &RefusalError{Verdict: UnknownToken, Reason: fmt.Sprintf(format, args...)}
}

// ViewerOptions are the settings of [Viewers].
type ViewerOptions struct {
	// Audience must be among the audiences (aud) of a token. Without it, a token must have none, as a token for
	// another service has its own.
	Audience string
	Limit    Limit // of each viewer
}

// Viewers know the tokens of viewers by the keys of the site. They are safe for concurrent use.
type Viewers struct {
	keys    atomic.Pointer[[]ViewerKey]
	options ViewerOptions
	parser  *jwt.Parser
	limits  limits[member.ID]
}

// NewViewers returns the Viewers with these keys, each of which has an id of its own.
func NewViewers(keys []ViewerKey, o ViewerOptions) *Viewers {
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{EdDSA, HS256}), jwt.WithStrictDecoding(),
		jwt.WithLeeway(viewerLeeway), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
	}
	if o.Audience != "" {
		options = append(options, jwt.WithAudience(o.Audience))
	}
	v := &Viewers{options: o, parser: jwt.NewParser(options...)}
	v.Replace(keys)
	return v
}

// LoadViewers loads the keys of a file: see [ParseViewerKeys]. It fails if the file is unreadable or has a fault.
func LoadViewers(path string, o ViewerOptions, log *slog.Logger) (*Viewers, *Reloader, error) {
	v := NewViewers(nil, o)
	r, err := loadList("viewer keys", path, ParseViewerKeys, v.Replace, log)
	return v, r, err
}

// Replace replaces all keys. The tokens of a removed key are refused from now on.
func (v *Viewers) Replace(keys []ViewerKey) { v.keys.Store(&keys) }

// alphabet has the characters of a token. Base64 would skip line breaks.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

// Check returns the member of a token, and takes a request from the member's limit. A [RefusalError] has the verdict
// [UnknownToken] or [Expired], or [OverLimit] and the member. A refused token costs nothing of any limit.
func (v *Viewers) Check(token string) (member.ID, error) {
	if len(token) > maxViewerText || strings.Trim(token, alphabet) != "" {
		return 0, refuse("want a JWT in the compact form, of %d bytes at most", maxViewerText)
	}
	claims := viewerClaims{hasAudience: v.options.Audience != ""}
	_, err := v.parser.ParseWithClaims(token, &claims, v.keyOf)
	if err == nil {
		return claims.viewer, v.limits.take(claims.viewer, v.options.Limit, "this member's")
	}
	refusal, ok := errors.AsType[*RefusalError](err)
	if !ok {
		refusal = &RefusalError{Verdict: UnknownToken, Reason: fmt.Sprintf("this token is refused: %.300v", err)}
		isOurs := !errors.Is(err, jwt.ErrTokenInvalidAudience) && !errors.Is(err, jwt.ErrTokenRequiredClaimMissing)
		if errors.Is(err, jwt.ErrTokenExpired) && isOurs { // the signature is right
			refusal.Verdict = Expired
		}
	}
	return 0, refusal
}

// keyOf returns the key of a token. A header (RFC 7515) has an algorithm and the id of a key. Its further fields bring
// keys, say where keys are, name extensions, or say that the claims are compressed or encrypted.
func (v *Viewers) keyOf(t *jwt.Token) (any, error) {
	first, _, _ := strings.Cut(t.Raw, ".")
	text, err := keyText.DecodeString(first)
	if err != nil {
		return nil, err
	}
	var alg, kid string
	err = readObject("header", text, func(o strictjson.Object) {
		o.Only("alg", "kid", "typ")
		alg, kid = needText(o, "alg", "an algorithm"), needText(o, "kid", "the id of a key")
		if kind, given := o.String("typ", "JWT"); given && !strings.EqualFold(kind, "JWT") {
			o.Addf("typ", "want JWT, or none")
		}
	})
	if err != nil {
		return nil, err
	}
	keys := *v.keys.Load()
	i := slices.IndexFunc(keys, func(k ViewerKey) bool { return k.ID == kid })
	if i < 0 {
		return nil, refuse("there is no key with the kid of this token; it may have been revoked")
	}
	// The header only chooses the key. A public key that is used as a secret would let everyone make tokens.
	if keys[i].Alg != alg {
		return nil, refuse("the alg of this token is not that of its key, which is %s", keys[i].Alg)
	}
	return keys[i].check, nil
}

// readObject reads a part of a token, an object of JSON. A name that stands twice is refused: it could mean different
// things to the site and here.
func readObject(root string, text []byte, read func(strictjson.Object)) error {
	r := &strictjson.Reader{Root: root}
	value, err := strictjson.Parse(text)
	if err != nil {
		return err
	}
	if o, ok := r.Object("", value); ok {
		read(o)
	}
	return r.Err()
}

// needText returns a required member of o that is a text.
func needText(o strictjson.Object, name, want string) string {
	o.Need(name, want)
	text, _ := o.String(name, want)
	return text
}

// viewerClaims are the claims of a token. Unknown claims are ignored, by RFC 7519.
type viewerClaims struct {
	jwt.RegisteredClaims

	viewer      member.ID // sub
	hasAudience bool      // the server
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *viewerClaims) UnmarshalJSON(text []byte) error {
	return readObject("claims", text, func(o strictjson.Object) {
		var err error
		if c.viewer, err = member.Parse(needText(o, "sub", "a member's id, as a string")); err != nil {
			o.Addf("sub", "%v", err)
		}
		for name, date := range map[string]**jwt.NumericDate{"exp": &c.ExpiresAt, "nbf": &c.NotBefore, "iat": &c.IssuedAt} {
			if seconds, given := o.Whole(name, 0, maxSeconds); given {
				*date = jwt.NewNumericDate(time.Unix(seconds, 0))
			}
		}
		if value, given := o.Get("aud"); given && c.Audience.UnmarshalJSON(value) != nil {
			o.Addf("aud", "want a string, or an array of strings")
		} else if given && len(c.Audience) == 0 {
			c.Audience = []string{""} // of a service without a name
		}
	})
}

// Validate checks the bounds that the parser does not know.
func (c *viewerClaims) Validate() error {
	const most = MaxViewerToken + viewerLeeway
	switch {
	case !c.hasAudience && len(c.Audience) > 0:
		return refuse("this token is for an audience (aud), and this server has none")
	case c.ExpiresAt == nil: // the parser's error
	case time.Until(c.ExpiresAt.Time) > most:
		return refuse("this token ends (exp) more than %.0f hours from now", MaxViewerToken.Hours())
	case c.IssuedAt != nil && c.ExpiresAt.Sub(c.IssuedAt.Time) > most:
		return refuse("this token ends (exp) more than %.0f hours after it was made (iat)", MaxViewerToken.Hours())
	}
	return nil
}
