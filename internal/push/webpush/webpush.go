package webpush

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/h2pool"
)

// Options are for [New].
type Options struct {
	KeyFile string         // of the private VAPID key, see [KeyPair]
	Key     []byte         // what would be in KeyFile, if that is ""
	Subject string         // mailto: or https: by which push services can reach the operator
	Allow   []netip.Prefix // addresses that may be connected to although they are not public
	RootCAs *x509.CertPool // nil: the system's
	Log     *slog.Logger   // nil: no log
}

// Sender sends to browsers. It is a [push.Sender].
type Sender struct {
	keyFile string
	subject string
	rule    rule
	log     *slog.Logger
	vapid   atomic.Pointer[vapid]
	origins *origins
	now     func() time.Time
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
		keyFile: o.KeyFile, subject: o.Subject, rule: rule{allow: o.Allow}, log: o.Log,
		now: time.Now,
	}
	dialer := net.Dialer{Timeout: dialTimeout, ControlContext: s.rule.control}
	s.origins = &origins{
		kept: make(map[string]*origin), dial: dialer.DialContext,
		tls: &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12},
	}
	var err error
	if o.KeyFile != "" {
		err = s.Reload()
	} else {
		err = s.setKey(o.Key)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the key file again. If it cannot be used, the key that was in use stays.
// With another key nothing can be sent to the subscriptions that were made for this one:
// it is for a sender that was given a wrong key.
func (s *Sender) Reload() error {
	if s.keyFile == "" {
		return nil
	}
	text, err := os.ReadFile(s.keyFile)
	if err != nil {
		return fmt.Errorf("web push: %w", err)
	}
	if err := s.setKey(bytes.TrimPrefix(text, []byte("\ufeff"))); err != nil {
		return fmt.Errorf("%s: %w", s.keyFile, err)
	}
	return nil
}

func (s *Sender) setKey(text []byte) error {
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

// Close closes all connections. Messages that are being sent are [push.Ambiguous].
func (s *Sender) Close() { s.origins.close() }

// check returns an error, for people, if there can be no such subscription, or its endpoint has an
// address that is not one of rule. It looks up the endpoint's host.
func check(ctx context.Context, u subscription, rule rule, lookup lookup) error {
	e, err := parseEndpoint(u.Endpoint)
	if err != nil {
		return err
	}
	if _, err := parseKeys(u.P256DH, u.Auth); err != nil {
		return err
	}
	return rule.check(ctx, e.host, lookup)
}

// Origin implements [push.Sender].
func (s *Sender) Origin(d push.Device) string {
	e, err := parseEndpoint(subscriptionOf(d.Address).Endpoint)
	if err != nil {
		return "https://invalid:443"
	}
	return e.origin()
}

// Send implements [push.Sender].
func (s *Sender) Send(ctx context.Context, m push.Message) push.Result {
	to := subscriptionOf(m.Device.Address)
	e, err := parseEndpoint(to.Endpoint)
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
	o := s.origins.get(e.address())
	defer s.origins.put(o)
	answer, err := o.Send(ctx, h2pool.Request{
		Path: e.url.RequestURI(), Body: body,
		Header: func(_ any, to []h2pool.Field) ([]h2pool.Field, error) { return s.header(to, &m, authorization), nil },
	})
	now := s.now()
	result := classify(answer, err, o.isProven(v.public, now), now)
	if result.Outcome == push.Accepted {
		o.prove(v.public, now)
	}
	return result
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

// header appends the header of a message.
func (s *Sender) header(to []h2pool.Field, m *push.Message, authorization string) []h2pool.Field {
	urgency := "normal"
	if m.Urgent {
		urgency = "high"
	}
	ttl := max(0, int64(m.Expires.Sub(s.now())/time.Second))
	to = append(to,
		h2pool.Field{Name: "authorization", Value: authorization},
		h2pool.Field{Name: "content-encoding", Value: "aes128gcm"},
		h2pool.Field{Name: "content-type", Value: "application/octet-stream"},
		h2pool.Field{Name: "ttl", Value: strconv.FormatInt(ttl, 10), Sensitive: true},
		h2pool.Field{Name: "urgency", Value: urgency},
		h2pool.Field{Name: "user-agent", Value: "activityd"},
	)
	if m.Collapse != "" {
		to = append(to, h2pool.Field{Name: "topic", Value: m.Collapse, Sensitive: true})
	}
	return to
}
