package push

import (
	"context"
	"encoding/json"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Notification is for a device to show, or, if it is Silent, for its app to know. Its texts are final.
type Notification struct {
	Event  string // the id of the newest event that it stands for
	Type   string
	Actor  member.ID
	Object string // "" if it has none
	Title  string
	Body   string
	Data   json.RawMessage // an object; nil if it has none
	Count  int             // how many events it stands for, at least 1
	// Collapse is the same for notifications of which a device shows the last only: at
	// most 32 characters of the URL-safe base64 alphabet, and never empty.
	Collapse string
	Urgent   bool
	Expires  time.Time // it is of no use from then on

	Style
	Override json.RawMessage // an object that is merged into its platform's message; nil: nothing is
}

// Message is a notification for a device.
type Message struct {
	// ID is a UUID, the same whenever the delivery is tried.
	ID     string
	Device Device
	// Before is until when it may leave, by the clock of this process: then its look is too old. Zero: whenever.
	Before time.Time
	Notification
}

// Sender sends messages to the devices of a platform. It is safe for concurrent use, and
// keeps few connections; all messages go over them at once.
type Sender interface {
	// Send sends a message and returns its result. It does not retry: that is the
	// queue's. It honours ctx, and Before: a message that has not left by then is [Wait]; a message that may have been sent by then is [Ambiguous].
	Send(ctx context.Context, m Message) Result
	// Origin returns the push service that reaches the device, as https://host:port. Each fails
	// for itself.
	Origin(d Device) string
}

// Outcome is the end of a message.
type Outcome string

// The outcomes. They are labels of metrics and stand in receipts.
const (
	Accepted    Outcome = "accepted"    // the push service took it
	Gone        Outcome = "gone"        // the device is no more: its address is pruned
	Rejected    Outcome = "rejected"    // the push service will never take this message; the device stays
	Credentials Outcome = "credentials" // the push service does not take our keys; the device stays
	Wait        Outcome = "wait"        // not taken: try again after Result.After
	Ambiguous   Outcome = "ambiguous"   // sent, and no answer came: it may have been taken
)

// ReasonHeld is the reason of a message that did not leave, as the first message over its connection was refused. It says
// nothing of the push service: the first message's result does.
const ReasonHeld = "held"

// Result is an outcome and its facts.
type Result struct {
	Outcome Outcome
	Status  int    // of HTTP; 0: there was no answer
	Reason  string // a short constant: the service's own, as in BadDeviceToken, or ours, as in "dial"
	// After is how long the push service asks to be left alone, for Wait, Credentials and Ambiguous;
	// 0: it does not ask.
	After time.Duration
	// Pause is how long this message waits if After is 0: as the documents of the push service
	// say, for Wait.
	Pause time.Duration
	// Origin says that Wait or Credentials are about the whole push service: all its devices wait
	// for After, or when it was so for some in a row. Else they are about this device alone.
	Origin bool
	// GoneSince is when the device was found to be gone, for [Gone]; an address that was
	// registered later stays. Zero: whenever it was registered.
	GoneSince time.Time
	ID        string // the push service's own, as it gave it; "": it gave none
	Err       error  // why there is no connection, for the log; nil: there is
}
