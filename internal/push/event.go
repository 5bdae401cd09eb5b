package push

import (
	"encoding/json"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Event is something that happened, and that members are to be notified of.
//
// Its JSON is the payload of a notify task, whose key is the actor; see docs/push.md.
type Event struct { // it is marshalled by value, too
	ID         string          `json:"id,omitempty"`     // of its producer, or given to it; an event is targeted once by its id
	Type       string          `json:"type"`             // a name that the site chooses: upload, comment, …
	Actor      member.ID       `json:"-"`                // whose doing it is
	Object     string          `json:"object,omitempty"` // as in photo:901; "" if it has none
	Followers  bool            `json:"-"`                // it is for the followers of the actor; else for the recipients
	Recipients []member.ID     `json:"-"`                // at most MaxRecipients
	Title      string          `json:"title,omitempty"`  // "" is the actor's username
	Body       string          `json:"body,omitempty"`   // "" is the type
	Data       json.RawMessage `json:"data,omitempty"`   // an object; nil if it has none
	Urgent     bool            `json:"urgent,omitempty"` // it goes through quiet hours, and before all else
	ExpiresIn  time.Duration   `json:"-"`                // from when it came in
	Age        time.Duration   `json:"-"`                // for how long it had been known when its task was enqueued
	Collapse   string          `json:"-"`                // of events with the same key, a device shows the last, with their count; "" if it has none

	Style
	Texts    map[string]Text              `json:"texts,omitempty"` // by language, in lower case; nil: title and body are for all
	Override map[Platform]json.RawMessage `json:"-"`               // objects that are merged into the platform's messages
}

// Style is how a notification is shown, beside its texts. Each platform has its own form of it.
type Style struct {
	Badge  *int   `json:"badge,omitempty"`  // the number at the app's icon, 0 takes it away; nil: it stays
	Sound  string `json:"sound,omitempty"`  // a sound of the app, [SoundDefault] or [SoundNone]; "": as the platform does
	Silent bool   `json:"silent,omitempty"` // the app is woken, and nothing is shown
	Image  string `json:"image,omitempty"`  // an https URL
	// The keys of texts that the app has, and the texts that are put into them.
	TitleLocKey  string   `json:"title_loc_key,omitempty"`
	TitleLocArgs []string `json:"title_loc_args,omitempty"`
	BodyLocKey   string   `json:"body_loc_key,omitempty"`
	BodyLocArgs  []string `json:"body_loc_args,omitempty"`
}

// The sounds that are no file of the app.
const (
	SoundDefault = "default"
	SoundNone    = "none"
)

// Text is the text of an event in a language. A title or body of "" is the event's own.
type Text struct {
	Title string `json:"title,omitempty"`
	Body  string `json:"body,omitempty"`
}

// Bounds of an event, in bytes where nothing else is said. Names are visible ASCII without quotes and backslashes.
const (
	MaxRecipients = 1000 // members
	MaxID         = 64   // a name
	MaxType       = 32   // ASCII letters, digits, '_', '-', '.'
	MaxObject     = 100  // visible ASCII
	MaxCollapse   = 64   // a name
	MaxTitle      = 250  // as JSON
	MaxBody       = 1500 // as JSON
	MaxData       = 1000 // of JSON
	MaxLife       = 28 * 24 * time.Hour
	DefaultLife   = 24 * time.Hour
	maxAge        = 10 * 365 * 24 * time.Hour

	MaxBadge     = 99999
	MaxName      = 64  // of a sound, and of the key of a text: names
	MaxImage     = 500 // a name
	MaxLocArgs   = 8   // texts
	MaxLocArg    = 100 // as JSON
	MaxLanguages = 30  // of texts
	MaxLanguage  = 35  // of a language tag (RFC 5646, 4.4.1)

	// MaxContent bounds by how much an event makes a message longer: the texts of its longest language, data, style,
	// and the platform's object, with their names, as compact JSON. The rest of a message has less than 650 bytes; the smallest
	// limit is that of Web Push, 3,993.
	MaxContent = 3300
	// maxDepth is how deep arrays and objects may lie in one another in data. MariaDB takes 32 levels in all.
	maxDepth = 8
	// eventRoom is room for an id and an age, which activityd itself adds to an event in the payload of its task.
	eventRoom = 256
)
