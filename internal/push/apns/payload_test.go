package apns

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/push"
)

func TestPayload(t *testing.T) {
	t.Parallel()
	m := push.Message{Notification: push.Notification{
		Event: "e1", Type: "comment", Actor: math.MaxUint64, Object: "photo:901", Title: `"ann" <3`, Body: "nice & fine",
		Data: json.RawMessage(`{"a": [1]}`), Count: 2, Expires: time.Unix(1795300000, 0),
	}}
	const custom = `,"event":"e1","type":"comment","object":"photo:901","actor":"18446744073709551615","count":2,"data":{"a":[1]}}`
	const begin = `{"aps":{"alert":{"title":"\"ann\" <3","body":"nice & fine"},"thread-id":"photo:901"`
	check := func(want string) {
		t.Helper()
		got, err := Payload(&m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Error(diff)
		}
	}
	check(begin + "}" + custom)
	m.Urgent = true
	check(begin + `,"interruption-level":"time-sensitive","sound":"default"}` + custom)
	m.Urgent, m.Object, m.Data = false, "", nil
	check(`{"aps":{"alert":{"title":"\"ann\" <3","body":"nice & fine"},"thread-id":"comment"},` +
		`"event":"e1","type":"comment","actor":"18446744073709551615","count":2}`)
}

// The largest of everything that package push lets through.
func TestWorstPayloadFits(t *testing.T) {
	t.Parallel()
	jsonText := func(n int) string { return strings.Repeat("<", n) } // as long as JSON as it is
	const count = math.MaxInt32
	m := push.Message{Notification: push.Notification{
		Event:  strings.Repeat("e", 100), // the column's width
		Type:   strings.Repeat("t", push.MaxType),
		Actor:  math.MaxUint64,
		Object: strings.Repeat(`\`, push.MaxObject), // two bytes each in JSON
		Title:  jsonText(push.MaxTitle-2) + " (2147483647)",
		Body:   jsonText(push.MaxBody - 2),
		Data:   json.RawMessage(`{"d":"` + jsonText(push.MaxData-8) + `"}`),
		Count:  count, Urgent: true,
	}}
	if len(m.Data) != push.MaxData {
		t.Fatalf("the data have %d bytes, want %d", len(m.Data), push.MaxData)
	}
	got, err := Payload(&m)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) > MaxPayload {
		t.Errorf("the worst payload has %d bytes, and APNs takes %d", len(got), MaxPayload)
	}
	t.Logf("the worst payload has %d bytes", len(got))
}
