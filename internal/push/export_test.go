package push

import (
	"encoding/json"
	"reflect"
)

// The platforms of these tests.
const (
	APNs    Platform = "apns"
	WebPush Platform = "webpush" // members name its push services
	FCM     Platform = "fcm"
)

func init() { BeginSeries(Kind{Platform: APNs}, Kind{Platform: WebPush}, Kind{Platform: FCM}) }

// Equal compares what is kept, as a server may write JSON in another form.
func (a Address) Equal(b Address) bool {
	var is, other any
	return json.Unmarshal(a.text, &is) == nil && json.Unmarshal(b.text, &other) == nil && reflect.DeepEqual(is, other)
}

// Message returns the message about an event alone to a device, as a delivery sends it. actor is the username of its actor.
func (e *StoredEvent) Message(d Device, actor string) Message {
	return Message{ID: messageID(e.Number, d.ID), Device: d, Notification: notification(e, d, actor, 1)}
}
