package fcm

import (
	"bytes"
	"encoding/json"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/push"
)

// request is the body of messages:send.
type request struct {
	Message message `json:"message"`
}

type message struct {
	Token        string            `json:"token"`
	Notification notification      `json:"notification"`
	Data         map[string]string `json:"data"`
	Android      android           `json:"android"`
}

type notification struct {
	Title string `json:"title"`
	Body  string `json:"body"`
}

type android struct {
	CollapseKey  string              `json:"collapse_key"`
	Priority     string              `json:"priority"`
	TTL          string              `json:"ttl"` // as in "3600s"
	Notification androidNotification `json:"notification"`
}

type androidNotification struct {
	Tag string `json:"tag"` // a notification replaces the one that is shown with it
}

// The priorities. The system shows a normal one at once on a device that is in use; on one
// that sleeps it may wait for the next maintenance window. It lowers the high ones of an
// app that has too many.
const (
	priorityNormal = "NORMAL"
	priorityHigh   = "HIGH"
)

// maxTTL is the longest that FCM keeps a message.
const maxTTL = 28 * 24 * time.Hour

// newRequest returns the request for a message. What an app finds in data:
//
//	event, type, actor, count   always
//	object                      if there is one: photo:901
//	data                        the event's data, a JSON object as text, if there is one
func newRequest(m push.Message, now time.Time) request {
	data := map[string]string{
		"event": m.Event,
		"type":  m.Type,
		"actor": m.Actor.String(),
		"count": strconv.Itoa(m.Count),
	}
	if m.Object != "" {
		data["object"] = m.Object
	}
	if len(m.Data) > 0 {
		data["data"] = string(m.Data)
	}
	priority := priorityNormal
	if m.Urgent {
		priority = priorityHigh
	}
	ttl := min(max(m.Expires.Sub(now), 0), maxTTL)
	return request{message{
		Token:        tokenOf(m.Device.Address),
		Notification: notification{m.Title, m.Body},
		Data:         data,
		Android: android{
			CollapseKey: m.Collapse, Priority: priority, TTL: strconv.Itoa(int(ttl/time.Second)) + "s",
			Notification: androidNotification{m.Collapse},
		},
	}}
}

// encode returns the request's JSON. It does not escape for HTML, which would make
// texts longer than they are.
func (r request) encode() ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(r)
	return b.Bytes(), err
}
