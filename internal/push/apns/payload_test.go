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

// The fields beside the texts have Apple's form, and the event's own object is merged into it.
func TestStyles(t *testing.T) {
	t.Parallel()
	badge, zero := 3, 0
	const rest = `"event":"e1","type":"comment","actor":"5","count":1`
	for name, test := range map[string]struct {
		style              push.Style
		urgent             bool
		override           string
		want               string
		pushType, priority string
	}{
		"rich": {
			style: push.Style{Badge: &badge, Sound: "ding.caf", Image: "https://a.example/1"},
			want: `{"aps":{"alert":{"title":"T","body":"B"},"thread-id":"comment","sound":"ding.caf","badge":3,"mutable-content":1},` +
				rest + `,"image":"https://a.example/1"}`,
			pushType: "alert", priority: "10",
		},
		"urgent without a sound": {
			style: push.Style{Sound: push.SoundNone, Badge: &zero}, urgent: true,
			want:     `{"aps":{"alert":{"title":"T","body":"B"},"thread-id":"comment","interruption-level":"time-sensitive","badge":0},` + rest + `}`,
			pushType: "alert", priority: "10",
		},
		"keys": {
			style: push.Style{TitleLocKey: "tk", TitleLocArgs: []string{"x"}, BodyLocKey: "bk", BodyLocArgs: []string{"y", "z"}},
			want: `{"aps":{"alert":{"title-loc-key":"tk","title-loc-args":["x"],"loc-key":"bk","loc-args":["y","z"]},"thread-id":"comment"},` +
				rest + `}`,
			pushType: "alert", priority: "10",
		},
		"merged": {
			override: `{"aps":{"alert":{"subtitle":"S"},"thread-id":null,"relevance-score":0.5},"mine":{"a":null,"b":1}}`,
			want:     `{"actor":"5","aps":{"alert":{"body":"B","subtitle":"S","title":"T"},"relevance-score":0.5},"count":1,"event":"e1","mine":{"b":1},"type":"comment"}`,
			pushType: "alert", priority: "10",
		},
		"silent":              {style: push.Style{Silent: true}, urgent: true, want: `{"aps":{"content-available":1},` + rest + `}`, pushType: "background", priority: "5"},
		"silent with a badge": {style: push.Style{Silent: true, Badge: &zero}, want: `{"aps":{"badge":0,"content-available":1},` + rest + `}`, pushType: "alert", priority: "5"},
	} {
		m := push.Message{Notification: push.Notification{
			Event: "e1", Type: "comment", Actor: 5, Title: "T", Body: "B", Count: 1, Style: test.style, Urgent: test.urgent, Override: json.RawMessage(test.override),
		}}
		if test.override == "" {
			m.Override = nil
		}
		got, err := Payload(&m)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(test.want, string(got)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if pushType, priority := kind(&m); pushType != test.pushType || priority != test.priority {
			t.Errorf("%s: %s %s", name, pushType, priority)
		}
	}
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
