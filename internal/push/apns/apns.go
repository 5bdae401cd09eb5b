// Package apns sends notifications through the Apple Push Notification service, by its
// provider API over HTTP/2 with tokens.
//
// Each message is one request, which APNs processes once at most: what failed is for the
// queue to repeat, under the same apns-id. All alerts have priority 10, at once, which is also Apple's
// default: what is sent is to be seen by a person, and 5 would let a phone keep it back.
// An urgent one is "time-sensitive" in addition, which goes through a phone's focus modes
// where the app has that entitlement, and has a sound.
package apns

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/h2pool"
)

// The push service's hosts.
const (
	Production = "https://api.push.apple.com"
	Sandbox    = "https://api.sandbox.push.apple.com"
)

// Options are what a [Sender] is made of. One of KeyFile and KeyPEM is needed, TeamID and
// Topic are.
type Options struct {
	KeyFile string // a .p8 file as Apple gives it; [Sender.Reload] reads it again
	KeyPEM  []byte // its content, if there is no file
	// KeyID is the key's id with Apple. "": the one in the name of KeyFile, where that is, or
	// is a symbolic link to, AuthKey_<id>.p8: so a new key can have a new id without a restart.
	KeyID   string
	TeamID  string
	Topic   string         // of the app: its bundle id
	URL     string         // instead of Apple's two hosts, for both kinds of devices
	RootCAs *x509.CertPool // nil: the system's
	Log     *slog.Logger   // nil: none

	sendPing, growAfter time.Duration // 0: the constants of these names
}

const (
	maxConns  = 4           // to a host; one carries 1000 requests at once, as APNs answers its SETTINGS
	growAfter = time.Second // see [h2pool.Options]
)

const (
	dialTimeout = 10 * time.Second
	// sendPing is after what silence a peer is pinged: a dead one is noticed within 10 seconds.
	sendPing    = 5 * time.Second
	idleTimeout = 30 * time.Minute
)

// Sender sends to phones. It implements [push.Sender].
type Sender struct {
	options Options
	key     atomic.Pointer[signer]
	hosts   [2]*host // by whether the device is of the sandbox
}

var _ push.Sender = (*Sender)(nil)

// host is a push service, and what is known of it.
type host struct {
	pool    *h2pool.Pool // the Tag of a connection is the signer whose tokens go over it
	address string       // host:port
}

// New returns a sender, which connects when it has something to send.
func New(o Options) (*Sender, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	o.sendPing = cmp.Or(o.sendPing, sendPing)
	o.growAfter = cmp.Or(o.growAfter, growAfter)
	if o.Topic == "" {
		return nil, errors.New("apns: no topic: it is the bundle id of the app")
	}
	if o.TeamID == "" {
		return nil, errors.New("apns: no team id: it is shown in the membership details of the Apple developer account")
	}
	s := &Sender{options: o}
	var err error
	if o.KeyPEM != nil {
		err = s.SetKey(o.KeyPEM, o.KeyID)
	} else {
		err = s.Reload()
	}
	if err != nil {
		return nil, err
	}
	at := [2]string{Production, Sandbox}
	if o.URL != "" {
		at = [2]string{o.URL, o.URL}
	}
	for i := range s.hosts {
		if s.hosts[i], err = newHost(at[i]); err != nil {
			return nil, err
		}
		if i > 0 && at[i] == at[0] {
			s.hosts[i].pool = s.hosts[0].pool
			continue
		}
		s.hosts[i].pool = s.newPool(s.hosts[i].address)
	}
	return s, nil
}

// newPool returns the connections to a host, at host:port.
func (s *Sender) newPool(address string) *h2pool.Pool {
	return h2pool.New(h2pool.Options{
		Address: address, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: s.options.RootCAs}, Proxy: http.ProxyFromEnvironment,
		MaxConns: maxConns, GrowAfter: s.options.growAfter, DialTimeout: dialTimeout, Silence: s.options.sendPing, IdleTimeout: idleTimeout,
		Tag:         func() any { return s.key.Load() },
		OnDialError: func(err error) { s.options.Log.Warn("apns: connecting failed", "address", address, "error", err) },
		Count:       push.CountConnections(Platform),
	})
}

// newHost returns a host without a pool.
func newHost(at string) (*host, error) {
	address, err := push.ParseOrigin(at)
	if err != nil {
		return nil, fmt.Errorf("apns: URL %q: %w", at, err)
	}
	return &host{address: address}, nil
}

// Close closes all connections. Messages in flight are [push.Ambiguous].
func (s *Sender) Close() {
	for _, h := range s.hosts {
		h.pool.Close()
	}
}

