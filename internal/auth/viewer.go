package auth

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/time/rate"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
)

// MaxViewerToken is how far ahead the end of a token of a viewer may be.
const MaxViewerToken = 24 * time.Hour

const (
	// ViewerLeeway is by how much the clocks of the site and of this server may differ.
	ViewerLeeway = time.Minute
	// maxViewerText is how long a token of a viewer may be, in bytes. It is checked before
	// anything is decoded.
	maxViewerText = 4096
	// maxSeconds is the end of the year 9999, in unix seconds.
	maxSeconds = 253402300799
)

// AnyViewer is the name of the bearer of a token of a viewer, for logs and metrics. They do
// not say which member it is.
const AnyViewer = "(viewer)"

// ViewerTokenError is the reason why a token of a viewer is refused.
type ViewerTokenError struct {
	Reason string
	// Expired is set for a token that was in order until it ended.
	Expired bool
}

// Error returns the reason.
func (e *ViewerTokenError) Error() string { return e.Reason }

func refuse(format string, args ...any) *ViewerTokenError {
	return &ViewerTokenError{Reason: fmt.Sprintf(format, args...)}
}

// ViewerOptions are the settings of [Viewers].
type ViewerOptions struct {
	// Audience must be among those that a token is for (aud). Without it, a token must be
	// for none: one that is was made for another service.
	Audience string
	Limit    Limit // of each viewer; the zero Limit is none
}

// Viewers know the tokens of viewers by the keys of the site. The keys may be replaced at
// any time; all methods may be called from any goroutine.
type Viewers struct {
	keys     atomic.Pointer[[]ViewerKey]
	audience string
	parser   *jwt.Parser
	limits   viewerLimits
}

// NewViewers returns the Viewers with these keys, each of which has an id of its own.
func NewViewers(keys []ViewerKey, o ViewerOptions) *Viewers {
	options := []jwt.ParserOption{
		jwt.WithValidMethods([]string{EdDSA, HS256}), jwt.WithStrictDecoding(),
		jwt.WithLeeway(ViewerLeeway), jwt.WithExpirationRequired(), jwt.WithIssuedAt(),
	}
	if o.Audience != "" {
		options = append(options, jwt.WithAudience(o.Audience))
	}
	v := &Viewers{audience: o.Audience, parser: jwt.NewParser(options...), limits: viewerLimits{limit: o.Limit, most: maxBuckets}}
	v.Replace(keys)
	return v
}

// LoadViewers loads the keys of a file: see [ParseViewerKeys]. It fails when the file cannot be read or is not in order.
func LoadViewers(path string, o ViewerOptions, log *slog.Logger) (*Viewers, *Reloader, error) {
	v := NewViewers(nil, o)
	r, err := LoadFile("viewer keys", path, func(text []byte) error {
		keys, err := ParseViewerKeys(text)
		if err != nil {
			return err
		}
		if v.Replace(keys); len(keys) == 0 {
			log.Warn("viewer key file has no keys, all viewers are refused", "file", path, "mend", "activityd token --new-key ID --viewer-keys "+path)
		}
		return nil
	}, log)
	if err != nil {
		return nil, nil, fmt.Errorf("the viewer keys cannot be used: %w", err)
	}
	return v, r, nil
}

// Replace replaces all keys. The tokens of a removed key are refused from now on.
func (v *Viewers) Replace(keys []ViewerKey) { v.keys.Store(&keys) }

// Check returns the member that a token was made for, and takes a request from the
// member's limit. It returns a [ViewerTokenError] for a token that is refused, which costs
// nothing of any limit, and the member with a [LimitError] when its limit is used up.
func (v *Viewers) Check(token string) (member.ID, error) {
	header, err := readHeader(token)
	if err != nil {
		return 0, err
	}
	keys := *v.keys.Load()
	i := slices.IndexFunc(keys, func(k ViewerKey) bool { return k.ID == header.kid })
	if i < 0 {
		return 0, refuse("there is no key with the kid of this token; it may have been revoked")
	}
	key := keys[i]
	// The header only chooses the key. The key says how it is used: a public key that is
	// taken for a secret would let everyone make tokens.
	if key.Alg != header.alg {
		return 0, refuse("the alg of this token is not that of its key, which is %s", key.Alg)
	}
	claims := viewerClaims{audience: v.audience}
	if _, err := v.parser.ParseWithClaims(token, &claims, func(*jwt.Token) (any, error) { return key.check, nil }); err != nil {
		return 0, reasonOf(err)
	}
	if wait, ok := v.limits.take(claims.viewer); !ok {
		return claims.viewer, &LimitError{RetryAfter: wait}
	}
	return claims.viewer, nil
}

// alphabet has the characters of a token. Base64 would skip line breaks.
const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

type viewerHeader struct{ alg, kid string }

