package fcm

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/activityd/activityd/internal/push"
)

// request is the body of messages:send.
type request struct {
	Message message `json:"message"`
}

type message struct {
	Token        string            `json:"token,omitempty"`
	Notification *notification     `json:"notification,omitempty"` // nil: the app alone gets it
	Data         map[string]string `json:"data"`
	Android      android           `json:"android"`
}

type notification struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
	Image string `json:"image,omitempty"`
}

type android struct {
	CollapseKey  string               `json:"collapse_key,omitempty"`
	Priority     string               `json:"priority"`
	TTL          string               `json:"ttl"` // as in "3600s"
	Notification *androidNotification `json:"notification,omitempty"`
}

type androidNotification struct {
	Tag          string   `json:"tag"` // a notification replaces the notification that is shown with it
	Sound        string   `json:"sound,omitempty"`
	Count        *int     `json:"notification_count,omitempty"`
	TitleLocKey  string   `json:"title_loc_key,omitempty"`
	TitleLocArgs []string `json:"title_loc_args,omitempty"`
	BodyLocKey   string   `json:"body_loc_key,omitempty"`
	BodyLocArgs  []string `json:"body_loc_args,omitempty"`
}

// The priorities. The system shows a normal message at once on a device that is in use; on a device
// that sleeps it may wait for the next maintenance window. It lowers the high messages of an
// app that has too many.
const (
	priorityNormal = "NORMAL"
	priorityHigh   = "HIGH"
)

// maxTTL is the longest that FCM keeps a message.
const maxTTL = 28 * 24 * time.Hour

// newRequest returns the request for a message. An app finds in data:
//
//	event, type, actor, count   always
//	object                      if there is an object: photo:901
//	data                        the event's data, a JSON object as text, if there is any
//	badge                       the event's, if it is silent and has a badge
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
	if m.Silent && m.Badge != nil {
		data["badge"] = strconv.Itoa(*m.Badge)
	}
	priority := priorityNormal
	if m.Urgent {
		priority = priorityHigh
	}
	ttl := min(max(m.Expires.Sub(now), 0), maxTTL)
	r := request{message{
		Token: tokenOf(m.Device.Address), Data: data,
		Android: android{Priority: priority, TTL: strconv.Itoa(int(ttl/time.Second)) + "s"},
	}}
	if !m.Silent {
		r.Message.Notification, r.Message.Android.Notification = shown(&m)
		r.Message.Android.CollapseKey = m.Collapse
	}
	return r
}

// shown returns the parts that the system shows.
func shown(m *push.Message) (*notification, *androidNotification) {
	n := &notification{m.Title, m.Body, m.Image}
	a := &androidNotification{
		Tag: m.Collapse, Sound: m.Sound, Count: m.Badge,
		TitleLocKey: m.TitleLocKey, TitleLocArgs: m.TitleLocArgs, BodyLocKey: m.BodyLocKey, BodyLocArgs: m.BodyLocArgs,
	}
	if m.TitleLocKey != "" { // a text would be taken first
		n.Title = ""
	}
	if m.BodyLocKey != "" {
		n.Body = ""
	}
	if m.Sound == push.SoundNone { // the channel's, in versions since 8
		a.Sound = ""
	}
	return n, a
}

// Payload returns the body of the request for a message. The event's own object is merged into it, but for the token: the receipt
// names its device.
func Payload(m *push.Message, now time.Time) ([]byte, error) {
	r := newRequest(*m, now)
	if m.Override == nil {
		return push.Encode(r, nil)
	}
	token, err := json.Marshal(map[string]string{"token": r.Message.Token})
	if err != nil {
		return nil, err
	}
	own, err := push.Merge(m.Override, token)
	if err != nil {
		return nil, err
	}
	return push.Encode(r, slices.Concat([]byte(`{"message":`), own, []byte("}")))
}