// Reload reads the key from its file again. If it fails, the key in use stays, and the
// error says so.
func (s *Sender) Reload() error {
	text, keyID, err := readKey(s.options.KeyFile, s.options.KeyID)
	if err == nil {
		err = s.SetKey(text, keyID)
	}
	if err != nil && s.key.Load() != nil {
		return fmt.Errorf("%w; the previous key stays in use", err)
	}
	return err
}

// SetKey replaces the key by the content of a .p8 file. What is in flight is finished over
// its connections; new messages go over new ones, as a connection belongs to one key.
func (s *Sender) SetKey(text []byte, keyID string) error {
	key, err := newSigner(text, keyID, s.options.TeamID)
	if err != nil {
		return err
	}
	if old := s.key.Load(); old != nil && old.keyID == key.keyID && old.key.Equal(key.key) {
		return nil
	}
	s.key.Store(key)
	for _, h := range s.hosts {
		if h != nil { // else it is the first key
			h.pool.Retire()
		}
	}
	return nil
}

// Origin implements [push.Sender].
func (s *Sender) Origin(d push.Device) string {
	return "https://" + s.host(addressOf(d.Address)).address
}

func (s *Sender) host(a address) *host {
	if a.Sandbox {
		return s.hosts[1]
	}
	return s.hosts[0]
}

// maxToken is in hexadecimal digits. Apple says that the length varies; today it is 64, and
// more for some kinds that are not sent to here.
const (
	minToken = 16
	maxToken = 200
)

// check returns an error, for people, if there can be no such device token.
func check(a address) error {
	switch n := len(a.Token); {
	case n == 0:
		return errors.New("the device token is missing")
	case n < minToken || n > maxToken:
		return fmt.Errorf("the device token has %d characters: want %d to %d hexadecimal digits", n, minToken, maxToken)
	}
	if _, err := hex.DecodeString(a.Token); err != nil {
		return errors.New("the device token is not hexadecimal, two digits a byte")
	}
	return nil
}

// Send implements [push.Sender].
func (s *Sender) Send(ctx context.Context, m push.Message) push.Result {
	to := addressOf(m.Device.Address)
	if err := check(to); err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "BadDeviceToken"}
	}
	payload, err := Payload(&m)
	if err != nil {
		return push.Result{Outcome: push.Rejected, Reason: "payload"}
	}
	if len(payload) > MaxPayload {
		return push.Result{Outcome: push.Rejected, Reason: "PayloadTooLarge"}
	}
	h := s.host(to)
	got, err := h.pool.Send(ctx, h2pool.Request{
		Path: "/3/device/" + to.Token, Body: payload,
		Header: func(tag any, to []h2pool.Field) ([]h2pool.Field, error) {
			bearer, err := tag.(*signer).bearer(time.Now())
			return s.header(to, &m, bearer), err
		},
	})
	if err != nil {
		return unanswered(err)
	}
	a := answer{
		status:     got.Status,
		id:         got.Header.Get("apns-id"),
		retryAfter: h2pool.RetryAfter(got.Header.Get("retry-after"), time.Now()),
		waits:      got.Header.Get("retry-after") != "",
	}
	if a.status == http.StatusOK {
		return a.result()
	}
	var said struct {
		Reason    string `json:"reason"`
		Timestamp int64  `json:"timestamp"`
	}
	a.cut = got.Err != nil || json.Unmarshal(got.Body, &said) != nil
	a.reason, a.timestamp = said.Reason, said.Timestamp
	if a.reason == "Shutdown" {
		h.pool.Remove(got.Conn)
	}
	return a.result()
}

// header appends the header of a message. What differs with each message is kept out of the table
// of fields.
func (s *Sender) header(to []h2pool.Field, m *push.Message, bearer string) []h2pool.Field {
	expiration := int64(0) // it is not stored for a phone that is off
	if !m.Expires.IsZero() {
		expiration = max(0, m.Expires.Unix())
	}
	pushType, priority := kind(m)
	to = append(to,
		h2pool.Field{Name: "authorization", Value: bearer},
		h2pool.Field{Name: "user-agent", Value: "activityd"},
		h2pool.Field{Name: "apns-push-type", Value: pushType},
		h2pool.Field{Name: "apns-topic", Value: s.options.Topic},
		h2pool.Field{Name: "apns-priority", Value: priority},
		h2pool.Field{Name: "apns-expiration", Value: strconv.FormatInt(expiration, 10), Sensitive: true},
	)
	if m.ID != "" {
		to = append(to, h2pool.Field{Name: "apns-id", Value: m.ID, Sensitive: true})
	}
	if m.Collapse != "" {
		to = append(to, h2pool.Field{Name: "apns-collapse-id", Value: m.Collapse, Sensitive: true})
	}
	return to
}
