// Package fcmtest is a fake of Firebase Cloud Messaging, HTTP v1, with its token endpoint, for tests,
// benchmarks and the demo. It believes nothing: it checks the signature of each JWT, each access token, and
// each field of a message. Tests judge by its log of accepted messages.
package fcmtest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/activityd/activityd/internal/testing/pushtest"
)

// Project is the id of the project that the fake knows.
const Project = "photos-test"

// maxPayload is how many bytes the keys and values of a message may have.
const maxPayload = 4096

// Message is a message as it was asked for.
type Message struct {
	Token        string            `json:"token"`
	Notification Notification      `json:"notification,omitzero"` // zero: there is none
	Data         map[string]string `json:"data"`
	Android      Android           `json:"android"`
}

// Notification is the part of a message that the system shows.
type Notification struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
	Image string `json:"image,omitempty"`
}

// Android is the part of a message for Android alone.
type Android struct {
	CollapseKey  string `json:"collapse_key"`
	Priority     string `json:"priority"`
	TTL          string `json:"ttl"`
	Notification struct {
		Tag          string   `json:"tag"`
		Sound        string   `json:"sound,omitempty"`
		ClickAction  string   `json:"click_action,omitempty"`
		Count        *int     `json:"notification_count,omitempty"`
		TitleLocKey  string   `json:"title_loc_key,omitempty"`
		TitleLocArgs []string `json:"title_loc_args,omitempty"`
		BodyLocKey   string   `json:"body_loc_key,omitempty"`
		BodyLocArgs  []string `json:"body_loc_args,omitempty"`
		ChannelID    string   `json:"channel_id,omitempty"`
	} `json:"notification"`
}

// Accepted is a message that was accepted.
type Accepted struct {
	Message

	Name string // as it was answered
	At   time.Time
}

// Reply is a script's answer of the fake. Its zero value is the usual answer.
type Reply struct {
	Status     int    // 0: the usual answer
	Code       string // the error code of FCM, with Status
	Canonical  string // the canonical code, with Status; "": none
	Violation  string // the subject of a violated quota, with Status
	RetryAfter string // the header
	Body       string // instead of Code and Canonical
	Accept     bool   // it is accepted before Status is answered, or Cut happens
	Cut        bool   // the connection is cut instead of an answer
	Delay      time.Duration
}

// Server is the fake.
type Server struct {
	*pushtest.Service

	mu           sync.Mutex
	keys         map[string]*rsa.PrivateKey // by their ids
	keyID        string                     // of the newest
	tokens       map[string]time.Time       // access tokens, and their ends
	tokenAsked   int
	tokenReply   func() Reply
	script       func(Message) Reply
	unregistered map[string]bool
	accepted     []Accepted
	number       int
	now          func() time.Time
}

// Start starts a fake on a free port of this machine. It is to be closed.
func Start() (*Server, error) {
	service, err := pushtest.Listen("", false)
	if err != nil {
		return nil, err
	}
	s := &Server{
		Service: service,
		keys:    make(map[string]*rsa.PrivateKey), tokens: make(map[string]time.Time), unregistered: make(map[string]bool), now: time.Now,
	}
	if err := s.Rotate(); err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", s.giveToken)
	mux.HandleFunc("POST /v1/projects/{project}/messages:send", s.send)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, Reply{Status: http.StatusNotFound, Body: "<html>not found</html>"})
	})
	s.Serve(mux)
	return s, nil
}

// Close cuts all connections.
func (s *Server) Close() error {
	s.Service.Close()
	return nil
}

// Rotate makes a new key for the service account. Earlier keys stay valid until [Server.Revoke].
func (s *Server) Rotate() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("fcmtest: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keyID = "key-" + strconv.Itoa(len(s.keys)+1)
	s.keys[s.keyID] = key
	return nil
}

// Revoke ends all keys but the newest, and all access tokens.
func (s *Server) Revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.keys {
		if id != s.keyID {
			s.keys[id] = nil
		}
	}
	clear(s.tokens)
}

// RevokeTokens ends all access tokens.
func (s *Server) RevokeTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.tokens)
}

const email = "sender@photos-test.iam.gserviceaccount.example"

// Credentials returns the service account's file, with the newest key.
func (s *Server) Credentials() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	der, err := x509.MarshalPKCS8PrivateKey(s.keys[s.keyID])
	if err != nil {
		panic(err) // RSA keys always can
	}
	text, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": Project, "private_key_id": s.keyID, "client_email": email,
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), "token_uri": s.URL() + "/token",
	})
	if err != nil {
		panic(err) // texts always can
	}
	return text
}

// SetClock sets the clock.
func (s *Server) SetClock(now func() time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = now
}

// SetScript makes script answer each message; nil: the usual answers.
func (s *Server) SetScript(script func(Message) Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

// SetTokenScript makes script answer each request for an access token; nil: the usual answers.
func (s *Server) SetTokenScript(script func() Reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokenReply = script
}

// Unregister has a registration token be gone.
func (s *Server) Unregister(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unregistered[token] = true
}

// Accepted returns all messages that were accepted so far.
func (s *Server) Accepted() []Accepted {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.accepted)
}

// TokensAsked returns how many access tokens were asked for so far.
func (s *Server) TokensAsked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokenAsked
}