// readHeader reads the header of a token (RFC 7515). It has an algorithm and the id of a key,
// and no others of the fields that there are: they have keys in them or say where keys are,
// name extensions, or say that the claims are compressed or a token again.
func readHeader(token string) (h viewerHeader, err error) {
	if len(token) > maxViewerText {
		return h, refuse("this token has more than %d bytes", maxViewerText)
	}
	first, _, _ := strings.Cut(token, ".")
	text, err := keyText.DecodeString(first)
	if err != nil || strings.Count(token, ".") != 2 || strings.Trim(token, alphabet) != "" {
		return h, refuse("this is no token of a viewer: want three parts of base64 for URLs without padding, with dots between them (a JWT)")
	}
	root, err := strictjson.Parse(text)
	if err != nil {
		return h, refuse("the header of this token is not JSON")
	}
	r := &strictjson.Reader{Root: "header"}
	if o, ok := r.Object("", root); ok {
		o.Only("alg", "kid", "typ")
		h = viewerHeader{alg: needText(o, "alg", "an algorithm"), kid: needText(o, "kid", "the id of a key")}
		if kind, given := o.String("typ", "JWT"); given && !strings.EqualFold(kind, "JWT") {
			o.Addf("typ", "want JWT, or none")
		}
	}
	if err := r.Err(); err != nil {
		return h, refuse("the header of this token: %v", err)
	}
	return h, nil
}

// needText returns a member of o that is a text.
func needText(o strictjson.Object, name, want string) string {
	o.Need(name, want)
	text, _ := o.String(name, want)
	return text
}

// viewerClaims are the claims of a token. Those that are not known are ignored, as RFC 7519
// has it.
type viewerClaims struct {
	jwt.RegisteredClaims

	viewer   member.ID // sub
	audience string    // of the server
}

// UnmarshalJSON reads them strictly: a name that stands twice could mean one thing to the
// site and another here.
func (c *viewerClaims) UnmarshalJSON(text []byte) error {
	root, err := strictjson.Parse(text)
	if err != nil {
		return err
	}
	r := &strictjson.Reader{Root: "claims"}
	o, ok := r.Object("", root)
	if !ok {
		return r.Err()
	}
	if c.viewer, err = member.Parse(needText(o, "sub", "a member's id, as a string")); err != nil {
		o.Addf("sub", "%v", err)
	}
	o.Need("exp", "the end of the token, in unix seconds")
	c.ExpiresAt, c.NotBefore, c.IssuedAt = readDate(o, "exp"), readDate(o, "nbf"), readDate(o, "iat")
	if value, given := o.Get("aud"); given && c.Audience.UnmarshalJSON(value) != nil {
		o.Addf("aud", "want a string, or an array of strings")
	} else if given && len(c.Audience) == 0 {
		c.Audience = []string{""} // it is for one that has no name
	}
	return r.Err()
}

// readDate reads whole unix seconds, if they are given.
func readDate(o strictjson.Object, name string) *jwt.NumericDate {
	seconds, given := o.Whole(name, 0, maxSeconds)
	if !given {
		return nil
	}
	return jwt.NewNumericDate(time.Unix(seconds, 0))
}

// Validate checks what the parser does not know of.
func (c *viewerClaims) Validate() error {
	if c.audience == "" && len(c.Audience) > 0 {
		return refuse("this token is for an audience (aud), and this server has none")
	}
	if c.ExpiresAt != nil && time.Until(c.ExpiresAt.Time) > MaxViewerToken+ViewerLeeway {
		return refuse("this token ends (exp) more than %.0f hours from now", MaxViewerToken.Hours())
	}
	if c.ExpiresAt != nil && c.IssuedAt != nil && c.ExpiresAt.Sub(c.IssuedAt.Time) > MaxViewerToken+ViewerLeeway {
		return refuse("this token ends (exp) more than %.0f hours after it was made (iat)", MaxViewerToken.Hours())
	}
	return nil
}

// reasons are those of the errors of the parser, the most serious one first.
var reasons = []struct {
	err    error
	reason ViewerTokenError
}{
	{jwt.ErrTokenSignatureInvalid, ViewerTokenError{Reason: "the signature of this token is wrong"}},
	{jwt.ErrTokenInvalidAudience, ViewerTokenError{Reason: "this token is for another audience (aud)"}},
	{jwt.ErrTokenRequiredClaimMissing, ViewerTokenError{Reason: "this token has no exp, or no audience (aud) where the server has one"}},
	{jwt.ErrTokenNotValidYet, ViewerTokenError{Reason: "this token is not valid yet (nbf): compare the clocks"}},
	{jwt.ErrTokenUsedBeforeIssued, ViewerTokenError{Reason: "this token was made in the future (iat): compare the clocks"}},
	{jwt.ErrTokenExpired, ViewerTokenError{Reason: "this token has expired (exp)", Expired: true}},
}

// reasonOf returns why the parser refused a token.
func reasonOf(err error) *ViewerTokenError {
	if e, ok := errors.AsType[*ViewerTokenError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*strictjson.InvalidError](err); ok {
		return refuse("the claims of this token: %v", e)
	}
	for _, r := range reasons {
		if errors.Is(err, r.err) {
			return &r.reason
		}
	}
	return refuse("this token cannot be read")
}

// viewerLimits are the buckets of the viewers. When there are very many, all are dropped, and each viewer begins with a full
// one.
type viewerLimits struct {
	limit Limit
	most  int

	mu      sync.Mutex
	buckets map[member.ID]*rate.Limiter
}

// maxBuckets keeps the buckets of a process below some 20 MB.
const maxBuckets = 100_000

// take takes a request from the bucket of a viewer, or returns the time until there is one.
func (l *viewerLimits) take(id member.ID) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buckets == nil || len(l.buckets) >= l.most {
		l.buckets = make(map[member.ID]*rate.Limiter)
	}
	b, known := l.buckets[id]
	if !known {
		b = l.limit.bucket(nil)
		l.buckets[id] = b
	}
	return takeOne(b)
}
