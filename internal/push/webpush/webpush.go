package webpush

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

const (
	provenFor    = 10 * time.Minute
	maxStandings = 1000 // push services; the names below a domain are many
)

// Options are for [New].
type Options struct {
	Key     []byte         // the private VAPID key, see [KeyPair]
	Subject string         // mailto: or https: by which push services can reach the operator
	Hosts   []string       // of push services beside the browsers': names, *.names below a domain, and addresses
	RootCAs *x509.CertPool // nil: the system's
	Log     *slog.Logger   // nil: no log
}

// Sender sends to browsers. It is a [push.Sender].
type Sender struct {
	subject string
	hosts   hosts
	log     *slog.Logger
	vapid   atomic.Pointer[vapid]
	pool    *conn.Pool
	now     func() time.Time

	mu        sync.Mutex
	standings map[string]*known // by origin
}

// known is the knowledge of a push service by its answers.
type known struct {
	key       string // the public key that it took something under
	at        time.Time
	throttled bool // since then
}

var _ push.Sender = (*Sender)(nil)

// New returns a sender, or an error if the key or the subject cannot be used. It connects
// to nothing yet.
func New(o Options) (*Sender, error) {
	if err := checkSubject(o.Subject); err != nil {
		return nil, fmt.Errorf("web push: %w", err)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Sender{
		subject: o.Subject, hosts: o.Hosts, log: o.Log, now: time.Now, standings: make(map[string]*known),
	}
	s.pool = conn.New(conn.Options{RootCAs: o.RootCAs, Count: push.CountConnections(Platform)})
	if err := s.SetKey(o.Key); err != nil {
		return nil, err
	}
	return s, nil
}

// SetKey replaces the private VAPID key. After an error the key before stays. Subscriptions that were made for another key are not
// reached: SetKey is for a sender that was given a wrong key.
func (s *Sender) SetKey(text []byte) error {
	v, err := newVAPID(text, s.subject)
	if err != nil {
		return fmt.Errorf("web push: %w", err)
	}
	if old := s.vapid.Load(); old == nil || old.public != v.public {
		if old != nil {
			s.log.Info("web push key changed", "public_key", v.public)
		}
		s.vapid.Store(v)
	}
	return nil
}

// PublicKey returns the browser's applicationServerKey.
func (s *Sender) PublicKey() string { return s.vapid.Load().public }

// Close closes the connections when the last message is answered.
func (s *Sender) Close() { s.pool.Close() }

// Origin implements [push.Sender].
func (s *Sender) Origin(d push.Device) string {
	e, err := parseEndpoint(subscriptionOf(d.Address).Endpoint, s.hosts)
	if err != nil {
		return "https://invalid:443"
	}
	return e.origin()
}

// Send implements [push.Sender].
func (s *Sender) Send(ctx context.Context, m push.Message) push.Result {
	to := subscriptionOf(m.Device.Address)
	e, err := parseEndpoint(to.Endpoint, s.hosts)
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "endpoint"}
	}
	v := s.vapid.Load()
	body, reason := content(m.Notification, to)
	if reason != "" {
		return push.Result{Outcome: push.Rejected, Reason: reason}
	}
	authorization, err := v.authorization(e.audience(), s.now())
	if err != nil {
		return push.Result{Outcome: push.Credentials, Reason: "token", Origin: true}
	}
	answer, failed := s.pool.Post(ctx, e.url, s.header(&m, authorization), body, m.Before)
	if failed != nil {
		return conn.Unanswered(failed)
	}
	now := s.now()
	r := classify(answer, s.standing(e.origin(), v.public, now), now)
	s.learn(e.origin(), v.public, r, now)
	return r
}

// standing returns how we stand with a push service under a key.
func (s *Sender) standing(origin, key string, now time.Time) standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.standings[origin]
	if k == nil {
		return standing{}
	}
	return standing{proven: k.key == key && now.Sub(k.at) < provenFor, throttled: k.throttled}
}

// learn takes note of an answer of a push service.
func (s *Sender) learn(origin, key string, r push.Result, now time.Time) {
	if r.Outcome != push.Accepted && !isThrottled(r) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.standings[origin]
	if k == nil {
		if len(s.standings) >= maxStandings {
			clear(s.standings) // the next answers tell
		}
		k = &known{}
		s.standings[origin] = k
	}
	if k.throttled = r.Outcome != push.Accepted; !k.throttled {
		k.key, k.at = key, now
	}
}

// content returns the encrypted body of a message, or why there can be none.
func content(n push.Notification, to subscription) (body []byte, reason string) {
	text, err := Payload(&n)
	if err != nil || len(text) > maxPayload {
		return nil, "payload"
	}
	if body, err = encrypt(text, to.P256DH, to.Auth); err != nil {
		return nil, "bad_key"
	}
	return body, ""
}

// header returns the header of a message.
func (s *Sender) header(m *push.Message, authorization string) http.Header {
	urgency := "normal"
	if m.Urgent {
		urgency = "high"
	}
	header := http.Header{
		"Authorization":    {authorization},
		"Content-Encoding": {"aes128gcm"},
		"Content-Type":     {"application/octet-stream"},
		"Ttl":              {strconv.FormatInt(max(0, int64(m.Expires.Sub(s.now())/time.Second)), 10)},
		"Urgency":          {urgency},
		"User-Agent":       {"activityd"},
	}
	if m.Collapse != "" {
		header["Topic"] = []string{m.Collapse}
	}
	return header
}
