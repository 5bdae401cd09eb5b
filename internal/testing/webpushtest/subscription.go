package webpushtest

import (
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sync"
	"time"
)

// Subscription is a browser's. Its methods are safe for concurrent use.
type Subscription struct {
	id        string
	endpoint  string
	serverKey string
	private   *ecdh.PrivateKey
	auth      []byte

	mu       sync.Mutex
	gone     bool
	online   bool
	waiting  []Acceptance // while the browser is offline
	received []Acceptance
}

// ID returns the subscription's name in an [Acceptance].
func (u *Subscription) ID() string { return u.id }

// JSON returns the subscription as the browser gives it to its page, which is PushSubscription.toJSON there.
func (u *Subscription) JSON() []byte {
	text, err := json.Marshal(map[string]any{"endpoint": u.endpoint, "expirationTime": nil, "keys": map[string]string{
		"p256dh": base64.RawURLEncoding.EncodeToString(u.P256DH()),
		"auth":   base64.RawURLEncoding.EncodeToString(u.Auth()),
	}})
	if err != nil {
		panic(err) // texts always can
	}
	return text
}

// Endpoint returns the URL at which the push service takes its messages.
func (u *Subscription) Endpoint() string { return u.endpoint }

// P256DH returns the browser's public key, an uncompressed point of P-256.
func (u *Subscription) P256DH() []byte { return u.private.PublicKey().Bytes() }

// Auth returns the authentication secret.
func (u *Subscription) Auth() []byte { return slices.Clone(u.auth) }

// Unsubscribe ends the subscription: its messages are answered with 410.
func (u *Subscription) Unsubscribe() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.gone = true
}

// SetOnline says whether the browser is connected. A message for a disconnected browser waits for up to its
// TTL. Waiting messages with the same topic replace one another.
func (u *Subscription) SetOnline(online bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.online = online
	if online {
		for _, a := range u.waiting {
			if time.Since(a.At) < a.TTL {
				u.received = append(u.received, a)
			}
		}
		u.waiting = nil
	}
}

// Received returns the messages that reached the browser.
func (u *Subscription) Received() []Acceptance {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.received)
}

func (u *Subscription) isGone() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.gone
}

func (u *Subscription) take(a Acceptance) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.online {
		u.received = append(u.received, a)
		return
	}
	if a.Topic != "" {
		u.waiting = slices.DeleteFunc(u.waiting, func(w Acceptance) bool { return w.Topic == a.Topic })
	}
	u.waiting = append(u.waiting, a)
}
