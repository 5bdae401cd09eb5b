package api_test

import (
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/queue"
)

// fuzzed is a request as net/http may hand it over.
type fuzzed struct {
	method, path, query string
	header              map[string]string
	body                string
}

// send answers the request, and checks the rules of every request.
func (f fuzzed) send(t *testing.T, g *guarded) *httptest.ResponseRecorder {
	t.Helper()
	r := (&http.Request{
		Method: f.method, URL: &url.URL{Path: cmp.Or(f.path, "/"), RawQuery: f.query}, Header: http.Header{},
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "a",
		Body: io.NopCloser(strings.NewReader(f.body)), ContentLength: int64(len(f.body)),
	}).WithContext(t.Context())
	for name, value := range f.header {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	w := httptest.NewRecorder()
	g.server.Handler().ServeHTTP(w, r)
	conforms(t, r, w)
	if w.Code >= http.StatusInternalServerError || strings.Contains(g.log.String(), `"stack"`) {
		t.Errorf("%+v: our fault: %d %s\n%s", f, w.Code, w.Body, g.log)
	}
	for _, secret := range []string{readSecret, writeSecret, adminSecret, limitedSecret} {
		elsewhere := f.method + f.path + f.query + f.body + f.header["Content-Type"] + f.header["Idempotency-Key"] + f.header["X-Request-Id"]
		if strings.Contains(g.log.String(), secret) && !strings.Contains(elsewhere, secret) {
			t.Errorf("%+v: the log shows a secret:\n%s", f, g.log)
		}
	}
	g.judge(t, f, w)
	return w
}

// judge holds the effects against the answer and the token.
func (g *guarded) judge(t *testing.T, f fuzzed, w *httptest.ResponseRecorder) {
	t.Helper()
	shows := func(secrets ...string) bool {
		for _, s := range secrets {
			if strings.Contains(f.header["Authorization"], s) {
				return true
			}
		}
		return false
	}
	if n := g.push.stored(); n > 0 && (w.Code != http.StatusOK && w.Code != http.StatusNoContent || !shows(writeSecret, adminSecret, limitedSecret)) {
		t.Errorf("%+v: %d, and yet stored", f, w.Code)
	}
	if len(g.asked) > 1 || len(g.asked) == 1 && (w.Code != http.StatusOK || !shows(readSecret, adminSecret, limitedSecret)) {
		t.Errorf("%+v: %d, and the reader was asked for %v", f, w.Code, g.asked)
	}
	if calls := g.enqueuer.calls(); len(calls) > 0 && (w.Code != http.StatusAccepted || !shows(writeSecret, adminSecret, limitedSecret)) {
		t.Errorf("%+v: %d, and yet enqueued: %v", f, w.Code, calls)
	}
	if w.Code == http.StatusAccepted {
		wantWhole(t, f.body, g.enqueuer.calls(), w)
	}
}

// wantWhole fails the test unless all tasks or events of the body were enqueued, as a
// batch, and have an id each.
func wantWhole(t *testing.T, body string, calls [][]queue.New, w *httptest.ResponseRecorder) {
	t.Helper()
	var sent struct{ Tasks, Events []json.RawMessage }
	var got struct {
		Tasks  []struct{ ID member.ID }
		Events []struct{ ID string }
	}
	if err := json.Unmarshal([]byte(body), &sent); err != nil {
		t.Errorf("%q: taken, though it is no JSON: %v", body, err)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Errorf("%q: answered %s: %v", body, w.Body, err)
	}
	want := max(1, len(sent.Tasks)+len(sent.Events)) // without a list it is one task
	if len(calls) != 1 || len(calls[0]) != want || len(got.Tasks)+len(got.Events) != want {
		t.Errorf("%q: enqueued %v, answered %s, want %d tasks at once", body, calls, w.Body, want)
	}
}

// Whatever a client sends, to whatever route: it is answered as the document
// says, it is never our fault, and nothing is done for strangers or by halves.
func FuzzRequest(f *testing.F) {
	const upload, batch = `{"type":"upload","user_id":"1"}`, `{"tasks":[{"type":"add_contact","user_id":1,"contact_id":"2"},{"type":"upload","user_id":"1"}]}`
	for _, seed := range []fuzzed{
		{"GET", readPath, "limit=10&explain=1", map[string]string{"Authorization": "Bearer act_READ"}, ""},
		{"GET", readPath, "explain=1", map[string]string{"Authorization": "Bearer act_ADMIN"}, ""},
		{"GET", "/v1/users/0/recent-contact-photos", "limit=51", map[string]string{"Authorization": "bearer act_LIMITED"}, ""},
		{"HEAD", readPath, "", nil, "body"},
		{"POST", "/v1/tasks", "", map[string]string{"Authorization": "Bearer act_WRITE", "Content-Type": "application/json"}, upload},
		{"POST", "/v1/tasks", "", map[string]string{"Authorization": "Bearer act_ADMIN", "Content-Type": "application/json; charset=utf-8", "Idempotency-Key": `"k"`}, batch},
		{"POST", "/v1/tasks", "a=b", map[string]string{"Authorization": "Bearer act_WRITE", "Content-Type": "text/plain", "Idempotency-Key": `"`}, "\xff"},
		{"POST", "/v1/tasks", "", map[string]string{"Authorization": "Bearer act_READ", "Content-Type": "application/json"}, batch},
		{"POST", "/v1/tasks", "", map[string]string{"Authorization": "Basic act_WRITE", "Content-Type": "application/json"}, upload},
		{"PUT", "/v1/tasks/", "", nil, upload},
		{"GET", "/v1/me/recent-contact-photos", "limit=3", map[string]string{"Authorization": "Bearer act_ADMIN"}, ""},
		{"GET", "/v1/me/recent-contact-photos", "", map[string]string{"Authorization": "Bearer e30.e30."}, ""},
		{"OPTIONS", "/v1/me/devices", "", nil, ""},
		{"POST", "/v1/events", "", map[string]string{"Authorization": "Bearer act_WRITE", "Content-Type": "application/json"}, `{"events":[` + oneEvent + `]}`},
		{"PUT", devicesPath, "", map[string]string{"Authorization": "Bearer act_ADMIN", "Content-Type": "application/json"}, subscription("https://push.example/a")},
		{"PUT", devicesPath, "", map[string]string{"Authorization": "Bearer act_READ", "Content-Type": "application/json"}, `{"platform":"fcm","token":"t"}`},
		{"DELETE", devicesPath + "/1", "", map[string]string{"Authorization": "Bearer act_WRITE"}, ""},
		{"PUT", settingsPath, "", map[string]string{"Authorization": "Bearer act_WRITE", "Content-Type": "application/json"}, `{"types":{"a":false}}`},
		{"PUT", mutesPath, "", map[string]string{"Authorization": "Bearer act_WRITE", "Content-Type": "application/json"}, `{"object":"user:6","until":4102444800}`},
		{"DELETE", mutesPath, "object=user:6", map[string]string{"Authorization": "Bearer act_WRITE"}, ""},
		{"GET", "/healthz", "a", map[string]string{"X-Request-Id": "a\nb"}, ""},
		{"HEAD", "/readyz", "", nil, ""},
		{"GET", "/openapi.yaml", "", nil, ""},
		{"GET", "/", "", nil, ""},
		{"OPTIONS", "*", "", nil, ""},
		{"GET", "", "%", nil, ""},
		{"\x00", "//v1/users/%2f/../recent-contact-photos", ";", nil, ""},
	} {
		f.Add(seed.method, seed.path, seed.query, seed.header["Authorization"], seed.header["Content-Type"], seed.header["Idempotency-Key"], seed.header["X-Request-Id"], seed.body)
	}
	f.Fuzz(func(t *testing.T, method, path, query, authorization, contentType, key, id, body string) {
		fuzzed{method, path, query, map[string]string{
			"Authorization": authorization, "Content-Type": contentType, "Idempotency-Key": key, "X-Request-Id": id,
		}, body}.send(t, guard(t))
	})
}

// allowed is the only form in which a token may read.
var allowed = regexp.MustCompile(`^(?i:bearer) +(act_READ|act_ADMIN|act_LIMITED) *$`)

// Exactly the requests with a token, in the form of RFC 6750, are allowed.
func FuzzAuthorization(f *testing.F) {
	for _, seed := range []string{
		"Bearer act_READ", "bEARER  act_ADMIN ", "Bearer act_WRITE", "Bearer", "Bearer ", "act_READ", "Basic act_READ",
		"Bearer\tact_READ", "Bearer act_READ,", "Bearer act_READ act_ADMIN", "Bearer \x00act_READ", "", "Bearer " + strings.Repeat("a", 5000), "Bearer act_read",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, authorization string) {
		w := fuzzed{"GET", readPath, "", map[string]string{"Authorization": authorization}, ""}.send(t, guard(t))
		if (w.Code == http.StatusOK) != allowed.MatchString(authorization) {
			t.Errorf("%q: %d", authorization, w.Code)
		}
	})
}
