package push

import (
	"encoding/json"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Event is something that happened, of which members are to be notified.
//
// Its JSON is the payload of a notify task, whose key is the actor; see docs/push.md.
type Event struct { // it is marshalled by value, too
	ID         string          // of its producer, or given to it; an event is targeted once by its id
	Type       string          // a name that the site chooses: upload, comment, …
	Actor      member.ID       // whose doing it is
	Object     string          // as in photo:901; "" if it has none
	Followers  bool            // it is for the followers of the actor; else for the recipients
	Recipients []member.ID     // at most MaxRecipients
	Title      string          // "" is the actor's username
	Body       string          // "" is the type
	Data       json.RawMessage // an object; nil if it has none
	Urgent     bool            // it goes through quiet hours, and before others
	ExpiresIn  time.Duration   // from when it came in
	Age        time.Duration   // for how long it had been known when its task was enqueued
	Collapse   string          // of the events with one, a device shows the last, with their count; "" if it has none

	Style
	Texts    map[string]Text              // by language, in lower case; nil: title and body are for all
	Override map[Platform]json.RawMessage // objects that are merged into the platform's messages
}

// Bounds of an event. The payload of every platform fits what these leave room for.
const (
	MaxRecipients = 1000
	MaxID         = 64   // bytes of [Event.ID]: visible ASCII without quotes and backslashes
	MaxType       = 32   // bytes of [Event.Type]: ASCII letters, digits, '_', '-', '.'
	MaxObject     = 100  // bytes of [Event.Object]: visible ASCII
	MaxCollapse   = 64   // bytes of [Event.Collapse]: visible ASCII
	MaxTitle      = 250  // bytes
	MaxBody       = 1500 // bytes
	MaxData       = 1000 // bytes of JSON; see [MaxContent], too
	MaxLife       = 28 * 24 * time.Hour
	DefaultLife   = 24 * time.Hour
	maxAge        = 10 * 365 * 24 * time.Hour
)
