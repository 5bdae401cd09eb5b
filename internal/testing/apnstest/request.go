package apnstest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"golang.org/x/net/http2/hpack"
)

// request is the header of a request.
type request struct {
	method, scheme, path, authorization             string
	id, collapse, topic, kind, priority, expiration string
	twice                                           bool // a header was there twice
}

// readHeader reads the fields of a HEADERS frame.
func readHeader(fields []hpack.HeaderField) (r request) {
	for _, f := range fields {
		if to := r.field(f.Name); to != nil {
			r.twice = r.twice || *to != ""
			*to = f.Value
		}
	}
	return r
}

func (r *request) field(name string) *string {
	switch name {
	case ":method":
		return &r.method
	case ":scheme":
		return &r.scheme
	case ":path":
		return &r.path
	case "authorization":
		return &r.authorization
	case "apns-id":
		return &r.id
	case "apns-collapse-id":
		return &r.collapse
	case "apns-topic":
		return &r.topic
	case "apns-push-type":
		return &r.kind
	case "apns-priority":
		return &r.priority
	case "apns-expiration":
		return &r.expiration
	}
	return nil
}

// public returns the header of the message as a Request.
func (r *request) public() Request {
	return Request{
		ID: r.id, Token: strings.TrimPrefix(r.path, devicePath), Collapse: r.collapse, Topic: r.topic,
		PushType: r.kind, Priority: r.priority, Expiration: r.expiration,
	}
}

const (
	devicePath  = "/3/device/"
	maxPayload  = 4096
	maxCollapse = 64
	maxToken    = 200
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)

var (
	pushTypes  = []string{"alert", "background", "controls", "location", "voip", "complication", "fileprovider", "mdm", "liveactivity", "pushtotalk", "widgets"}
	priorities = []string{"", "1", "5", "10"}
)

// verify finds the fault of a request, and notes the token's claims in r.
func (c *conn) verify(h *request, r *Request, size int) (Answer, bool) {
	s := c.s
	bad := func(status int, reason string) (Answer, bool) { return Answer{Status: status, Reason: reason}, false }
	switch {
	case h.method != "POST":
		return bad(405, "MethodNotAllowed")
	case !strings.HasPrefix(h.path, devicePath) || h.scheme != "https":
		return bad(404, "BadPath")
	case h.twice:
		return bad(400, "DuplicateHeaders")
	}
	if status, reason := c.verifyToken(h.authorization, r); reason != "" {
		return bad(status, reason)
	}
	if _, err := hex.DecodeString(r.Token); r.Token == "" {
		return bad(400, "MissingDeviceToken")
	} else if err != nil || len(r.Token) > maxToken {
		return bad(400, "BadDeviceToken")
	}
	if status, reason := s.verifyHeader(h); reason != "" {
		return bad(status, reason)
	}
	switch {
	case size == 0:
		return bad(400, "PayloadEmpty")
	case size > maxPayload:
		return bad(413, "PayloadTooLarge")
	}
	// Apple's own server takes any payload; a test wants to know.
	if aps := bytes.Index(r.Payload, []byte(`"aps"`)); aps < 0 || !json.Valid(r.Payload) {
		return bad(400, "PayloadEmpty")
	}
	s.mu.Lock()
	since, gone := s.gone[r.Token]
	s.mu.Unlock()
	if gone {
		return Answer{Status: 410, Reason: "Unregistered", Timestamp: since}, false
	}
	return Answer{}, true
}

// verifyHeader finds the fault of the headers of a message.
func (s *Server) verifyHeader(h *request) (status int, reason string) {
	_, err := strconv.ParseUint(h.expiration, 10, 63)
	switch {
	case h.topic == "":
		return 400, "MissingTopic"
	case h.topic != s.o.Topic:
		return 400, "TopicDisallowed"
	case h.id != "" && !uuid.MatchString(h.id):
		return 400, "BadMessageId"
	case h.expiration != "" && err != nil:
		return 400, "BadExpirationDate"
	case !slices.Contains(priorities, h.priority):
		return 400, "BadPriority"
	case len(h.collapse) > maxCollapse:
		return 400, "BadCollapseId"
	case !slices.Contains(pushTypes, h.kind):
		return 400, "InvalidPushType"
	}
	return 0, ""
}

