package push_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/push/fcm"
	"github.com/activityd/activityd/internal/push/webpush"
)

// full is an event with all fields of a style.
const full = `{"type":"a","title":"T","body":"B","badge":0,"sound":"ding.caf","image":"https://photos.example/901.jpg",` +
	`"title_loc_key":"t","title_loc_args":["Ann","{count}"],"body_loc_key":"b","body_loc_args":["x"],` +
	`"texts":{"de":{"title":"TD","body":"BD"},"pt-BR":{"body":"BP"}},` +
	`"apns":{"aps":{"relevance-score":0.5}},"fcm":{"android":{"notification":{"channel_id":"c"}}},"webpush":{"options":{"icon":"/i.png"}}}`

func TestParseStyle(t *testing.T) {
	t.Parallel()
	e, err := push.ParseEvent(7, json.RawMessage(full))
	must(t, err)
	badge := 0
	want := push.Event{
		Type: "a", Actor: 7, Followers: true, Title: "T", Body: "B", ExpiresIn: 24 * time.Hour, Collapse: "a:7",
		Style: push.Style{
			Badge: &badge, Sound: "ding.caf", Image: "https://photos.example/901.jpg",
			TitleLocKey: "t", TitleLocArgs: []string{"Ann", "{count}"}, BodyLocKey: "b", BodyLocArgs: []string{"x"},
		},
		Texts: map[string]push.Text{"de": {"TD", "BD"}, "pt-br": {"", "BP"}},
		Override: map[push.Platform]json.RawMessage{
			push.APNs: json.RawMessage(`{"aps":{"relevance-score":0.5}}`), push.FCM: json.RawMessage(`{"android":{"notification":{"channel_id":"c"}}}`),
			push.WebPush: json.RawMessage(`{"options":{"icon":"/i.png"}}`),
		},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	n, err := push.NewNotify(e)
	must(t, err)
	if back, err := push.ParseEvent(7, n.Payload); err != nil || !cmp.Equal(back, e) {
		t.Errorf("%s is read as %+v, %v", n.Payload, back, err)
	}
	stored := push.Event{Actor: 7}
	if err := json.Unmarshal(n.Payload, &stored); err != nil || !cmp.Equal(stored, e) {
		t.Errorf("%s is unmarshalled as %+v, %v", n.Payload, stored, err)
	}
}

// wrongStyles says, for fields of a style, the fields that are at fault.
var wrongStyles = map[string]string{
	`"badge":-1`:     "badge",
	`"badge":100000`: "badge",
	`"badge":"1"`:    "badge",
	`"sound":""`:     "sound",
	`"sound":"a b"`:  "sound",
	`"sound":"` + strings.Repeat("s", push.MaxName+1) + `"`: "sound",
	`"silent":1`: "silent",
	`"silent":true,"title":"T","body":"B","sound":"x","image":"https://a.example/","texts":{"de":{"title":"T"}}`: "title body texts sound image",
	`"image":"http://a.example/1"`:                 "image",
	`"image":"/1.jpg"`:                             "image",
	`"image":"https://u:p@a.example/1"`:            "image",
	`"image":"https:///1"`:                         "image",
	`"image":"https://a.example/ 1"`:               "image",
	`"title_loc_args":["a"]`:                       "title_loc_args",
	`"title_loc_key":"k","title_loc_args":[]`:      "title_loc_args",
	`"title_loc_key":"k","title_loc_args":["a",7]`: "title_loc_args[1]",
	`"body_loc_key":"k","body_loc_args":["` + strings.Repeat("a", push.MaxLocArg+1) + `"]`: "body_loc_args[0]",
	`"body_loc_key":"a b"`:                            "body_loc_key",
	`"texts":{}`:                                      "texts",
	`"texts":{"de":{}}`:                               "texts.de",
	`"texts":{"de":{"title":""}}`:                     "texts.de.title texts.de",
	`"texts":{"de":{"titel":"T"}}`:                    "texts.de.titel texts.de",
	`"texts":{"de":{"title":"T"},"DE":{"title":"T"}}`: "texts.DE",
	`"texts":{"de_CH":{"title":"T"}}`:                 "texts.de_CH",
	`"texts":{"de":{"body":"` + strings.Repeat("b", push.MaxBody+1) + `"}}`: "texts.de.body",
	`"apns":[]`:            "apns",
	`"apns":{"a":1,"a":2}`: "apns.a",
	`"webpush":{"x":"` + strings.Repeat("x", push.MaxContent) + `"}`: "webpush",
}

func TestParseStyleNamesAllFaults(t *testing.T) {
	t.Parallel()
	for fields, want := range wrongStyles {
		payload := `{"type":"a",` + fields + `}`
		_, err := push.ParseEvent(7, json.RawMessage(payload))
		if got := faultyFields(t, payload, err); got != want {
			t.Errorf("%.200s: fields %q, want %q: %v", payload, got, want, err)
		}
	}
}

// An event that makes a message, or the payload of the task, too long is refused at the door.
func TestTheSizeOfAnEvent(t *testing.T) {
	t.Parallel()
	text := func(n int) string { return strings.Repeat("x", n) }
	usual := `"title":"` + text(push.MaxTitle) + `","body":"` + text(push.MaxBody) + `","data":{"d":"` + text(push.MaxData-8) + `"}`
	var many []string
	for i := range push.MaxLanguages {
		many = append(many, fmt.Sprintf(`"%c%c":{"body":"%s"}`, 'a'+i/26, 'a'+i%26, text(500)))
	}
	members := strings.TrimSuffix(strings.Repeat("1,", 10), ",")
	for i := range push.MaxRecipients - 10 {
		members += fmt.Sprintf(",%d", 1<<64-1-uint64(i))
	}
	for fields, want := range map[string]string{
		usual + `,"apns":{"a":"` + text(400) + `"}`:                                                                       "",
		usual + `,"apns":{"a":"` + text(600) + `"}`:                                                                       "apns",
		usual + `,"image":"https://a.example/` + text(400) + `"`:                                                          "",
		usual + `,"image":"https://a.example/` + text(400) + `","body_loc_key":"k","body_loc_args":["` + text(100) + `"]`: "event",
		`"title":"T","body":"B","fcm":{"a":"` + text(2000) + `"},"texts":{"de":{"body":"` + text(1000) + `"}}`:            "",
		`"title":"T","body":"B","fcm":{"a":"` + text(2000) + `"},"texts":{"de":{"body":"` + text(1400) + `"}}`:            "fcm",
		`"texts":{` + strings.Join(many, ",") + `}`:                                                                       "",
		`"texts":{` + strings.Join(many, ",") + `},"recipients":[` + members + `]`:                                        "recipients",
	} {
		_, err := push.ParseEvent(7, json.RawMessage(`{"type":"a",`+fields+`}`))
		if want == "" && err != nil || want != "" && faultyFields(t, want, err) != want {
			t.Errorf("%.30s… %.30s: %v, want a fault of %q", fields, fields[len(fields)-30:], err, want)
		}
	}
}

// payloads are the forms of a message for each platform, and the platform's limit.
var payloads = map[push.Platform]struct {
	of    func(*push.Message) ([]byte, error)
	limit int
	size  func(t interface{ Fatal(...any) }, raw []byte) int
}{
	push.APNs:    {apns.Payload, apns.MaxPayload, length},
	push.WebPush: {func(m *push.Message) ([]byte, error) { return webpush.Payload(&m.Notification) }, 3993, length},
	push.FCM:     {func(m *push.Message) ([]byte, error) { return fcm.Payload(m, time.Now()) }, 4096, keysAndValues},
}

func length(_ interface{ Fatal(...any) }, raw []byte) int { return len(raw) }

// keysAndValues is the count of FCM, at most.
func keysAndValues(t interface{ Fatal(...any) }, raw []byte) int {
	var value any
	if err := json.Unmarshal(raw, &value); err != nil {
		t.Fatal(err)
	}
	return lengthOf(value)
}

func lengthOf(value any) (n int) {
	switch v := value.(type) {
	case map[string]any:
		for name, value := range v {
			n += len(name) + lengthOf(value)
		}
	case []any:
		for _, value := range v {
			n += lengthOf(value)
		}
	case string:
		return len(v)
	default:
		return len(fmt.Sprint(v))
	}
	return n
}

// The payload of an event that is taken fits every platform, in each language, whoever the actor is.
func TestWhatIsTakenFits(t *testing.T) {
	t.Parallel()
	least := 1 << 20 // room that was left
	rapid.Check(t, func(t *rapid.T) {
		n, err := push.NewNotify(drawStyled(t))
		must(t, err)
		e, err := push.ParseEvent(1<<64-1, n.Payload)
		if err != nil {
			t.Skip(err)
		}
		for p, at := range payloads {
			d := push.Device{ID: 1, Member: 2, Platform: p, Language: rapid.SampledFrom([]string{"", "de", "fr-CH"}).Draw(t, "language")}
			stored := &push.StoredEvent{Event: e, Number: 1<<64 - 1, Expires: time.Unix(9999999999, 0)}
			m := stored.Message(d, strings.Repeat("ö", 300))
			m.Count = 1 << 30
			if !m.Silent { // as if it were that many
				m.Title = m.Title[:max(0, len(m.Title)-len(" (1073741824)"))] + " (1073741824)"
			}
			raw, err := at.of(&m)
			if err != nil || !json.Valid(raw) {
				t.Fatalf("%s: %s, %v", p, raw, err)
			}
			room := at.limit - at.size(t, raw)
			if least = min(least, room); room < 0 {
				t.Errorf("%s takes %d bytes, and the payload has %d more: %s", p, at.limit, -room, raw)
			}
		}
	})
	t.Logf("the largest payload leaves %d bytes", least)
	if least > 1500 {
		t.Errorf("no event was large: %d bytes were left of the largest payload", least)
	}
}

// drawStyled draws an event that is about as large as may be.
func drawStyled(t *rapid.T) push.Event {
	text := func(label string, most int) string {
		unit := rapid.SampledFrom([]string{"x", "<", `"`, "ä", "\x01"}).Draw(t, label)
		n := rapid.OneOf(rapid.Just(most), rapid.IntRange(1, most)).Draw(t, label)
		per := len(unit)
		switch unit {
		case "<", "\x01":
			per = 6
		case `"`:
			per = 2
		}
		return strings.Repeat(unit, max(1, n/per))
	}
	name := func(label string, most int) string {
		return strings.Repeat("n", rapid.IntRange(1, most).Draw(t, label))
	}
	maybe := rapid.Bool()
	e := push.Event{
		ID: strings.Repeat("&", push.MaxID), Type: strings.Repeat("t", push.MaxType), Actor: 1<<64 - 1, Recipients: []member.ID{1},
		Object: "o:" + strings.Repeat(`\`, push.MaxObject-2), Urgent: maybe.Draw(t, "urgent"),
		Collapse: strings.Repeat(">", push.MaxCollapse),
	}
	if maybe.Draw(t, "data") {
		e.Data = json.RawMessage(`{"a":"` + strings.Repeat("d", rapid.IntRange(0, push.MaxData-8).Draw(t, "data")) + `"}`)
	}
	if badge := rapid.IntRange(0, push.MaxBadge).Draw(t, "badge"); maybe.Draw(t, "has a badge") {
		e.Badge = &badge
	}
	if e.Silent = rapid.IntRange(0, 9).Draw(t, "silent") == 0; !e.Silent {
		if maybe.Draw(t, "title") {
			e.Title = text("title", push.MaxTitle)
		}
		e.Body = text("body", push.MaxBody)
		if maybe.Draw(t, "texts") {
			e.Texts = map[string]push.Text{"de": {Title: text("de", push.MaxTitle)}, "fr": {text("fr", push.MaxTitle), text("fr", push.MaxBody)}}
		}
		if maybe.Draw(t, "names") {
			e.Sound = name("sound", push.MaxName)
			e.TitleLocKey, e.BodyLocKey = name("key", push.MaxName), name("key", push.MaxName)
			e.TitleLocArgs = []string{text("arg", push.MaxLocArg)}
		}
		if maybe.Draw(t, "rich") {
			e.Image = "https://a.example/" + name("image", push.MaxImage-18)
		}
	}
	if maybe.Draw(t, "override") {
		raw := func(format string, most int) json.RawMessage {
			return json.RawMessage(fmt.Sprintf(format, strings.Repeat("x", rapid.IntRange(0, most).Draw(t, "override"))))
		}
		most := rapid.SampledFrom([]int{400, 1000, push.MaxContent}).Draw(t, "override")
		e.Override = map[push.Platform]json.RawMessage{
			push.APNs: raw(`{"x":"%s"}`, most), push.FCM: raw(`{"data":{"x":"%s"}}`, most), push.WebPush: raw(`{"options":{"icon":"%s"}}`, most),
		}
	}
	return e
}

// The text is that of RFC 4647's lookup, by the language of the device; a missing text is the event's own.
func TestTheTextOfALanguage(t *testing.T) {
	t.Parallel()
	e, err := push.ParseEvent(7, json.RawMessage(`{"type":"a","title":"T","body":"B","texts":{"de":{"title":"TD","body":"BD"},`+
		`"de-CH":{"body":"BC"},"zh-Hant":{"title":"TZ"}}}`))
	must(t, err)
	for language, want := range map[string]string{
		"": "T B", "en": "T B", "de": "TD BD", "DE": "TD BD", "de-AT": "TD BD", "de-CH": "T BC", "de-ch-1996": "T BC", "d": "T B",
		"zh-Hant-TW": "TZ B", "zh-Hans": "T B", "zh": "T B", "zh-Hant-x-private": "TZ B", "de-x-a": "TD BD",
	} {
		m := (&push.StoredEvent{Event: e}).Message(push.Device{Language: language}, "ann")
		if got := m.Title + " " + m.Body; got != want {
			t.Errorf("%s: %q, want %q", language, got, want)
		}
	}
}

// A silent event is in no burst with events that are shown, waits for no quiet hours, and goes to no browser.
func TestSilentEvents(t *testing.T) {
	t.Parallel()
	e := push.Event{Type: "a", Actor: 7, Followers: true, Collapse: "c"}
	shown := e.Burst()
	e.Silent = true
	if e.Burst() == shown {
		t.Error("it is in a burst with what is shown")
	}
	now := time.Unix(1795000000, 0)
	stored := &push.StoredEvent{Event: e, Expires: now.Add(time.Hour)}
	f := push.Facts{Now: now, Visible: true, Settings: push.Settings{Quiet: push.QuietHours{From: 0, To: 1439, Zone: "UTC"}}}
	for platform, want := range map[push.Platform]push.Decision{push.APNs: {}, push.FCM: {}, push.WebPush: {Skip: push.Unshown}} {
		f.Device.Platform = platform
		if got := push.Decide(stored, f, map[push.Platform]bool{push.WebPush: true}); got != want {
			t.Errorf("%s: %+v, want %+v", platform, got, want)
		}
	}
}

// The examples of RFC 7386, appendix A, whose targets are objects, and some more.
func TestMerge(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ target, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"a": 1.50}`, `{}`, `{"a":1.50}`},
		{`{"a":{"b":1e400}}`, `{"c":{"d":[null]}}`, `{"a":{"b":1e400},"c":{"d":[null]}}`},
	} {
		got, err := push.Merge(json.RawMessage(test.target), json.RawMessage(test.patch))
		if err != nil || string(got) != test.want {
			t.Errorf("%s with %s: %s, %v, want %s", test.target, test.patch, got, err, test.want)
		}
	}
	if got, err := push.Merge(json.RawMessage(` {} `), nil); err != nil || string(got) != ` {} ` {
		t.Errorf("%q, %v", got, err)
	}
}
