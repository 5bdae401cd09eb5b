package apns

import (
	"bytes"
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
}

type aps struct {
	Alert alert `json:"alert"`
	// Thread groups what is about one object, else what is of one type.
	Thread       string `json:"thread-id"`
	Interruption string `json:"interruption-level,omitempty"`
	Sound        string `json:"sound,omitempty"`
}

type alert struct {
	Title string `json:"title"`
	Body  string `json:"body"`
}

// Payload returns what the phone gets. It fits [MaxPayload] if the texts keep the bounds of
// package push.
func Payload(m *push.Message) ([]byte, error) {
	p := payload{
		APS:   aps{Alert: alert{Title: m.Title, Body: m.Body}, Thread: m.Object},
		Event: m.Event, Type: m.Type, Object: m.Object, Actor: m.Actor, Count: m.Count, Data: m.Data,
	}
	if m.Object == "" {
		p.APS.Thread = m.Type
	}
	if m.Urgent {
		p.APS.Interruption, p.APS.Sound = "time-sensitive", "default"
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // an escape has six bytes
	if err := encoder.Encode(p); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), nil
}
