package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

const oneEvent = `{"type":"upload","actor_id":"5","recipients":["7"],"title":"T","body":"B"}`

// eventIDs are the ids of an answer.
func eventIDs(t *testing.T, body []byte) (ids []string) {
	t.Helper()
	var got struct{ Events []struct{ ID string } }
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	for _, e := range got.Events {
		ids = append(ids, e.ID)
	}
	return ids
}

func TestEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := `{"events":[
		{"id":"upload-901","type":"upload","actor_id":"98765","object":"photo:901","recipients":"followers","title":"A new photo","body":"<3",
		 "data":{"n":1},"urgent":true,"expires_in":60},
		{"id":"c","type":"comment","actor_id":5,"recipients":[7,"8",7],"title":"T","body":"B","collapse":"photo:901"}]}`
	foreseen(t, newJSON(t.Context(), http.MethodPost, "/v1/events", body))
	w := b.send(t, http.MethodPost, "/v1/events", body)
	if w.Code != http.StatusAccepted || w.Body.String() != `{"events":[{"id":"upload-901"},{"id":"c"}]}` {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	want := []push.Event{
		{
			ID: "upload-901", Type: "upload", Actor: 98765, Object: "photo:901", Followers: true, Title: "A new photo", Body: "<3",
			Data: json.RawMessage(`{"n":1}`), Urgent: true, ExpiresIn: time.Minute, Collapse: "upload:98765",
		},
		{ID: "c", Type: "comment", Actor: 5, Recipients: []member.ID{7, 8}, Title: "T", Body: "B", ExpiresIn: push.DefaultLife, Collapse: "photo:901"},
	}
	if diff := cmp.Diff(want, targeted(t, b.enqueuer.calls())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if batch := b.enqueuer.calls()[0]; batch[0].Priority != queue.Urgent || batch[1].Priority != queue.Normal {
		t.Errorf("enqueued %+v", batch)
	}
}

// targeted are the events of the only batch that was enqueued.
func targeted(t *testing.T, calls [][]queue.New) (events []push.Event) {
	t.Helper()
	if len(calls) != 1 {
		t.Fatalf("enqueued %v, want one batch", calls)
	}
	for _, n := range calls[0] {
		e, err := push.ParseEvent(member.ID(n.Key), n.Payload)
		inQueue := map[bool]string{false: push.QueuePush, true: push.QueueUrgent}[e.Urgent]
		if err != nil || n.Kind != push.Notify || n.Queue != inQueue {
			t.Fatalf("%+v: %v", n, err)
		}
		events = append(events, e)
	}
	return events
}

// Events without an id are given ids of their own, and enqueued under them.
func TestEventsAreGivenIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	w := b.send(t, http.MethodPost, "/v1/events", `{"events":[`+oneEvent+`,`+oneEvent+`]}`)
	ids := eventIDs(t, w.Body.Bytes())
	if w.Code != http.StatusAccepted || len(ids) != 2 || ids[0] == ids[1] || ids[0] == "" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for i, e := range targeted(t, b.enqueuer.calls()) {
		if e.ID != ids[i] {
			t.Errorf("enqueued as %q, answered %q", e.ID, ids[i])
		}
	}
}

func TestRepeatedEventsAreGivenTheSameIDs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	repeat := func(body string) ([]string, string) {
		r := newJSON(t.Context(), http.MethodPost, "/v1/events", body)
		r.Header.Set("Idempotency-Key", "k")
		w := b.do(t, r)
		if w.Code == http.StatusUnprocessableEntity {
			wantProblem(t, w, http.StatusUnprocessableEntity, "idempotency-key-reused")
			return nil, ""
		}
		return eventIDs(t, w.Body.Bytes()), w.Header().Get("Idempotency-Replayed")
	}
	two := `{"events":[` + oneEvent + `,` + oneEvent + `]}`
	first, replayed := repeat(two)
	if len(first) != 2 || first[0] == first[1] || replayed != "" {
		t.Fatalf("%q, replayed %q", first, replayed)
	}
	if again, replayed := repeat(two); !slices.Equal(again, first) || replayed != "true" || len(b.enqueuer.calls()) != 1 {
		t.Errorf("%q, replayed %q, first %q", again, replayed, first)
	}
	if other, _ := repeat(`{"events":[` + oneEvent + `]}`); other != nil {
		t.Errorf("another body under the key: %q", other)
	}
}

func TestEventsAreRefused(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`{}`:                                  "events",
		`[]`:                                  "body",
		oneEvent:                              "type actor_id recipients title body events",
		`{"events":[]}`:                       "events",
		`{"events":null}`:                     "events",
		`{"events":[1]}`:                      "events[0]",
		`{"events":[],"events":[]}`:           "events",
		`{"events":[` + oneEvent + `],"a":1}`: "a",
		`{"events":[` + oneEvent + `,{"type":"a","actor_id":"5","title":"T","body":"B","user_id":"5","id":"task-5"}]}`: "events[1].user_id events[1].recipients events[1].id",
	} {
		b := setup(t)
		p := wantProblem(t, b.send(t, http.MethodPost, "/v1/events", body), http.StatusBadRequest, "invalid-event")
		if got := strings.Join(p.fields(), " "); got != want || len(b.enqueuer.calls()) > 0 {
			t.Errorf("%.100s: fields %q, want %q; enqueued %v", body, got, want, b.enqueuer.calls())
		}
	}
	b := setup(t)
	wantProblem(t, b.send(t, http.MethodPost, "/v1/events", `{"events":`), http.StatusBadRequest, "malformed-body")
	many := `{"events":[` + strings.Repeat(oneEvent+",", api.DefaultMaxBatch) + oneEvent + `]}`
	p := wantProblem(t, b.send(t, http.MethodPost, "/v1/events", many), http.StatusBadRequest, "invalid-event")
	if !strings.Contains(p.Detail, "holds 1001 events") {
		t.Errorf("detail %q", p.Detail)
	}
	wantProblem(t, b.send(t, http.MethodPost, "/v1/events?a=b", `{"events":[`+oneEvent+`]}`), http.StatusBadRequest, "invalid-parameter")
	form := newRequest(t.Context(), http.MethodPost, "/v1/events", strings.NewReader(`{"events":[`+oneEvent+`]}`))
	wantProblem(t, b.do(t, form), http.StatusUnsupportedMediaType, "unsupported-media-type")
	if calls := b.enqueuer.calls(); len(calls) > 0 {
		t.Errorf("enqueued %v", calls)
	}
	if w := b.send(t, http.MethodPost, "/v1/events", `{"events":[`+strings.Repeat(oneEvent+",", api.DefaultMaxBatch-1)+oneEvent+`]}`); w.Code != http.StatusAccepted {
		t.Errorf("a full batch: %d %s", w.Code, w.Body)
	}
}
