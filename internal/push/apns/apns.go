// Package apns sends notifications through the Apple Push Notification service, by its
// provider API over HTTP/2 with tokens.
//
// Each message is a single request, and the queue repeats it under the same apns-id if it failed. All alerts have
// priority 10, at once, as by Apple's default: a notification is to be seen by a person, and 5 would
// let a phone keep it back. An urgent alert is "time-sensitive" in addition, so that it goes through a phone's
// focus modes where the app has that entitlement, and has a sound.
package apns

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/conn"
)

// The push service's hosts.
const (
	Production = "https://api.push.apple.com"
	Sandbox    = "https://api.sandbox.push.apple.com"
)

// Options are for [New].
type Options struct {
	KeyPEM  []byte // the content of a .p8 file as Apple gives it
	KeyID   string // the key's id with Apple
	TeamID  string
	Topic   string         // of the app: its bundle id
	URL     string         // instead of Apple's two hosts, for both kinds of devices
	RootCAs *x509.CertPool // nil: the system's

	silence time.Duration // of [conn.Options]
}

// Sender sends to phones. It implements [push.Sender].
type Sender struct {
	options Options
	hosts   [2]string // host:port, by whether the device is of the sandbox

	mu    sync.Mutex
	keyed *keyed
}

var _ push.Sender = (*Sender)(nil)

// keyed is a key and the connections that carry its tokens: Apple refuses the tokens of another key over them.
type keyed struct {
	*signer

	pool *conn.Pool
}

// New returns a sender. It connects when it has something to send.
func New(o Options) (*Sender, error) {
	if o.Topic == "" {
		return nil, errors.New("apns: no topic: it is the bundle id of the app")
	}
	if o.TeamID == "" {
		return nil, errors.New("apns: no team id: it is shown in the membership details of the Apple developer account")
	}
	s := &Sender{options: o}
	for i, at := range []string{cmp.Or(o.URL, Production), cmp.Or(o.URL, Sandbox)} {
		address, err := push.ParseOrigin(at)
		if err != nil {
			return nil, fmt.Errorf("apns: URL %q: %w", at, err)
		}
		s.hosts[i] = address
	}
	if err := s.SetKey(o.KeyPEM, o.KeyID); err != nil {
		return nil, err
	}
	return s, nil
}

// Close closes the connections when the last message is answered.
func (s *Sender) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keyed.pool.Close()
}

// SetKey replaces the key by the content of a .p8 file. Messages in flight are finished over
// its connections; new messages go over new connections.
func (s *Sender) SetKey(text []byte, keyID string) error {
	key, err := newSigner(text, keyID, s.options.TeamID)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keyed != nil {
		if s.keyed.keyID == key.keyID && s.keyed.key.Equal(key.key) {
			return nil
		}
		s.keyed.pool.Close()
	}
	s.keyed = &keyed{key, conn.New(conn.Options{
		RootCAs: s.options.RootCAs, Silence: s.options.silence, Count: push.CountConnections(Platform),
	})}
	return nil
}

// current returns the key in use; nil before the first.
func (s *Sender) current() *keyed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.keyed
}

// Origin implements [push.Sender].
func (s *Sender) Origin(d push.Device) string { return "https://" + s.host(addressOf(d.Address)) }

func (s *Sender) host(a address) string {
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

// check returns an error, for people, if the device token cannot be.
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
	key := s.current()
	bearer, err := key.bearer(time.Now())
	if err != nil {
		return push.Result{Outcome: push.Wait, Reason: reasonKey}
	}
	path := &url.URL{Scheme: "https", Host: s.host(to), Path: "/3/device/" + to.Token}
	got, failed := key.pool.Post(ctx, path, s.header(&m, bearer), payload, m.Before)
	if failed != nil {
		return conn.Unanswered(failed)
	}
	return readAnswer(got, time.Now()).result()
}

// header returns the header of a message.
func (s *Sender) header(m *push.Message, bearer string) http.Header {
	expiration := int64(0) // it is not stored for a phone that is off
	if !m.Expires.IsZero() {
		expiration = max(0, m.Expires.Unix())
	}
	pushType, priority := kind(m)
	header := http.Header{
		"Authorization":   {bearer},
		"User-Agent":      {"activityd"},
		"Apns-Push-Type":  {pushType},
		"Apns-Topic":      {s.options.Topic},
		"Apns-Priority":   {priority},
		"Apns-Expiration": {strconv.FormatInt(expiration, 10)},
	}
	if m.ID != "" {
		header["Apns-Id"] = []string{m.ID}
	}
	if m.Collapse != "" {
		header["Apns-Collapse-Id"] = []string{m.Collapse}
	}
	return header
}
