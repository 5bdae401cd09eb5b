package apns

import (
	"encoding/json"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
)

// MaxPayload is how many bytes APNs takes.
const MaxPayload = 4096

type payload struct {
	APS    aps             `json:"aps"`
	Event  string          `json:"event"`
	Type   string          `json:"type"`
	Object string          `json:"object,omitempty"`
	Actor  member.ID       `json:"actor"`
	Count  int             `json:"count"`
	Data   json.RawMessage `json:"data,omitempty"`
	Image  string          `json:"image,omitempty"`
}

type aps struct {
	Alert *alert `json:"alert,omitempty"`
	// Thread groups by object, else by type.
	Thread           string `json:"thread-id,omitempty"`
	Interruption     string `json:"interruption-level,omitempty"`
	Sound            string `json:"sound,omitempty"`
	Badge            *int   `json:"badge,omitempty"`
	MutableContent   int    `json:"mutable-content,omitempty"`   // an extension of the app shows the image
	ContentAvailable int    `json:"content-available,omitempty"` // the app is waked
}

type alert struct {
	Title        string   `json:"title,omitempty"`
	Body         string   `json:"body,omitempty"`
	TitleLocKey  string   `json:"title-loc-key,omitempty"`
	TitleLocArgs []string `json:"title-loc-args,omitempty"`
	LocKey       string   `json:"loc-key,omitempty"`
	LocArgs      []string `json:"loc-args,omitempty"`
}

// Payload returns the JSON that the phone gets. It fits [MaxPayload] if the event keeps the bounds of
// package push.
func Payload(m *push.Message) ([]byte, error) {
	p := payload{
		Event: m.Event, Type: m.Type, Object: m.Object, Actor: m.Actor, Count: m.Count, Data: m.Data, Image: m.Image,
		APS: aps{Badge: m.Badge},
	}
	if m.Silent {
		p.APS.ContentAvailable = 1
	} else {
		p.APS.show(m)
	}
	return push.Encode(p, m.Override)
}

// show adds the texts that the phone shows, and the sound.
func (a *aps) show(m *push.Message) {
	a.Alert = &alert{
		Title: m.Title, Body: m.Body, TitleLocKey: m.TitleLocKey, TitleLocArgs: m.TitleLocArgs, LocKey: m.BodyLocKey, LocArgs: m.BodyLocArgs,
	}
	if m.TitleLocKey != "" { // the text would be for apps without the key
		a.Alert.Title = ""
	}
	if m.BodyLocKey != "" {
		a.Alert.Body = ""
	}
	if a.Thread = m.Object; m.Object == "" {
		a.Thread = m.Type
	}
	if m.Urgent {
		a.Interruption, a.Sound = "time-sensitive", push.SoundDefault
	}
	switch m.Sound {
	case "":
	case push.SoundNone:
		a.Sound = ""
	default:
		a.Sound = m.Sound
	}
	if m.Image != "" {
		a.MutableContent = 1
	}
}

// kind returns the type and the priority of a message. Apple demands the lower priority where an app is only woken, and
// the type "alert" where its badge changes.
func kind(m *push.Message) (pushType, priority string) {
	switch {
	case !m.Silent:
		return "alert", "10"
	case m.Badge != nil:
		return "alert", "5"
	}
	return "background", "5"
}
