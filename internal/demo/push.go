package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

// Push is what brings a visitor's uploads to the phone and the browser of the viewer.
type Push struct {
	Store     *push.MySQL
	Receivers *Receivers // what the workers send to
	Hold      *Hold      // of the workers' queue
}

// Hold keeps the workers of a queue from delivering while it is held. Its zero value is not.
type Hold struct {
	mu   sync.RWMutex // guards held, and is held for reading by a claim of deliveries
	held bool
}

// Set holds deliveries, or lets them go. No event or delivery that is enqueued after it has returned
// is claimed until they are let go.
func (h *Hold) Set(held bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = held
}

// Held reports whether deliveries are held.
func (h *Hold) Held() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.held
}

// Claim returns what claim does, or nothing if these are events or deliveries and they are held.
func (h *Hold) Claim(name string, claim func() ([]queue.Task, error)) ([]queue.Task, error) {
	if name != push.QueuePush {
		return claim()
	}
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.held {
		return nil, nil
	}
	return claim()
}

// notifiedShown is how many uploads that a viewer was to hear of the page shows.
const notifiedShown = 5

// notified is an upload that the devices of a viewer were to hear of.
type notified struct {
	upload

	viewer member.ID
	unix   uint64
	number uint64 // of its event; 0: that is not stored yet
}

// eventType is the type of the demo's events of push.
const eventType = "upload"

// mutedMember begins the object of a mute of all that a member does.
const mutedMember = "user:"

func eventID(photo uint64) string { return fmt.Sprintf("photo-%d", photo) }

// notifyArgs is the event that an upload is committed with, for the owner's followers. They
// see the owner's name as its title, as an event without one has.
func notifyArgs(photo uint64, title string) string {
	text, err := json.Marshal(map[string]string{
		"id": eventID(photo), "type": eventType, "object": fmt.Sprintf("photo:%d", photo), "body": "uploaded “" + title + "”",
	})
	if err != nil {
		panic(fmt.Sprintf("demo: encoding strings: %v", err)) // cannot fail
	}
	return string(text)
}

// receivers are the devices of the viewers.
type receivers struct {
	mu    sync.Mutex // is held while they are registered
	known map[member.ID]pair
}

// pair is the phone and the browser of a member.
type pair struct{ phone, browser receiver }

// pairOf returns the devices of a viewer, and registers new ones if there are none.
func (d *Demo) pairOf(ctx context.Context, viewer member.ID) (p pair, err error) {
	d.receivers.mu.Lock()
	defer d.receivers.mu.Unlock()
	if p, ok := d.receivers.known[viewer]; ok {
		return p, nil
	}
	if len(d.receivers.known) >= maxViewers {
		for id, old := range d.receivers.known { // any
			if err := d.dropPair(ctx, id, old); err != nil {
				return p, err
			}
			break
		}
	}
	of := d.cfg.Push.Receivers
	if p.phone, err = of.newPhone(ctx, d.cfg.Push.Store, viewer); err != nil {
		return p, err
	}
	if p.browser, err = of.newBrowser(ctx, d.cfg.Push.Store, viewer); err != nil {
		return p, err
	}
	if d.receivers.known == nil {
		d.receivers.known = make(map[member.ID]pair)
	}
	d.receivers.known[viewer] = p
	return p, nil
}

func (d *Demo) dropPair(ctx context.Context, id member.ID, p pair) error {
	for _, one := range []receiver{p.phone, p.browser} {
		if _, err := d.cfg.Push.Store.Remove(ctx, id, one.device); err != nil {
			return err
		}
		d.cfg.Push.Receivers.forget(one)
	}
	delete(d.receivers.known, id)
	return nil
}

// pushView is the panel of push, ready to print.
type pushView struct {
	On      bool   // else there is no database that push could work with
	Problem string // instead of all below
	Screens []screenView
	Arrived string // what the browser shows last
	Held    bool
	Quiet   bool
	InForce []string // sentences about what keeps notifications back
	Buttons []buttonView
	Events  []notifiedView
}

// buttonView is a button of [Demo.doPush].
type buttonView struct {
	ID, Do  string
	Contact member.ID // 0: none
	Text    string
}

type screenView struct {
	ID, Name, By string
	Notes        []noteView
}

type noteView struct {
	Key, Title, Body, Ago string
}

type notifiedView struct {
	Photo          uint64
	Text, Ago      string
	Private        bool
	Phone, Browser fateView
}

// fateView is what became of an event for a device.
type fateView struct {
	Text    string
	Mark    string // for the style sheet: yes, no or wait
	Receipt string // the words of push_receipts
}

// pushView makes the panel of push. shown is the contact in the widget; nil: there is none.
func (d *Demo) pushView(ctx context.Context, viewer member.ID, shown *memberView) pushView {
	if d.cfg.Push == nil {
		return pushView{}
	}
	view := pushView{On: true}
	if err := d.fillPush(ctx, viewer, shown, &view); err != nil {
		if !errors.Is(err, mysql.ErrUnavailable) && ctx.Err() == nil {
			d.cfg.Log.WarnContext(ctx, "demo: push could not be shown", slog.Any("error", err))
		}
		return pushView{On: true, Problem: "What is known of push could not be read. The page tries again."}
	}
	return view
}

