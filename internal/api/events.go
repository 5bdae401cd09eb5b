package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// enqueueEvents takes all events of a request or none, and answers after the commit with
// the id of each.
func (s *Server) enqueueEvents(c *call) (any, error) {
	if s.cfg.Push == nil {
		return nil, errPushOff
	}
	var given []string
	_, err := s.enqueue(c, func(body []byte, key string) ([]queue.New, error) {
		events, err := parseEvents(body, s.cfg.MaxBatch)
		if err != nil {
			return nil, refused(err, invalidEvent)
		}
		batch := make([]queue.New, len(events))
		for i, e := range events {
			if e.ID == "" {
				if e.ID, err = eventID(e, key, i); err != nil {
					return nil, err
				}
			}
			given = append(given, e.ID)
			if batch[i], err = push.NewNotify(e); err != nil {
				return nil, err
			}
		}
		return batch, nil
	})
	return list("events", given, func(id string) idJSON { return idJSON{id} }), err
}

// parseEvents reads the body of a request: {"events":[…]} with 1 to most of them.
func parseEvents(body []byte, most int) ([]push.Event, error) {
	root, err := strictjson.Parse(body)
	if err != nil {
		return nil, err
	}
	r := &strictjson.Reader{Root: "body"}
	var events []push.Event
	if o, ok := r.Object("", root); ok {
		o.Only("events")
		if list, ok := o.Need("events", fmt.Sprintf("an array of 1 to %d events", most)); ok {
			items, _ := r.Array("events", list, "events", 1, most)
			for i, item := range items {
				events = append(events, push.ReadRequested(r, strictjson.Item("events", i), item))
			}
		}
	}
	return events, r.Err()
}

// eventID returns an id for an event without id: under an Idempotency-Key the same
// whenever the request is repeated, so that a repetition is found out.
func eventID(e push.Event, key string, place int) (string, error) {
	if key == "" {
		return rand.Text(), nil
	}
	payload, err := json.Marshal(e)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	for _, part := range [][]byte{[]byte(key), []byte(strconv.Itoa(place)), []byte(e.Actor.String()), payload} {
		fmt.Fprintf(hash, "%d:%s", len(part), part)
	}
	return base32.StdEncoding.EncodeToString(hash.Sum(nil))[:len(rand.Text())], nil
}
