package webpush

import (
	"encoding/json"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
)

// shown is the JSON that the service worker gets; docs/push-worker.js shows it.
type shown struct {
	Title   string          `json:"title"`
	Body    string          `json:"body"`
	Event   string          `json:"event"`
	Type    string          `json:"type"`
	Object  string          `json:"object,omitempty"`
	Actor   member.ID       `json:"actor"`
	Count   int             `json:"count"`
	Data    json.RawMessage `json:"data,omitempty"`
	Tag     string          `json:"tag"` // of the notifications with a tag, the last is shown
	Urgent  bool            `json:"urgent"`
	Expires int64           `json:"expires"` // unix seconds
	push.Style
}

// Payload returns the JSON of a message, before it is encrypted. It is longer than maxPayload only if the bounds of events
// were not kept.
func Payload(n *push.Notification) ([]byte, error) {
	return push.Encode(shown{
		Title: n.Title, Body: n.Body, Event: n.Event, Type: n.Type, Object: n.Object, Actor: n.Actor,
		Count: n.Count, Data: n.Data, Tag: n.Collapse, Urgent: n.Urgent, Expires: n.Expires.Unix(),
		Style: n.Style,
	}, n.Override)
}
