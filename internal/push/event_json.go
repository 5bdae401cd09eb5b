package push

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/queue"
)

// The JSON of an event is read in three places: as the payload of a task, as the event of
// a task that a producer sends, and as one of POST /v1/events, which has the actor in it
// and wants said what the others may leave out.

// forFollowers stands for the recipients of an event for the followers of its actor.
const forFollowers = "followers"

// maxDataDepth is how deep arrays and objects may lie in one another in an event's data.
// MariaDB takes 32 levels in all.
const maxDataDepth = 8

// madePrefixes begin the ids that activityd gives to events without one. A producer may not
// choose such an id: it would stand for an event that it does not know of.
var madePrefixes = []string{"task-", "stream-"}

// ParseEvent reads the payload of a notify task whose key is the actor. Its errors wrap
// [strictjson.ErrMalformed] or are [strictjson.InvalidError]s: they are permanent.
func ParseEvent(actor member.ID, payload json.RawMessage) (Event, error) {
	value, err := strictjson.Parse(payload)
	if err != nil {
		return Event{}, err
	}
	r := &strictjson.Reader{Root: "event"}
	o, ok := r.Object("", value)
	if !ok {
		return Event{}, r.Err()
	}
	o.Only(append([]string{ageField}, eventFields...)...)
	e := Event{Actor: actor}
	e.read(o)
	if ms, ok := o.Whole(ageField, 0, maxAge.Milliseconds()); ok {
		e.Age = time.Duration(ms) * time.Millisecond
	}
	if err := r.Err(); err != nil {
		return Event{}, err
	}
	return e, nil
}

// ReadEvent reads the event of a task that a producer sends. What it returns counts only
// if there are no faults.
func ReadEvent(r *strictjson.Reader, place string, actor member.ID, value json.RawMessage) Event {
	e := Event{Actor: actor}
	if o, ok := r.Object(place, value); ok {
		o.Only(eventFields...)
		e.read(o)
		e.refuseMadeID(o)
	}
	return e
}

// ReadRequested reads an event of POST /v1/events. What it returns counts only if there are
// no faults.
func ReadRequested(r *strictjson.Reader, place string, value json.RawMessage) Event {
	var e Event
	if o, ok := r.Object(place, value); ok {
		o.Only(append([]string{"actor_id"}, eventFields...)...)
		e.Actor = o.MemberID("actor_id", true)
		o.Need("recipients", wantRecipients)
		if silent, _ := o.Get("silent"); string(silent) != "true" {
			o.Need("title", wantTitle)
			o.Need("body", wantBody)
		}
		e.read(o)
		e.refuseMadeID(o)
	}
	return e
}

var eventFields = slices.Concat(
	[]string{"id", "type", "object", "recipients", "title", "body", "data", "urgent", "expires_in", "collapse"}, styleFields, overridable,
)

// ageField is the one field, of milliseconds, that the payload of a task has besides: it is
// activityd's own.
const ageField = "age_ms"

// What the fields of an event are, for people.
var (
	wantID         = fmt.Sprintf("1 to %d visible ASCII characters without quotes and backslashes", MaxID)
	wantType       = fmt.Sprintf("1 to %d ASCII letters, digits, '_', '-' and '.'", MaxType)
	wantObject     = fmt.Sprintf("a kind and an id, as in photo:901: at most %d visible ASCII characters, the kind in lower case", MaxObject)
	wantRecipients = fmt.Sprintf("%q, or an array of 1 to %d member ids", forFollowers, MaxRecipients)
	wantTitle      = fmt.Sprintf("a text of 1 to %d bytes as JSON", MaxTitle)
	wantBody       = fmt.Sprintf("a text of 1 to %d bytes as JSON", MaxBody)
	wantData       = fmt.Sprintf("an object of at most %d bytes", MaxData)
	wantCollapse   = fmt.Sprintf("at most %d visible ASCII characters", MaxCollapse)
)

// read reads all fields but those of the actor.
func (e *Event) read(o strictjson.Object) {
	e.ID = nonEmpty(o, "id", wantID)
	o.Need("type", wantType)
	e.Type = nonEmpty(o, "type", wantType)
	e.Object = nonEmpty(o, "object", wantObject)
	e.readRecipients(o)
	e.Title = nonEmpty(o, "title", wantTitle)
	e.Body = nonEmpty(o, "body", wantBody)
	e.Data, _ = o.Get("data")
	e.Urgent, _ = o.Bool("urgent")
	e.ExpiresIn = DefaultLife
	if seconds, ok := o.Whole("expires_in", 1, int64(MaxLife/time.Second)); ok {
		e.ExpiresIn = time.Duration(seconds) * time.Second
	}
	e.Collapse, _ = o.String("collapse", wantCollapse)
	e.readStyle(o)
	e.check(o)
	if _, given := o.Get("collapse"); !given && e.Followers {
		e.Collapse = e.Type + ":" + e.Actor.String()
	}
}

