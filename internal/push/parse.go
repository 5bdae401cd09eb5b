package push

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// ParseEvent reads the JSON of an event.
func ParseEvent(payload json.RawMessage) (Event, error) {
	var in struct {
		ID         string          `json:"id"`
		Type       string          `json:"type"`
		Object     string          `json:"object"`
		Recipients json.RawMessage `json:"recipients"`
		Title      string          `json:"title"`
		Body       string          `json:"body"`
		Data       json.RawMessage `json:"data"`
		Urgent     bool            `json:"urgent"`
		ExpiresIn  int64           `json:"expires_in"`
		Collapse   *string         `json:"collapse"`
	}
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&in); err != nil {
		return Event{}, err
	}
	e := Event{
		ID: in.ID, Type: in.Type, Object: in.Object, Title: in.Title, Body: in.Body, Data: in.Data, Urgent: in.Urgent,
		ExpiresIn: time.Duration(in.ExpiresIn) * time.Second,
	}
	if in.Collapse != nil {
		e.Collapse = *in.Collapse
	}
	switch r := string(in.Recipients); {
	case r == "" || r == `"followers"`:
		e.Followers = true
	default:
		var list []member.ID
		if err := json.Unmarshal(in.Recipients, &list); err != nil {
			return Event{}, fmt.Errorf("recipients: %w", err)
		}
		if len(list) == 0 || len(list) > MaxRecipients {
			return Event{}, fmt.Errorf("recipients: %d: want 1 to %d", len(list), MaxRecipients)
		}
		e.Recipients = list
	}
	switch {
	case e.Type == "" || len(e.Type) > MaxType:
		return Event{}, errors.New("type: is missing or too long")
	case in.ExpiresIn < 0 || e.ExpiresIn > MaxLife:
		return Event{}, errors.New("expires_in: is out of range")
	}
	return e, nil
}