func (d *Demo) fillPush(ctx context.Context, viewer member.ID, shown *memberView, view *pushView) error {
	p, err := d.pairOf(ctx, viewer)
	if err != nil {
		return err
	}
	if err := d.fillSwitches(ctx, viewer, shown, view); err != nil {
		return err
	}
	for _, n := range d.memory.notifiedOf(viewer) {
		one, err := d.notifiedView(ctx, n, p, view)
		if err != nil {
			return err
		}
		view.Events = append(view.Events, one)
	}
	// After the receipts: what they say has arrived is to be seen.
	view.Screens = []screenView{
		d.screenView("phone", "Phone", "APNs", p.phone),
		d.screenView("browser", "Browser", "Web Push", p.browser),
	}
	for _, screen := range view.Screens {
		if len(screen.Notes) > 0 {
			view.Arrived = screen.Notes[0].Title + " " + screen.Notes[0].Body
		}
	}
	return nil
}

// fillSwitches makes the buttons, and what is in force because of them.
func (d *Demo) fillSwitches(ctx context.Context, viewer member.ID, shown *memberView, view *pushView) error {
	settings, err := d.cfg.Push.Store.Settings(ctx, viewer)
	if err != nil {
		return err
	}
	mutes, err := d.cfg.Push.Store.Mutes(ctx, viewer)
	if err != nil {
		return err
	}
	name := d.memory.name(viewer)
	add := func(in bool, sentence string, off, on buttonView) {
		button := on
		if in {
			view.InForce, button = append(view.InForce, sentence), off
			button.ID = on.ID
		}
		view.Buttons = append(view.Buttons, button)
	}
	view.Held = d.cfg.Push.Hold.Held()
	add(view.Held, "Deliveries are held.",
		buttonView{Do: "release", Text: "Let the deliveries go"}, buttonView{ID: "do-hold", Do: "hold", Text: "Hold the deliveries"})
	add(!settings.Wants(eventType), name+" opted out of uploads.",
		buttonView{Do: "opt-in", Text: "Opt in to uploads"}, buttonView{ID: "do-opt-out", Do: "opt-out", Text: "Opt out of uploads"})
	until := settings.QuietUntil(time.Now())
	view.Quiet = !until.IsZero()
	add(view.Quiet, "Quiet hours until "+until.Format("15:04")+" UTC.",
		buttonView{Do: "loud", Text: "End the quiet hours"}, buttonView{ID: "do-quiet", Do: "quiet", Text: "Begin quiet hours"})
	var muted []member.ID
	for _, mute := range mutes {
		if id, err := member.Parse(strings.TrimPrefix(mute.Object, mutedMember)); err == nil { // else it is a photo, muted by the API
			muted = append(muted, id)
		}
	}
	if shown != nil && !slices.Contains(muted, shown.ID) {
		view.Buttons = append(view.Buttons, buttonView{ID: "do-mute", Do: "mute", Contact: shown.ID, Text: "Mute " + shown.Name})
	}
	for _, id := range muted {
		add(true, d.memory.name(id)+" is muted.",
			buttonView{Do: "unmute", Contact: id, Text: "Unmute " + d.memory.name(id)}, buttonView{ID: "do-unmute-" + id.String()})
	}
	return nil
}

func (d *Demo) screenView(id, name, by string, of receiver) screenView {
	view := screenView{ID: id, Name: name, By: by}
	for _, n := range d.cfg.Push.Receivers.notes(of) {
		view.Notes = append(view.Notes, noteView{Key: n.collapse, Title: n.Title, Body: n.Body, Ago: ago(n.unix)})
	}
	return view
}

// notifiedView reads what became of an upload's event.
func (d *Demo) notifiedView(ctx context.Context, n notified, p pair, in *pushView) (notifiedView, error) {
	view := notifiedView{
		Photo: n.id, Text: fmt.Sprintf("%s: “%s”", d.memory.name(n.owner), n.title), Ago: ago(n.unix), Private: n.visibility == contacts.Private,
	}
	if n.number == 0 {
		e, err := d.cfg.Push.Store.EventByID(ctx, eventID(n.id))
		if err != nil {
			return view, err
		}
		if e != nil {
			n.number = e.Number
			d.memory.setNumber(n.id, e.Number)
		}
	}
	var fates []push.Fate
	if n.number != 0 {
		for page, err := range d.cfg.Push.Store.Fates(ctx, n.number, n.viewer) {
			if err != nil {
				return view, err
			}
			fates = append(fates, page...)
		}
	}
	view.Phone, view.Browser = in.fate(fates, p.phone), in.fate(fates, p.browser)
	return view, nil
}

