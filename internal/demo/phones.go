package demo

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/testing/apnstest"
)

// Phones are made-up phones, at most a phone for each viewer, with the push service inside this
// process that reaches them. The service speaks APNs on this machine: HTTP/2, TLS and tokens.
// The methods of Phones are safe for concurrent use.
type Phones struct {
	store   *push.MySQL
	service *apnstest.Server
	sender  *apns.Sender

	mu     sync.Mutex // guards all below; held while a phone is registered
	tokens map[member.ID]string
	notes  map[string][]note // by token, oldest first
}

// note is a notification on a phone.
type note struct {
	title, body string
	unix        uint64
	collapse    string
}

// maxNotes is how many notifications a phone shows.
const maxNotes = 4

// StartPhones starts the push service. The caller closes it, after the workers have ended.
func StartPhones(store *push.MySQL) (*Phones, error) {
	p := &Phones{store: store, tokens: map[member.ID]string{}, notes: map[string][]note{}}
	var err error
	if p.service, err = apnstest.New(apnstest.Options{Discard: true, OnAccept: p.show}); err != nil {
		return nil, fmt.Errorf("start the push service: %w", err)
	}
	if p.sender, err = apns.New(apns.Options{
		KeyPEM: p.service.Key(), KeyID: p.service.KeyID(), TeamID: p.service.TeamID(), Topic: p.service.Topic(),
		URL: p.service.URL(), RootCAs: p.service.RootCAs(),
	}); err != nil {
		p.service.Close()
		return nil, err
	}
	return p, nil
}

// Close ends the connections of the sender, and the push service.
func (p *Phones) Close() {
	p.sender.Close()
	p.service.Close()
}

// Senders returns the sender to the phones.
func (p *Phones) Senders() map[push.Platform]push.Sender {
	return map[push.Platform]push.Sender{apns.Platform: p.sender}
}

// register gives the viewer a phone, unless the viewer has a phone already.
func (p *Phones) register(ctx context.Context, viewer member.ID) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tokens[viewer] != "" {
		return nil
	}
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	token := hex.EncodeToString(random)
	if _, err := p.store.Register(ctx, viewer, apns.Platform, apns.NewAddress(token, false), ""); err != nil {
		return err
	}
	p.tokens[viewer] = token
	return nil
}

// notesOf returns the notes on the viewer's phone, newest first.
func (p *Phones) notesOf(viewer member.ID) []note {
	p.mu.Lock()
	defer p.mu.Unlock()
	notes := slices.Clone(p.notes[p.tokens[viewer]])
	slices.Reverse(notes)
	return notes
}

// show puts a message that the push service took on its phone, instead of the message with the
// same collapse id.
func (p *Phones) show(r apnstest.Request) {
	var payload struct {
		APS struct {
			Alert struct {
				Title string `json:"title"`
				Body  string `json:"body"`
			} `json:"alert"`
		} `json:"aps"`
	}
	if json.Unmarshal(r.Payload, &payload) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	notes := slices.DeleteFunc(p.notes[r.Token], func(old note) bool { return r.Collapse != "" && old.collapse == r.Collapse })
	alert := payload.APS.Alert
	p.notes[r.Token] = latest(notes, note{alert.Title, alert.Body, uint64(time.Now().Unix()), r.Collapse}, maxNotes)
}

// eventOf is the event that an upload is committed with, for the owner's followers. Its title is
// the owner's name, as it has none.
func eventOf(photo uint64, title string) string {
	text, err := json.Marshal(map[string]string{
		"id": fmt.Sprintf("photo-%d", photo), "type": "upload", "object": fmt.Sprintf("photo:%d", photo), "body": "uploaded “" + title + "”",
	})
	if err != nil {
		panic(fmt.Sprintf("demo: encoding strings: %v", err)) // cannot fail
	}
	return string(text)
}