// Apple's bounds of tokens. Clocks may be off by a little.
const (
	tokenMaxAge   = time.Hour
	tokenMinLife  = 20 * time.Minute
	tokenMaxAhead = 5 * time.Minute
)

// verifyToken verifies the provider's token. The first valid token raises the limit of streams.
func (c *conn) verifyToken(authorization string, r *Request) (status int, reason string) {
	if len(authorization) < 7 || !strings.EqualFold(authorization[:7], "bearer ") {
		return 403, "MissingProviderToken"
	}
	token, err := c.s.tokens.verify(authorization[7:], c.s.o.TeamID)
	if err != nil {
		return 403, "InvalidProviderToken"
	}
	r.KeyID = token.keyID
	switch age := time.Since(token.issued); {
	case age > tokenMaxAge:
		return 403, "ExpiredProviderToken"
	case age < -tokenMaxAhead:
		return 403, "InvalidProviderToken"
	}
	c.mu.Lock()
	first := !c.verified
	old := c.token
	switch {
	case first:
	case old.keyID != token.keyID:
		c.mu.Unlock()
		return 403, "UnrelatedKeyIdInToken"
	case old != token && token.issued.Sub(old.issued).Abs() < tokenMinLife:
		// The signature is a part of the token: all processes must make the same signature.
		c.mu.Unlock()
		return 429, "TooManyProviderTokenUpdates"
	}
	c.verified, c.token = true, token
	c.mu.Unlock()
	if first {
		c.s.mu.Lock()
		limit, raise := c.s.max, c.s.max != c.s.first
		c.s.mu.Unlock()
		if raise {
			c.setLimit(limit)
		}
	}
	return 0, ""
}

// verified is a token whose signature is valid.
type verified struct {
	text   string
	keyID  string
	issued time.Time
}

// tokens are the keys, and the tokens that were verified.
type tokens struct {
	mu   sync.Mutex
	keys map[string]*ecdsa.PrivateKey
	seen map[string]verified
}

func (t *tokens) add(id string, key *ecdsa.PrivateKey) ([]byte, error) {
	t.mu.Lock()
	if t.keys == nil {
		t.keys, t.seen = map[string]*ecdsa.PrivateKey{}, map[string]verified{}
	}
	t.keys[id] = key
	t.mu.Unlock()
	return t.pem(id), nil
}

func (t *tokens) remove(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.keys, id)
	clear(t.seen)
}

func (t *tokens) pem(id string) []byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	der, err := x509.MarshalPKCS8PrivateKey(t.keys[id])
	if err != nil {
		return nil // a key of P-256 can be marshalled
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// verify verifies a token: a JWT by ES256.
func (t *tokens) verify(text, teamID string) (verified, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if v, ok := t.seen[text]; ok {
		return v, nil
	}
	var v verified
	var claims jwt.RegisteredClaims
	_, err := jwt.ParseWithClaims(text, &claims, func(parsed *jwt.Token) (any, error) {
		v.keyID, _ = parsed.Header["kid"].(string)
		if t.keys[v.keyID] == nil {
			return nil, errors.New("the key is not known")
		}
		return &t.keys[v.keyID].PublicKey, nil
	}, jwt.WithValidMethods([]string{"ES256"}), jwt.WithIssuer(teamID))
	switch {
	case err != nil:
		return verified{}, err
	case claims.IssuedAt == nil:
		return verified{}, errors.New("there is no iat")
	}
	v.text, v.issued = text, claims.IssuedAt.Time
	t.seen[text] = v
	return v, nil
}