// nonEmpty reads a text that must not be empty where it is given.
func nonEmpty(o strictjson.Object, name, want string) string {
	s, given := o.String(name, want)
	if given && s == "" {
		o.Addf(name, "is empty: want %s", want)
	}
	return s
}

// readRecipients reads the recipients; one that is named twice is one.
func (e *Event) readRecipients(o strictjson.Object) {
	const name = "recipients"
	value, given := o.Get(name)
	switch {
	case !given:
		e.Followers = true
	case value[0] == '"':
		said, _ := o.String(name, wantRecipients)
		e.Followers = said == forFollowers
		if !e.Followers {
			o.Addf(name, "%q: want %s", strictjson.Clip(said), wantRecipients)
		}
	case value[0] != '[':
		o.Addf(name, "want %s, got %s", wantRecipients, strictjson.TypeName(value))
	default:
		place := o.Reader.At(o.Place, name)
		items, _ := o.Reader.Array(place, value, "recipients", 1, MaxRecipients)
		seen := make(map[member.ID]bool, len(items))
		for i, item := range items {
			id := o.Reader.MemberID(strictjson.Item(place, i), item)
			if id != 0 && !seen[id] {
				seen[id] = true
				e.Recipients = append(e.Recipients, id)
			}
		}
	}
}

func (e *Event) refuseMadeID(o strictjson.Object) {
	for _, prefix := range madePrefixes {
		if strings.HasPrefix(e.ID, prefix) {
			o.Addf("id", "%q: ids that begin with %s are given by activityd itself", e.ID, strictjson.List(madePrefixes, "or"))
		}
	}
}

