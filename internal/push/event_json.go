package push

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// A producer's JSON of an event is read strictly, and checked, in three places: in the payload of a task, in a task that a
// producer sends, and in POST /v1/events, with the actor in it and texts and recipients required. An event
// that was read breaks no bound, and is not checked again.

// forFollowers stands for the recipients of an event for the followers of its actor.
const forFollowers = "followers"

var quotedFollowers = json.RawMessage(`"` + forFollowers + `"`)

// madePrefixes begin the ids that activityd gives to events without one. A producer may not choose such an id: it would stand
// for an event that the producer does not know of.
var madePrefixes = []string{"task-", "stream-"}

// overridable are the platforms of which an event may have an object of its own.
var overridable = []Platform{"apns", "fcm", "webpush"}

var eventFields = []string{
	"id", "type", "object", "recipients", "title", "body", "data", "urgent", "expires_in", "collapse", "badge", "sound", "silent", "image",
	"title_loc_key", "title_loc_args", "body_loc_key", "body_loc_args", "texts", "apns", "fcm", "webpush",
}

// ageField is a field of activityd's own in the payload of a task, in milliseconds.
const ageField = "age_ms"

// ParseEvent reads the payload of a notify task whose key is the actor. Its errors wrap [strictjson.ErrMalformed] or are
// [strictjson.InvalidError]s: they are permanent.
func ParseEvent(actor member.ID, payload json.RawMessage) (Event, error) {
	value, err := strictjson.Parse(payload)
	if err != nil {
		return Event{}, err
	}
	r, e := &strictjson.Reader{Root: "event"}, Event{Actor: actor}
	if o, ok := r.Object("", value); ok {
		o.Only(append([]string{ageField}, eventFields...)...)
		e.read(reader{o})
		age, _ := o.Whole(ageField, 0, maxAge.Milliseconds())
		e.Age = time.Duration(age) * time.Millisecond
	}
	if err := r.Err(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// ReadEvent reads the event of a task that a producer sends. The event counts only if there are no faults.
func ReadEvent(r *strictjson.Reader, place string, actor member.ID, value json.RawMessage) Event {
	e := Event{Actor: actor}
	if o, ok := r.Object(place, value); ok {
		o.Only(eventFields...)
		e.read(reader{o})
		e.refuseMadeID(o)
	}
	return e
}

// ReadRequested reads an event of POST /v1/events. The event counts only if there are no faults.
func ReadRequested(r *strictjson.Reader, place string, value json.RawMessage) Event {
	var e Event
	if o, ok := r.Object(place, value); ok {
		o.Only(append([]string{"actor_id"}, eventFields...)...)
		e.Actor = o.MemberID("actor_id", true)
		o.Need("recipients", wantRecipients)
		if silent, _ := o.Get("silent"); string(silent) != "true" {
			o.Need("title", wantText(MaxTitle))
			o.Need("body", wantText(MaxBody))
		}
		e.read(reader{o})
		e.refuseMadeID(o)
	}
	return e
}

func (e *Event) refuseMadeID(o strictjson.Object) {
	for _, prefix := range madePrefixes {
		if strings.HasPrefix(e.ID, prefix) {
			o.Addf("id", "%q: ids that begin with %s are given by activityd itself", e.ID, strictjson.List(madePrefixes, "or"))
		}
	}
}

// read reads all fields but the actor and the age.
func (e *Event) read(o reader) {
	e.ID = o.name("id", MaxID)
	if kind, ok := o.Need("type", wantType); ok {
		e.Type = o.checked("type", kind, wantType, CheckType)
	}
	if object, given := o.Get("object"); given {
		e.Object = o.checked("object", object, wantObject, CheckObject)
	}
	e.readRecipients(o)
	e.Title, e.Body = o.text("title", MaxTitle), o.text("body", MaxBody)
	e.Data = o.object("data", MaxData)
	e.Urgent, _ = o.Bool("urgent")
	e.ExpiresIn = DefaultLife
	if seconds, ok := o.Whole("expires_in", 1, int64(MaxLife/time.Second)); ok {
		e.ExpiresIn = time.Duration(seconds) * time.Second
	}
	switch collapse, given := o.Get("collapse"); {
	case given && string(collapse) != `""`:
		e.Collapse = o.name("collapse", MaxCollapse)
	case !given && e.Followers:
		e.Collapse = e.Type + ":" + e.Actor.String()
	}
	e.readStyle(o)
	e.checkSize(o)
}

// readRecipients reads the recipients; a member who is named twice counts once.
func (e *Event) readRecipients(o reader) {
	const name = "recipients"
	value, given := o.Get(name)
	if e.Followers = !given || string(value) == string(quotedFollowers); e.Followers {
		return
	}
	if value[0] != '[' {
		o.Addf(name, "%s: want %s", strictjson.Clip(string(value)), wantRecipients)
		return
	}
	place := o.Reader.At(o.Place, name)
	items, _ := o.Reader.Array(place, value, name, 1, MaxRecipients)
	seen := make(map[member.ID]bool, len(items))
	for i, item := range items {
		if id := o.Reader.MemberID(strictjson.Item(place, i), item); id != 0 && !seen[id] {
			seen[id] = true
			e.Recipients = append(e.Recipients, id)
		}
	}
}

// reader reads the fields of an event, each within its bounds.
type reader struct{ strictjson.Object }

var (
	wantType       = fmt.Sprintf("1 to %d ASCII letters, digits, '_', '-' and '.'", MaxType)
	wantObject     = fmt.Sprintf("a kind and an id, as in photo:901: at most %d visible ASCII characters, the kind in lower case", MaxObject)
	wantRecipients = fmt.Sprintf("%q, or an array of 1 to %d member ids", forFollowers, MaxRecipients)
)

func wantText(most int) string { return fmt.Sprintf("a text of 1 to %d bytes as JSON", most) }

// text reads a text of 1 to most bytes as JSON; "": it is not given.
func (o reader) text(name string, most int) string {
	value, given := o.Get(name)
	if !given {
		return ""
	}
	return o.checked(name, value, wantText(most), func(s string) error {
		if n := lengthAsJSON(s); n == 0 || n > most {
			return fmt.Errorf("has %d bytes as JSON: want %s", n, wantText(most))
		}
		return nil
	})
}

// name reads 1 to most visible ASCII characters without quotes and backslashes; "": it is not given.
func (o reader) name(name string, most int) string {
	value, given := o.Get(name)
	if !given {
		return ""
	}
	want := fmt.Sprintf("1 to %d visible ASCII characters without quotes and backslashes", most)
	return o.checked(name, value, want, func(s string) error {
		if !matches(s, most, visibleSyntax) || strings.ContainsAny(s, `"\`) {
			return fmt.Errorf("%q: want %s", strictjson.Clip(s), want)
		}
		return nil
	})
}

// checked returns a string that passes a check, and else adds a fault.
func (o reader) checked(name string, value json.RawMessage, want string, check func(string) error) string {
	if value[0] != '"' {
		o.Addf(name, "want %s, got %s", want, strictjson.TypeName(value))
		return ""
	}
	s := unquoted(value)
	if err := check(s); err != nil {
		o.Addf(name, "%v", err)
	}
	return s
}

// unquoted returns a string from its valid JSON.
func unquoted(value json.RawMessage) (s string) {
	if err := json.Unmarshal(value, &s); err != nil {
		panic(fmt.Sprintf("push: %s: %v", value, err))
	}
	return s
}

// object reads an object of at most so many bytes as JSON that every database takes: compact, with no half of a surrogate pair,
// no number beyond float64, no name twice, and not too deep. Its '<', '>' and '&' are escaped, so that no encoder makes it
// longer.
func (o reader) object(name string, most int) json.RawMessage {
	value, given := o.Get(name)
	if !given {
		return nil
	}
	if value[0] != '{' || len(value) > 8*most { // a canonical form is then soon made
		o.Addf(name, "want an object of at most %d bytes, got %s of %d", most, strictjson.TypeName(value), len(value))
		return nil
	}
	before := len(o.Reader.Faults)
	raw, err := json.Marshal(canonical(o.Reader, o.Reader.At(o.Place, name), value, 1))
	if len(o.Reader.Faults) == before && (err != nil || len(raw) > most) {
		o.Addf(name, "has %d bytes as compact JSON: want an object of at most %d", len(raw), most)
	}
	return raw
}

func canonical(r *strictjson.Reader, place string, value json.RawMessage, depth int) any {
	switch kind := value[0]; {
	case kind == '"':
		return unquoted(value)
	case kind == 't' || kind == 'f' || kind == 'n':
		return value
	case kind != '{' && kind != '[':
		if _, err := strconv.ParseFloat(string(value), 64); err != nil {
			r.Addf(place, "%s: want a number of at most %g", strictjson.Clip(string(value)), math.MaxFloat64)
		}
		return value
	case depth > maxDepth:
		r.Addf(place, "lies too deep: want at most %d arrays and objects in one another", maxDepth)
		return nil
	case kind == '[':
		items, _ := r.Array(place, value, "values", 0, math.MaxInt)
		list := make([]any, len(items))
		for i, item := range items {
			list[i] = canonical(r, strictjson.Item(place, i), item, depth+1)
		}
		return list
	}
	o, _ := r.Object(place, value)
	fields := make(map[string]any)
	for name, field := range o.All() {
		fields[name] = canonical(r, r.At(place, name), field, depth+1)
	}
	return fields
}

// lengthAsJSON is the length of a text within the quotes.
func lengthAsJSON(s string) int {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("push: a string cannot be marshalled: %v", err)) // strings always can
	}
	return len(raw) - len(`""`)
}

var (
	visibleSyntax = regexp.MustCompile(`^[[:graph:]]+$`)
	typeSyntax    = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
	objectSyntax  = regexp.MustCompile(`^([a-z][a-z0-9_.-]*):([[:graph:]]+)$`)
)

func matches(s string, most int, syntax *regexp.Regexp) bool {
	return len(s) <= most && syntax.MatchString(s)
}

// CheckType returns an error, for people, unless the name can be a type of events.
func CheckType(name string) error {
	if !matches(name, MaxType, typeSyntax) {
		return fmt.Errorf("%q: want %s", strictjson.Clip(name), wantType)
	}
	return nil
}

// CheckObject returns an error, for people, unless the text names an object: a kind in lower case and an id, as in photo:901.
// The id of a photo or a user is a number without leading zeros: a photo must never be taken for an object that everybody may see,
// and a mute must name an object as events do.
func CheckObject(object string) error {
	parts := objectSyntax.FindStringSubmatch(object)
	if parts == nil || len(object) > MaxObject {
		return fmt.Errorf("%q: want %s", strictjson.Clip(object), wantObject)
	}
	if kind := parts[1]; kind == "photo" || kind == "user" {
		if _, err := member.Parse(parts[2]); err != nil { // photos have ids of the same form
			return fmt.Errorf("%q: want %s: and a decimal number from 1 to 18446744073709551615", strictjson.Clip(object), kind)
		}
	}
	return nil
}

// payloadJSON is an event as the payload of a task.
type payloadJSON struct {
	*plainEvent

	Recipients any             `json:"recipients"`
	ExpiresIn  int64           `json:"expires_in"`
	Collapse   string          `json:"collapse"`
	Age        int64           `json:"age_ms,omitempty"`
	APNs       json.RawMessage `json:"apns,omitempty"`
	FCM        json.RawMessage `json:"fcm,omitempty"`
	WebPush    json.RawMessage `json:"webpush,omitempty"`
}

type plainEvent Event // without its methods

// MarshalJSON returns the event as the payload of a task, with nothing left to a default; the actor is the task's key.
func (e Event) MarshalJSON() ([]byte, error) {
	p := payloadJSON{
		plainEvent: (*plainEvent)(&e), Recipients: e.Recipients, ExpiresIn: int64(cmp.Or(e.ExpiresIn, DefaultLife) / time.Second),
		Collapse: e.Collapse, Age: e.Age.Milliseconds(), APNs: e.Override["apns"], FCM: e.Override["fcm"], WebPush: e.Override["webpush"],
	}
	if e.Followers {
		p.Recipients = forFollowers
	}
	return json.Marshal(p)
}

// UnmarshalJSON reads the JSON that [Event.MarshalJSON] wrote, and checks nothing again. MySQL stores JSON with blanks.
func (e *Event) UnmarshalJSON(text []byte) error {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		return err
	}
	*e = Event{Actor: e.Actor}
	var recipients json.RawMessage
	p := payloadJSON{plainEvent: (*plainEvent)(e), Recipients: &recipients}
	if err := json.Unmarshal(compact.Bytes(), &p); err != nil {
		return err
	}
	e.ExpiresIn, e.Age, e.Collapse = time.Duration(p.ExpiresIn)*time.Second, time.Duration(p.Age)*time.Millisecond, p.Collapse
	for i, own := range []json.RawMessage{p.APNs, p.FCM, p.WebPush} {
		if own != nil {
			e.override(overridable[i], own)
		}
	}
	if e.Followers = string(recipients) == string(quotedFollowers); e.Followers {
		return nil
	}
	return json.Unmarshal(recipients, &e.Recipients)
}

// NewNotify returns the task that targets an event.
func NewNotify(e Event) (queue.New, error) {
	payload, err := json.Marshal(e)
	if err != nil {
		return queue.New{}, fmt.Errorf("%w: %s for %v: %w", queue.ErrInvalid, Notify, e.Actor, err)
	}
	n := queue.New{Kind: Notify, Key: uint64(e.Actor), Payload: payload, Queue: e.queueOf(QueuePush)}
	if e.Urgent {
		n.Priority = queue.Urgent
	}
	return n, nil
}
