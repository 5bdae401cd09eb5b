package queue

import "encoding/json"

// Kinds of the tests: two that are the same work, and some in other orders.
const (
	AddContact    = "add_contact"
	RemoveContact = "remove_contact"
	Upload        = "upload"
	FanOut        = "fan_out"
	Refill        = "refill"
)

var siteKinds = func() Kinds {
	none := func(uint64, json.RawMessage) (string, error) { return "", nil }
	return Kinds{
		{Name: AddContact, Order: "set", DedupeKey: none}, {Name: RemoveContact, Order: "set", DedupeKey: none},
		{Name: Upload, Order: "uploader", DedupeKey: none}, {Name: FanOut, DedupeKey: none}, {Name: Refill, Order: "set", DedupeKey: none},
	}
}()
