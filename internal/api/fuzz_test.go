package api_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
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