// skips are the reasons why nothing is sent, for people.
var skips = map[push.Skip]string{
	push.NoDevice:   "there was no device",
	push.OptedOut:   "opted out of uploads",
	push.Muted:      "the contact is muted",
	push.Blocked:    "one blocks the other",
	push.NotVisible: "may not see the photo",
	push.Expired:    "it would be too late",
	push.Off:        "this kind of device is off",
}

const heldText = "waits: deliveries are held"

// fate says what became of an event for a device.
func (in *pushView) fate(fates []push.Fate, of receiver) fateView {
	at := slices.IndexFunc(fates, func(f push.Fate) bool { return f.Device == of.device || f.Device == 0 })
	switch {
	case at < 0 && len(fates) > 0:
		return fateView{Text: "went to an earlier device", Mark: "no"}
	case at < 0 && in.Held:
		return fateView{Text: heldText, Mark: "wait"}
	case at < 0:
		return fateView{Text: "the followers are being looked up", Mark: "wait"}
	}
	r := fates[at].Receipt
	view := fateView{Receipt: strings.TrimSpace(string(r.State) + " " + r.Reason)}
	switch r.State {
	case push.StateAccepted:
		view.Mark, view.Text = "yes", "arrived"
		if r.Reason == string(push.Doubled) {
			view.Text = "counted by a later one"
		}
	case push.StateSkipped:
		view.Mark, view.Text = "no", "not sent: "+skips[push.Skip(r.Reason)]
	case push.StateFailed:
		view.Mark, view.Text = "no", "refused by the push service"
	default:
		view.Mark, view.Text = "wait", "waits for others of its burst"
		switch {
		case in.Held:
			view.Text = heldText
		case in.Quiet:
			view.Text = "waits for the end of the quiet hours"
		}
	}
	return view
}

// doPush changes what the viewer wants to be notified of, or holds deliveries, as the form says.
func (d *Demo) doPush(r *http.Request, viewer member.ID) (string, error) {
	if d.cfg.Push == nil {
		return "", refuse(http.StatusConflict, "There is no push without the real servers.")
	}
	ctx, name := r.Context(), d.memory.name(viewer)
	switch do := r.PostForm.Get("do"); do {
	case "mute", "unmute":
		contact, err := member.Parse(r.PostForm.Get("contact"))
		if err != nil {
			return "", refuse(http.StatusBadRequest, "contact: %v", err)
		}
		return d.mute(ctx, viewer, contact, do == "mute")
	case "opt-out":
		return name + " opted out of uploads.", d.changeSettings(ctx, viewer, func(s *push.Settings) {
			s.Types = maps.Clone(s.Types)
			if s.Types == nil {
				s.Types = make(map[string]bool)
			}
			s.Types[eventType] = false
		})
	case "opt-in":
		return name + " wants to hear of uploads again.", d.changeSettings(ctx, viewer, func(s *push.Settings) { delete(s.Types, eventType) })
	case "quiet":
		now := time.Now().UTC()
		minute := now.Hour()*60 + now.Minute()
		return name + " has quiet hours from now on. What comes is sent when they are over.", d.changeSettings(ctx, viewer, func(s *push.Settings) {
			s.Quiet = push.QuietHours{From: minute, To: (minute + 60) % (24 * 60), Zone: "UTC"}
		})
	case "loud":
		return "The quiet hours are over. What waits goes a minute after the next upload of the same contact, or when they would have ended.",
			d.changeSettings(ctx, viewer, func(s *push.Settings) { s.Quiet = push.QuietHours{} })
	case "hold":
		d.cfg.Push.Hold.Set(true)
		return "Deliveries are held: between upload and delivery there is time now to change your mind.", nil
	case "release":
		d.cfg.Push.Hold.Set(false)
		return "Deliveries go on. Each is looked at once more before it is sent.", nil
	default:
		return "", refuse(http.StatusBadRequest, "do: want mute, unmute, opt-out, opt-in, quiet, loud, hold or release")
	}
}

func (d *Demo) mute(ctx context.Context, viewer, contact member.ID, on bool) (string, error) {
	const long = time.Hour
	object, name := mutedMember+contact.String(), d.memory.name(contact)
	if !on {
		_, err := d.cfg.Push.Store.Unmute(ctx, viewer, object)
		return name + " is not muted any more.", noMember(err)
	}
	err := d.cfg.Push.Store.Mute(ctx, viewer, object, time.Now().Add(long))
	return name + " is muted for an hour.", noMember(err)
}

// changeSettings changes what a viewer wants. Visitors who do so at once may undo each other.
func (d *Demo) changeSettings(ctx context.Context, viewer member.ID, change func(*push.Settings)) error {
	s, err := d.cfg.Push.Store.Settings(ctx, viewer)
	if err != nil {
		return noMember(err)
	}
	change(&s)
	return noMember(d.cfg.Push.Store.SetSettings(ctx, viewer, s))
}

// noMember makes a refusal of the error about a viewer that does not exist.
func noMember(err error) error {
	if errors.Is(err, contacts.ErrNoMember) {
		return refuse(http.StatusNotFound, "There is no such member.")
	}
	return err
}
