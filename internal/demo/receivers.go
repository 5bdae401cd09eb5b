package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/webpush"
	"github.com/activityd/activityd/internal/testing/apnstest"
	"github.com/activityd/activityd/internal/testing/webpushtest"
)

// Receivers are push services inside this process, the senders that know them, and the
// phones and browsers that they reach. They listen on this machine, and speak what the real
// ones speak: HTTP/2 and TLS, tokens, encryption, which the browser undoes.
type Receivers struct {
	phones     *apnstest.Server
	browsers   *webpushtest.Server
	toPhones   *apns.Sender
	toBrowsers *webpush.Sender

	mu      sync.Mutex
	screens map[string]*screen // by the token of a phone and the id of a subscription
}

// maxShown is how many notifications a screen shows.
const maxShown = 4

// screen is what a phone or a browser shows, oldest first.
type screen struct{ notes []note }

// note is a notification on a screen.
type note struct {
	text

	unix     uint64
	collapse string
}

// text is what a notification says.
type text struct {
	Title string `json:"title"`
	Body  string `json:"body"`
}

// StartReceivers starts the push services. They are to be closed.
func StartReceivers() (*Receivers, error) {
	r := &Receivers{screens: make(map[string]*screen)}
	err := r.start()
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

func (r *Receivers) start() (err error) {
	if r.phones, err = apnstest.New(apnstest.Options{Discard: true, OnAccept: r.onPhone}); err != nil {
		return err
	}
	if r.browsers, err = webpushtest.Start(webpushtest.Options{Forget: true, OnAccept: r.inBrowser}); err != nil {
		return err
	}
	if r.toPhones, err = apns.New(apns.Options{
		KeyPEM: r.phones.Key(), KeyID: r.phones.KeyID(), TeamID: r.phones.TeamID(), Topic: r.phones.Topic(),
		URL: r.phones.URL(), RootCAs: r.phones.RootCAs(),
	}); err != nil {
		return err
	}
	keys, err := webpush.GenerateKey()
	if err != nil {
		return err
	}
	r.toBrowsers, err = webpush.New(webpush.Options{
		Key: keys.PEM, Subject: "mailto:demo@example.com", RootCAs: r.browsers.RootCAs(),
		Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	return err
}

// Close ends the connections of the senders, and then the push services.
func (r *Receivers) Close() {
	if r.toPhones != nil {
		r.toPhones.Close()
	}
	if r.toBrowsers != nil {
		r.toBrowsers.Close()
	}
	if r.phones != nil {
		r.phones.Close()
	}
	if r.browsers != nil {
		r.browsers.Close()
	}
}

// Senders returns what sends to the receivers.
func (r *Receivers) Senders() map[push.Platform]push.Sender {
	return map[push.Platform]push.Sender{apns.Platform: r.toPhones, webpush.Platform: r.toBrowsers}
}

// receiver is a phone or a browser of a member.
type receiver struct {
	device uint64
	screen string // its key in [Receivers].screens
}

// newPhone registers a new phone for a member.
func (r *Receivers) newPhone(ctx context.Context, store *push.MySQL, m member.ID) (receiver, error) {
	token := make([]byte, 32)
	_, _ = rand.Read(token) // it never fails
	return r.register(ctx, store, m, apns.Platform, hex.EncodeToString(token), apns.NewAddress(hex.EncodeToString(token), false))
}

// newBrowser registers a new browser for a member.
func (r *Receivers) newBrowser(ctx context.Context, store *push.MySQL, m member.ID) (receiver, error) {
	subscription, err := r.browsers.Subscribe(r.toBrowsers.PublicKey())
	if err != nil {
		return receiver{}, err
	}
	return r.register(ctx, store, m, webpush.Platform, subscription.ID(), webpush.NewAddress(subscription.Endpoint(), subscription.P256DH(), subscription.Auth()))
}

func (r *Receivers) register(ctx context.Context, store *push.MySQL, m member.ID, p push.Platform, key string, a push.Address) (receiver, error) {
	device, err := store.Register(ctx, m, p, a)
	if err != nil {
		return receiver{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.screens[key] = &screen{}
	return receiver{device: device.ID, screen: key}, nil
}

// forget throws a receiver away.
func (r *Receivers) forget(of receiver) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.screens, of.screen)
}

// notes returns what a receiver shows, newest first.
func (r *Receivers) notes(of receiver) []note {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.screens[of.screen]
	if s == nil {
		return nil
	}
	notes := slices.Clone(s.notes)
	slices.Reverse(notes)
	return notes
}

// onPhone is called for each message that the phones' push service took.
func (r *Receivers) onPhone(a apnstest.Request) {
	var payload struct {
		APS struct {
			Alert text `json:"alert"`
		} `json:"aps"`
	}
	if json.Unmarshal(a.Payload, &payload) == nil {
		r.show(a.Token, note{collapse: a.Collapse, text: payload.APS.Alert})
	}
}

// inBrowser is called for each message that the browsers' push service took, decrypted.
func (r *Receivers) inBrowser(a webpushtest.Acceptance) {
	var payload struct {
		text

		Tag string `json:"tag"`
	}
	if json.Unmarshal(a.Payload, &payload) == nil {
		r.show(a.Subscription, note{collapse: payload.Tag, text: payload.text})
	}
}

// show shows a notification instead of the one with its collapse id.
func (r *Receivers) show(key string, n note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.screens[key]
	if s == nil {
		return
	}
	n.unix = uint64(time.Now().Unix())
	s.notes = slices.DeleteFunc(s.notes, func(old note) bool { return old.collapse == n.collapse })
	s.notes = latest(s.notes, n, maxShown)
}