// giveToken answers the token endpoint.
func (s *Server) giveToken(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.tokenAsked++
	script, now := s.tokenReply, s.now()
	s.mu.Unlock()
	if script != nil {
		if reply := script(); reply.Cut || reply.Status != 0 {
			s.play(w, r, reply)
			return
		}
	}
	if said := s.checkAssertion(r, now); said != "" {
		fail(w, Reply{Status: http.StatusBadRequest, Body: `{"error":"invalid_grant","error_description":"` + said + `"}`})
		return
	}
	token := "ya29." + rand.Text()
	s.mu.Lock()
	s.tokens[token] = now.Add(time.Hour)
	s.mu.Unlock()
	writeJSON(w, http.StatusOK, map[string]any{"access_token": token, "expires_in": 3600, "token_type": "Bearer"})
}

// checkAssertion returns the fault of the JWT; "": none.
func (s *Server) checkAssertion(r *http.Request, now time.Time) string {
	if r.FormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
		return "grant_type"
	}
	var claims struct {
		jwt.RegisteredClaims

		Scope string `json:"scope"`
	}
	parsed, err := jwt.ParseWithClaims(r.FormValue("assertion"), &claims, func(parsed *jwt.Token) (any, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if id, _ := parsed.Header["kid"].(string); s.keys[id] != nil {
			return &s.keys[id].PublicKey, nil
		}
		return nil, errors.New("the key is not known")
	}, jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(email), jwt.WithAudience(s.URL()+"/token"), jwt.WithIssuedAt(), jwt.WithExpirationRequired(),
		jwt.WithLeeway(time.Second), jwt.WithTimeFunc(func() time.Time { return now }))
	switch {
	case err != nil:
		return "token"
	case parsed.Header["typ"] != "JWT" || claims.Scope != "https://www.googleapis.com/auth/firebase.messaging":
		return "claims"
	case claims.IssuedAt == nil || claims.ExpiresAt.Sub(claims.IssuedAt.Time) > time.Hour:
		return "times"
	}
	return ""
}

// send answers messages:send.
func (s *Server) send(w http.ResponseWriter, r *http.Request) {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	ends, known := s.tokens[bearer]
	script, now := s.script, s.now()
	s.mu.Unlock()
	if !known || !now.Before(ends) {
		fail(w, Reply{Status: http.StatusUnauthorized, Canonical: "UNAUTHENTICATED"})
		return
	}
	if r.PathValue("project") != Project {
		fail(w, Reply{Status: http.StatusForbidden, Canonical: "PERMISSION_DENIED"})
		return
	}
	raw, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return // the client has gone
	}
	var body struct {
		Message Message `json:"message"`
	}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&body); err != nil || check(body.Message) != "" {
		fail(w, Reply{Status: http.StatusBadRequest, Canonical: "INVALID_ARGUMENT", Code: "INVALID_ARGUMENT"})
		return
	}
	var reply Reply
	if script != nil {
		reply = script(body.Message)
	}
	if reply.Delay > 0 {
		select {
		case <-time.After(reply.Delay):
		case <-r.Context().Done():
		}
	}
	s.answer(w, r, body.Message, reply, now)
}

// answer accepts a message, or not, and answers.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, m Message, reply Reply, now time.Time) {
	s.mu.Lock()
	gone := s.unregistered[m.Token]
	name := ""
	if reply.Accept || reply.Status == 0 && !reply.Cut && !gone {
		s.number++
		name = fmt.Sprintf("projects/%s/messages/0:%d", Project, s.number)
		s.accepted = append(s.accepted, Accepted{m, name, now})
	}
	s.mu.Unlock()
	switch {
	case reply.Cut || reply.Status != 0:
		s.play(w, r, reply)
	case gone:
		fail(w, Reply{Status: http.StatusNotFound, Canonical: "NOT_FOUND", Code: "UNREGISTERED"})
	default:
		writeJSON(w, http.StatusOK, map[string]string{"name": name})
	}
}

var ttl = regexp.MustCompile(`^(\d{1,7})s$`)

// check returns the fault of a message; "": none.
func check(m Message) string {
	size := len(m.Notification.Title) + len(m.Notification.Body) + len("title") + len("body")
	for key, value := range m.Data {
		size += len(key) + len(value)
		if key == "" || key == "from" || key == "message_type" || strings.HasPrefix(key, "google.") || strings.HasPrefix(key, "gcm") {
			return "data key"
		}
	}
	match := ttl.FindStringSubmatch(m.Android.TTL)
	switch {
	case m.Token == "":
		return "token"
	case size > maxPayload:
		return "size"
	case m.Android.Priority != "NORMAL" && m.Android.Priority != "HIGH":
		return "priority"
	case match == nil:
		return "ttl"
	}
	if seconds, _ := strconv.Atoi(match[1]); seconds > 2419200 {
		return "ttl"
	}
	return ""
}

// play answers as a script says.
func (s *Server) play(w http.ResponseWriter, r *http.Request, reply Reply) {
	if reply.Cut {
		pushtest.Cut(r)
	}
	fail(w, reply)
}

// fail answers an error in Google's form.
func fail(w http.ResponseWriter, reply Reply) {
	if reply.RetryAfter != "" {
		w.Header().Set("Retry-After", reply.RetryAfter)
	}
	if reply.Body != "" {
		w.WriteHeader(reply.Status)
		_, _ = io.WriteString(w, reply.Body)
		return
	}
	var details []map[string]any
	if reply.Code != "" {
		details = append(details, map[string]any{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": reply.Code})
	}
	if reply.Violation != "" {
		details = append(details, map[string]any{
			"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []map[string]string{{"subject": reply.Violation}},
		})
	}
	writeJSON(w, reply.Status, map[string]any{"error": map[string]any{
		"code": reply.Status, "message": "a message for people", "status": reply.Canonical, "details": details,
	}})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}
