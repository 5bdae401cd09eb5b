package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
)

// Bounds of a dry run: each event is looked at for a page of recipients.
const (
	maxDryRun = 10   // events
	maxListed = 1000 // devices of an event that are listed; all are counted
)

type plansJSON struct {
	Events []planJSON `json:"events"`
}

type planJSON struct {
	ID         string             `json:"id"`
	Known      bool               `json:"known"`
	Recipients plannedMembersJSON `json:"recipients"`
	Counts     []planCountJSON    `json:"counts"`
	Devices    []plannedJSON      `json:"devices"`
	More       bool               `json:"more_devices"`
	Payloads   []payloadJSON      `json:"payloads"`
}

type plannedMembersJSON struct {
	LookedAt   int  `json:"looked_at"`
	More       bool `json:"more"`
	Deviceless int  `json:"followers_without_device"`
}

// What would become of an event for a device.
const (
	wouldSend = "send"
	wouldWait = "wait"
	wouldSkip = "skip"
)

type planCountJSON struct {
	Platform push.Platform `json:"platform,omitempty"`
	Decision string        `json:"decision"`
	Reason   push.Skip     `json:"reason,omitempty"`
	Count    int           `json:"count"`
}

type plannedJSON struct {
	Member   string        `json:"user_id"`
	Device   string        `json:"device_id,omitempty"`
	Platform push.Platform `json:"platform,omitempty"`
	Language string        `json:"text,omitempty"`
	Decision string        `json:"decision"`
	Reason   push.Skip     `json:"reason,omitempty"`
	Until    int64         `json:"until,omitempty"`
}

type payloadJSON struct {
	Platform push.Platform   `json:"platform"`
	Language string          `json:"text,omitempty"`
	Payload  json.RawMessage `json:"payload"`
}

// readDryRun reports whether a request is a dry run.
func readDryRun(c echo.Context) (bool, error) {
	var f strictjson.Faults
	values := parseQuery(c.QueryString(), &f, "dry_run")
	value, given := values["dry_run"]
	if given && value != "0" && value != "1" {
		f.Addf("dry_run", "%q: want 0 or 1", strictjson.Clip(value))
	}
	if len(f) > 0 {
		return false, invalidParameter.fields(f)
	}
	return value == "1", nil
}

// planEvents answers who would be notified of the events of a request, and stores nothing.
func (s *Server) planEvents(c echo.Context) error {
	if s.cfg.Plan == nil {
		return errPushOff
	}
	body, err := s.readJSON(c)
	if err != nil {
		return err
	}
	events, err := parseEvents(body, maxDryRun)
	if err != nil {
		return refused(err, invalidEvent)
	}
	out := plansJSON{Events: make([]planJSON, len(events))}
	for i, e := range events {
		if e.ID == "" {
			if e.ID, err = eventID(e, "", i); err != nil {
				return err
			}
		}
		if out.Events[i], err = s.planEvent(c.Request().Context(), e); err != nil {
			return fmt.Errorf("planning an event of member %s: %w", e.Actor, err)
		}
	}
	return writeJSON(c, http.StatusOK, typeJSON, out)
}

func (s *Server) planEvent(ctx context.Context, e push.Event) (planJSON, error) {
	p, err := s.cfg.Plan(ctx, e)
	if err != nil {
		return planJSON{}, err
	}
	out := planJSON{
		ID: e.ID, Known: p.Known, Recipients: plannedMembersJSON{p.Recipients, p.More, p.Deviceless},
		Counts: []planCountJSON{}, Devices: []plannedJSON{}, More: len(p.Devices) > maxListed, Payloads: []payloadJSON{},
	}
	counts := make(map[planCountJSON]int)
	for _, d := range p.Devices {
		one := newPlanned(d)
		if len(out.Devices) < maxListed {
			out.Devices = append(out.Devices, one)
		}
		counts[planCountJSON{Platform: one.Platform, Decision: one.Decision, Reason: one.Reason}]++
		if one.Decision != wouldSkip {
			if err := s.addPayload(&out, p.Event, d); err != nil {
				return out, err
			}
		}
	}
	for like, n := range counts {
		like.Count = n
		out.Counts = append(out.Counts, like)
	}
	slices.SortFunc(out.Counts, func(a, b planCountJSON) int {
		return strings.Compare(a.Decision+" "+string(a.Reason)+" "+string(a.Platform), b.Decision+" "+string(b.Reason)+" "+string(b.Platform))
	})
	return out, nil
}

func newPlanned(d push.Planned) plannedJSON {
	one := plannedJSON{Member: d.Device.Member.String(), Platform: d.Device.Platform, Language: d.Language, Decision: wouldSend, Reason: d.Skip}
	if d.Device.ID != 0 {
		one.Device = strconv.FormatUint(d.Device.ID, 10)
	}
	switch {
	case d.Skip != "":
		one.Decision = wouldSkip
	case !d.NotBefore.IsZero():
		one.Decision, one.Until = wouldWait, d.NotBefore.Unix()
	}
	return one
}

// addPayload adds what the devices of a platform and a language are sent, once.
func (s *Server) addPayload(p *planJSON, e *push.StoredEvent, d push.Planned) error {
	kind := s.platform(d.Device.Platform)
	if kind == nil || kind.Payload == nil || slices.ContainsFunc(p.Payloads, func(have payloadJSON) bool { return have.Platform == d.Device.Platform && have.Language == d.Language }) {
		return nil
	}
	d.Device.Address = push.Address{}
	m := e.Message(d.Device, d.Actor)
	text, err := kind.Payload(&m)
	if err != nil {
		return err
	}
	p.Payloads = append(p.Payloads, payloadJSON{d.Device.Platform, d.Language, text})
	return nil
}
