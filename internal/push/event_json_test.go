package push_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/strictjson"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func TestParseEvent(t *testing.T) {
	t.Parallel()
	const day = 24 * time.Hour
	for _, test := range []struct {
		payload string
		want    push.Event
	}{
		{`{"type":"upload"}`, push.Event{Type: "upload", Actor: 7, Followers: true, ExpiresIn: day, Collapse: "upload:7"}},
		{`{"type":"upload","collapse":""}`, push.Event{Type: "upload", Actor: 7, Followers: true, ExpiresIn: day}},
		{` {"type":"fave", "recipients":[ 9 ,"8",9]}`, push.Event{Type: "fave", Actor: 7, Recipients: []member.ID{9, 8}, ExpiresIn: day}},
		{
			`{"id":"a/1","type":"comment","object":"photo:901","recipients":"followers","title":"T","body":"B",` +
				`"data":{"b": 1.50, "a":["<\ud800"]},"urgent":true,"expires_in":60,"collapse":"c"}`,
			push.Event{
				ID: "a/1", Type: "comment", Actor: 7, Object: "photo:901", Followers: true, Title: "T", Body: "B",
				Data: json.RawMessage(`{"a":["\u003c` + "\ufffd" + `"],"b":1.50}`), Urgent: true, ExpiresIn: time.Minute, Collapse: "c",
			},
		},
	} {
		got, err := push.ParseEvent(7, json.RawMessage(test.payload))
		if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", test.payload, err, diff)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := push.ParseEvent(7, again); err != nil || !cmp.Equal(back, got) {
			t.Errorf("%s: marshalled as %s, which is read as %+v, %v", test.payload, again, back, err)
		}
		stored := push.Event{Actor: 7}
		if err := json.Unmarshal(again, &stored); err != nil || !cmp.Equal(stored, got) {
			t.Errorf("%s: marshalled as %s, which is unmarshalled as %+v, %v", test.payload, again, stored, err)
		}
	}
}

// wrongFields says, for a JSON object of an event, the fields that are at fault.
var wrongFields = map[string]string{
	`[]`:                                "event",
	`{}`:                                "type",
	`{"type":"","type":"a"}`:            "type",
	`{"type":"upload "}`:                "type",
	`{"type":null}`:                     "type",
	`{"type":"a","user_id":"5","Id":1}`: "user_id Id",
	`{"type":"` + strings.Repeat("a", push.MaxType+1) + `"}`: "type",
	`{"type":"a","id":""}`:    "id",
	`{"type":"a","id":7}`:     "id",
	`{"type":"a","id":"a b"}`: "id",
	`{"type":"a","id":"a\""}`: "id",
	`{"type":"a","id":"a\\"}`: "id",
	`{"type":"a","id":"` + strings.Repeat("i", push.MaxID+1) + `"}`:                     "id",
	`{"type":"a","object":""}`:                                                          "object",
	`{"type":"a","object":"photo:0901"}`:                                                "object",
	`{"type":"a","object":"Photo:901"}`:                                                 "object",
	`{"type":"a","object":"photo:"}`:                                                    "object",
	`{"type":"a","object":"photo:x"}`:                                                   "object",
	`{"type":"a","object":"user:0"}`:                                                    "object",
	`{"type":"a","object":"901"}`:                                                       "object",
	`{"type":"a","object":"album:a b"}`:                                                 "object",
	`{"type":"a","object":"album:` + strings.Repeat("a", push.MaxObject) + `"}`:         "object",
	`{"type":"a","recipients":"all"}`:                                                   "recipients",
	`{"type":"a","recipients":[]}`:                                                      "recipients",
	`{"type":"a","recipients":null}`:                                                    "recipients",
	`{"type":"a","recipients":[1,"0",null]}`:                                            "recipients[1] recipients[2]",
	`{"type":"a","recipients":[` + strings.Repeat("1,", push.MaxRecipients) + `1]}`:     "recipients",
	`{"type":"a","title":""}`:                                                           "title",
	`{"type":"a","title":"` + strings.Repeat("<", 42) + `"}`:                            "title",
	`{"type":"a","title":7,"body":null}`:                                                "title body",
	`{"type":"a","body":"` + strings.Repeat("b", 5000) + `"}`:                           "body",
	`{"type":"a","urgent":1}`:                                                           "urgent",
	`{"type":"a","urgent":null}`:                                                        "urgent",
	`{"type":"a","expires_in":0}`:                                                       "expires_in",
	`{"type":"a","expires_in":1.5}`:                                                     "expires_in",
	`{"type":"a","expires_in":"60"}`:                                                    "expires_in",
	`{"type":"a","expires_in":2419201}`:                                                 "expires_in",
	`{"type":"a","collapse":" "}`:                                                       "collapse",
	`{"type":"a","collapse":null}`:                                                      "collapse",
	`{"type":"a","collapse":"` + strings.Repeat("c", push.MaxCollapse+1) + `"}`:         "collapse",
	`{"type":"a","data":[]}`:                                                            "data",
	`{"type":"a","data":{"a":1e999}}`:                                                   "data.a",
	`{"type":"a","data":{"a":[{"b":1,"b":2}]}}`:                                         "data.a[0].b",
	`{"type":"a","data":{"a":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}}`: "data.a[0][0][0][0][0][0][0]",
	`{"type":"a","data":{"a":"` + strings.Repeat("<", 200) + `"}}`:                      "data",
	`{"type":"a","data":{"a":"` + strings.Repeat(" ", 9000) + `"}}`:                     "data",
	`{"type":"a b","title":"","urgent":0,"expires_in":0,"x":1}`:                         "x type title urgent expires_in",
}