// check adds a fault for each field that breaks a bound, unless it has one already, and
// makes the data canonical.
func (e *Event) check(o strictjson.Object) {
	wrong := func(name, format string, args ...any) {
		at := o.Reader.At(o.Place, name)
		if !slices.ContainsFunc(o.Reader.Faults, func(f strictjson.Fault) bool { return strings.HasPrefix(f.Field, at) }) {
			o.Addf(name, format, args...)
		}
	}
	if e.ID != "" && (!matches(e.ID, MaxID, visibleSyntax) || strings.ContainsAny(e.ID, `"\`)) {
		wrong("id", "%q: want %s", strictjson.Clip(e.ID), wantID)
	}
	if err := CheckType(e.Type); err != nil {
		wrong("type", "%v", err)
	}
	if e.Object != "" {
		if err := CheckObject(e.Object); err != nil {
			wrong("object", "%v", err)
		}
	}
	switch n := len(e.Recipients); {
	case e.Followers && n > 0:
		wrong("recipients", "are both %q and a list", forFollowers)
	case !e.Followers && (n == 0 || n > MaxRecipients):
		wrong("recipients", "holds %d: want %s", n, wantRecipients)
	case slices.Contains(e.Recipients, 0):
		wrong("recipients", "holds the member 0: want %s", wantRecipients)
	}
	if n := lengthAsJSON(e.Title); n > MaxTitle {
		wrong("title", "has %d bytes as JSON: want %s", n, wantTitle)
	}
	if n := lengthAsJSON(e.Body); n > MaxBody {
		wrong("body", "has %d bytes as JSON: want %s", n, wantBody)
	}
	e.checkTimes(wrong)
	if e.Collapse != "" && !matches(e.Collapse, MaxCollapse, visibleSyntax) {
		wrong("collapse", "%q: want %s", strictjson.Clip(e.Collapse), wantCollapse)
	}
	e.checkData(o)
	e.checkStyle(o, wrong)
	e.checkSize(o)
}

func (e *Event) checkTimes(wrong func(name, format string, args ...any)) {
	if e.ExpiresIn != 0 && (e.ExpiresIn < time.Second || e.ExpiresIn > MaxLife) {
		wrong("expires_in", "is %v: want %v to %v", e.ExpiresIn, time.Second, MaxLife)
	}
	if e.Age < 0 || e.Age > maxAge {
		wrong(ageField, "is %v: want 0s to %v", e.Age, maxAge)
	}
}

func (e *Event) checkData(o strictjson.Object) {
	if e.Data == nil {
		return
	}
	if n := len(e.Data); n > 8*MaxData { // what follows is then soon done
		o.Addf("data", "has %d bytes: want %s", n, wantData)
		return
	}
	value, err := strictjson.Parse(e.Data)
	switch {
	case err != nil:
		o.Addf("data", "%v", err)
		return
	case value[0] != '{':
		o.Addf("data", "want %s, got %s", wantData, strictjson.TypeName(value))
		return
	}
	e.Data = canonical(o.Reader, o.Reader.At(o.Place, "data"), value, 1)
	if n := len(e.Data); n > MaxData {
		o.Addf("data", "has %d bytes as compact JSON: want %s", n, wantData)
	}
}

// canonical returns a JSON value as every database takes it: compact, with no half of a
// surrogate pair, no number that is no float64, no name twice, and not too deep.
func canonical(r *strictjson.Reader, place string, value json.RawMessage, depth int) json.RawMessage {
	var out json.RawMessage
	switch value[0] {
	case '{', '[':
		if depth > maxDataDepth {
			r.Addf(place, "lies too deep: want at most %d arrays and objects in one another", maxDataDepth)
			return nil
		}
	case '"':
		var s string
		if err := json.Unmarshal(value, &s); err != nil { // it was valid
			r.Addf(place, "%v", err)
		}
		return encoded(s)
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		if _, err := strconv.ParseFloat(string(value), 64); err != nil {
			r.Addf(place, "%s: want a number of at most %g", strictjson.Clip(string(value)), math.MaxFloat64)
		}
		return value
	default:
		return value
	}
	if value[0] == '[' {
		items, _ := r.Array(place, value, "values", 0, math.MaxInt)
		out = append(out, '[')
		for i, item := range items {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, canonical(r, strictjson.Item(place, i), item, depth+1)...)
		}
		return append(out, ']')
	}
	o, _ := r.Object(place, value)
	out = append(out, '{')
	for name, field := range o.All() {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(out, encoded(name)...), ':')
		out = append(out, canonical(r, r.At(place, name), field, depth+1)...)
	}
	return append(out, '}')
}

// encoded returns a text as JSON. Its '<', '>' and '&' are escaped, so that no encoder
// makes it longer.
func encoded(s string) json.RawMessage {
	raw, err := json.Marshal(s)
	if err != nil {
		panic(fmt.Sprintf("push: a string cannot be marshalled: %v", err)) // strings always can
	}
	return raw
}

// lengthAsJSON is the length of a text within the quotes.
func lengthAsJSON(s string) int { return len(encoded(s)) - len(`""`) }

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

// CheckObject returns an error, for people, unless the text names an object: a kind in
// lower case and an id, as in photo:901. That of a photo or a user is a number without
// leading zeros: what is about a photo must never be taken for something that everybody
// may see, and a mute must name what the event names.
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
	ID         string          `json:"id,omitempty"`
	Type       string          `json:"type"`
	Object     string          `json:"object,omitempty"`
	Recipients any             `json:"recipients"`
	Title      string          `json:"title,omitempty"`
	Body       string          `json:"body,omitempty"`
	Data       json.RawMessage `json:"data,omitempty"`
	Urgent     bool            `json:"urgent,omitempty"`
	ExpiresIn  int64           `json:"expires_in"`
	Collapse   *string         `json:"collapse,omitempty"`
	Age        int64           `json:"age_ms,omitempty"`
	Style
	Texts map[string]Text `json:"texts,omitempty"`
}

// MarshalJSON returns the event as the payload of a task, with nothing left to a default;
// the actor is the task's key. [ParseEvent] reads it.
func (e Event) MarshalJSON() ([]byte, error) {
	out := payloadJSON{
		ID: e.ID, Type: e.Type, Object: e.Object, Recipients: e.Recipients, Title: e.Title, Body: e.Body,
		Data: e.Data, Urgent: e.Urgent, ExpiresIn: int64(cmp.Or(e.ExpiresIn, DefaultLife) / time.Second), Age: e.Age.Milliseconds(),
		Style: e.Style, Texts: e.Texts,
	}
	if e.Followers {
		out.Recipients = forFollowers
	}
	if e.Followers || e.Collapse != "" {
		out.Collapse = &e.Collapse
	}
	text, err := json.Marshal(out)
	if err != nil {
		return nil, err
	}
	for _, p := range slices.Sorted(maps.Keys(e.Override)) {
		text = append(append(text[:len(text)-1], `,"`+string(p)+`":`...), e.Override[p]...)
		text = append(text, '}')
	}
	return text, nil
}

// NewNotify returns the task that targets an event. The error for an event that breaks a
// bound wraps [queue.ErrInvalid].
func NewNotify(e Event) (queue.New, error) {
	r := &strictjson.Reader{Root: "event"}
	e.check(strictjson.Object{Reader: r})
	if e.Actor == 0 {
		r.Addf("actor_id", "is missing")
	}
	err := r.Err()
	var payload json.RawMessage
	if err == nil {
		payload, err = json.Marshal(e)
	}
	if err != nil {
		return queue.New{}, fmt.Errorf("%w: %s for %v: %w", queue.ErrInvalid, Notify, e.Actor, err)
	}
	n := queue.New{Kind: Notify, Key: uint64(e.Actor), Payload: payload, Queue: e.queueOf()}
	if e.Urgent {
		n.Priority = queue.Urgent
	}
	n.DedupeKey, err = NotifyKey(n.Key, payload)
	return n, err
}
