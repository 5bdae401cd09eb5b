package api_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// Whatever the body, it is taken whole or refused, and never our fault.
func FuzzTasksBody(f *testing.F) {
	for _, seed := range []string{
		`{"type":"add_contact","user_id":"1","contact_id":2}`,
		`{"tasks":[{"type":"upload","user_id":"1"},{"type":"remove_contact","user_id":"1"}]}`,
		`{"type":"notify","user_id":"1","event":{"type":"a","recipients":[2],"data":{"a":"\ud800"}}}`,
		`{"tasks":[]}`, `{"tasks":null}`, `{"type":"upload","type":"upload","user_id":1}`,
		`{}{}`, `null`, `[`, `"\ud800"`, "\xff", `{"":{"":[]}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) {
		b := setup(t, func(c *api.Config) { c.MaxBatch, c.MaxBody = 4, 1<<10 })
		w := httptest.NewRecorder()
		b.server.Handler().ServeHTTP(w, postTasks(t.Context(), strings.NewReader(body)))
		calls := b.enqueuer.calls()
		switch w.Code {
		case http.StatusAccepted:
			if len(calls) != 1 || len(calls[0]) < 1 || len(calls[0]) > 4 {
				t.Fatalf("%q: taken as %v", body, calls)
			}
			for _, task := range calls[0] {
				if task.Kind == push.Notify {
					if _, err := push.ParseEvent(member.ID(task.Key), task.Payload); err != nil {
						t.Fatalf("%q: taken as %v: %v", body, task, err)
					}
					continue
				}
				args, err := tasks.ArgsOf[tasks.ContactArgs](queue.Task{Kind: task.Kind, Payload: task.Payload})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tasks.Parse(task.Kind, member.ID(task.Key), args.Contact); err != nil {
					t.Fatalf("%q: taken as %v: %v", body, task, err)
				}
			}
		case http.StatusBadRequest, http.StatusRequestEntityTooLarge:
			if len(calls) > 0 {
				t.Fatalf("%q: refused, and yet enqueued: %v", body, calls)
			}
		default:
			t.Fatalf("%q: %d %s", body, w.Code, w.Body)
		}
		conforms(t, postTasks(t.Context(), http.NoBody), w)
	})
}

// Whatever the id and the query, the reader is asked with good input or not at
// all, and it is never our fault.
func FuzzReadQuery(f *testing.F) {
	for _, seed := range [][2]string{
		{"12345", "limit=10&explain=1"},
		{"0", "limit=0"},
		{"18446744073709551616", "limit=51"},
		{"a", "limit=%zz"},
		{"1", "limit=1;limit=2"},
		{"..", "explain"},
		{"%2f", "\xff=\x00"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, id, query string) {
		b := setup(t)
		asked := false
		b.reader.read = func(_ context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
			if asked = true; v.ID == 0 || limit < 1 || limit > 50 || v.ID.String() != id {
				t.Errorf("%q, %q: the reader was asked for %d photos for %s", id, query, limit, v.ID)
			}
			return recent.Answer{Source: recent.FromIndex}, nil
		}
		r := newRequest(t.Context(), http.MethodGet, "/", http.NoBody)
		r.URL = &url.URL{Path: "/v1/users/" + id + "/recent-contact-photos", RawQuery: query}
		w := httptest.NewRecorder()
		b.server.Handler().ServeHTTP(w, r)
		switch w.Code {
		case http.StatusOK, http.StatusBadRequest, http.StatusNotFound:
		default:
			t.Fatalf("%q, %q: %d %s", id, query, w.Code, w.Body)
		}
		if asked != (w.Code == http.StatusOK) {
			t.Fatalf("%q, %q: %d, reader asked = %t", id, query, w.Code, asked)
		}
	})
}