func TestParseEventNamesAllFaults(t *testing.T) {
	t.Parallel()
	for payload, want := range wrongFields {
		_, err := push.ParseEvent(7, json.RawMessage(payload))
		if got := faultyFields(t, payload, err); got != want {
			t.Errorf("%.200s: fields %q, want %q: %v", payload, got, want, err)
		}
	}
	for _, payload := range []string{"", "{", "\xff", `{"type":"a"}{}`} {
		if _, err := push.ParseEvent(7, json.RawMessage(payload)); !errors.Is(err, strictjson.ErrMalformed) {
			t.Errorf("%q: %v", payload, err)
		}
	}
}

// A fault of an event in a request names its place, and a producer chooses no id of ours.
func TestReadEvent(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`[]`: "tasks[3].event", `{"type":"a","data":{"a":[{"b":1,"b":2}]}}`: "tasks[3].event.data.a[0].b",
		`{"type":"a","id":"task-5"}`: "tasks[3].event.id", `{"type":"a","id":"stream-1-0-0"}`: "tasks[3].event.id", `{"type":"a","age_ms":1}`: "tasks[3].event.age_ms",
	} {
		r := &strictjson.Reader{}
		push.ReadEvent(r, "tasks[3].event", 7, json.RawMessage(payload))
		if got := faultyFields(t, payload, r.Err()); got != want {
			t.Errorf("%s: fields %q, want %q", payload, got, want)
		}
	}
	if _, err := push.ParseEvent(7, json.RawMessage(`{"type":"a","id":"task-5","age_ms":1}`)); err != nil {
		t.Errorf("the payload that activityd itself wrote: %v", err)
	}
}

func TestReadRequestedDemandsMore(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{}`: "actor_id recipients title body type",
		`{"type":"a","actor_id":0,"recipients":[1],"title":"t","body":""}`:                  "actor_id body",
		`{"type":"a","actor_id":"5","recipients":"followers","title":"t","body":"b"}`:       "",
		`{"type":"a","actor_id":"5","recipients":[],"title":"t","body":"b"}`:                "events[0].recipients",
		`{"type":"a","actor_id":"5","user_id":"5","recipients":[1],"title":"t","body":"b"}`: "user_id",
	} {
		r := &strictjson.Reader{}
		e := push.ReadRequested(r, "events[0]", json.RawMessage(payload))
		if want == "" {
			if r.Err() != nil || e.Actor != 5 || e.Collapse != "a:5" {
				t.Errorf("%s: %+v, %v", payload, e, r.Err())
			}
			continue
		}
		got := strings.ReplaceAll(faultyFields(t, payload, r.Err()), "events[0].", "")
		if got != strings.ReplaceAll(want, "events[0].", "") {
			t.Errorf("%s: fields %q, want %q", payload, got, want)
		}
	}
}

// faultyFields are the fields at fault, in order.
func faultyFields(t *testing.T, text string, err error) string {
	t.Helper()
	invalid, ok := errors.AsType[*strictjson.InvalidError](err)
	if !ok {
		t.Errorf("%.200s: %v, want an InvalidError", text, err)
		return ""
	}
	fields := make([]string, len(invalid.Faults))
	for i, f := range invalid.Faults {
		fields[i] = f.Field
	}
	return strings.Join(fields, " ")
}

func TestNewNotify(t *testing.T) {
	t.Parallel()
	e := push.Event{ID: "e1", Type: "upload", Actor: 7, Followers: true, Title: "T", Body: "B", Urgent: true}
	n, err := push.NewNotify(e)
	want := queue.New{
		Kind: "notify", Key: 7, Queue: "push_urgent", Priority: queue.Urgent,
		Payload: json.RawMessage(`{"id":"e1","type":"upload","title":"T","body":"B","urgent":true,"recipients":"followers","expires_in":86400,"collapse":""}`),
	}
	if diff := cmp.Diff(want, n); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// The largest event is a task, however the database writes its JSON: with a space after
// each comma and colon.
func TestTheLargestEventIsATask(t *testing.T) {
	t.Parallel()
	e := largest()
	n, err := push.NewNotify(e)
	if err != nil {
		t.Fatal(err)
	}
	spaces := strings.Count(string(n.Payload), ",") + strings.Count(string(n.Payload), ":")
	if size := len(n.Payload) + spaces; size > 32<<10 {
		t.Errorf("the payload has up to %d bytes", size)
	}
	back, err := push.ParseEvent(e.Actor, n.Payload)
	if diff := cmp.Diff(e, back); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func largest() push.Event {
	e := push.Event{
		ID: strings.Repeat("&", push.MaxID), Type: strings.Repeat("t", push.MaxType), Actor: 1<<64 - 1,
		Object: "o:" + strings.Repeat("<", push.MaxObject-2), Title: strings.Repeat("t", push.MaxTitle),
		Body: strings.Repeat("b", push.MaxBody), Urgent: true, ExpiresIn: push.MaxLife,
		Data:     json.RawMessage(`{"a":"` + strings.Repeat("d", push.MaxData-8) + `"}`),
		Collapse: strings.Repeat(">", push.MaxCollapse),
	}
	for i := range push.MaxRecipients {
		e.Recipients = append(e.Recipients, member.ID(1<<64-1-uint64(i)))
	}
	return e
}

// Whatever the payload, an event that is taken is written, and read as the same,
// and is a task.
func FuzzParseEvent(f *testing.F) {
	for payload := range wrongFields {
		f.Add(payload)
	}
	f.Add(`{"id":"e","type":"a","object":"photo:9","recipients":[1,2],"data":{"a":[null,true,-1e5,"\ud83d"]},"collapse":"c"}`)
	f.Fuzz(func(t *testing.T, payload string) {
		e, err := push.ParseEvent(7, json.RawMessage(payload))
		if err != nil {
			if _, ok := errors.AsType[*strictjson.InvalidError](err); !ok && !errors.Is(err, strictjson.ErrMalformed) {
				t.Errorf("%q: %v", payload, err)
			}
			return
		}
		n, err := push.NewNotify(e)
		if err != nil {
			t.Fatalf("%q: %v", payload, err)
		}
		if _, err := tasks.Kinds().Validate([]queue.New{n}); err != nil && len(n.Payload) <= queue.MaxPayload {
			t.Errorf("%q: %v", payload, err)
		}
		back, err := push.ParseEvent(7, n.Payload)
		if err != nil || !cmp.Equal(back, e) {
			t.Errorf("%q: %+v, read again %+v, %v", payload, e, back, err)
		}
		if !e.Followers && len(e.Recipients) == 0 || slices.Contains(e.Recipients, 0) || len(e.Data) > push.MaxData {
			t.Errorf("%q: %+v", payload, e)
		}
	})
}
