package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func TestTasksGolden(t *testing.T) {
	t.Parallel()
	add := `{"type":"add_contact","user_id":"12345","contact_id":"98765"}`
	event, err := push.NewNotify(push.Event{ID: "e", Type: "upload", Actor: 5, Object: "photo:901", Followers: true, Collapse: "upload:5"})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		body string
		want []queue.New
		ids  string
	}{
		"an event":        {`{"type":"notify","user_id":"5","event":{"id":"e","type":"upload","object":"photo:901"}}`, []queue.New{event}, `{"tasks":[{"id":"1"}]}`},
		"one add":         {add, []queue.New{tasks.NewAddContact(12345, 98765)}, `{"tasks":[{"id":"1"}]}`},
		"one remove":      {`{"type":"remove_contact","user_id":1,"contact_id":2}`, []queue.New{tasks.NewRemoveContact(1, 2)}, `{"tasks":[{"id":"1"}]}`},
		"one upload":      {` {"user_id":"18446744073709551615", "type":"upload"} ` + "\n", []queue.New{tasks.NewUpload(1<<64 - 1)}, `{"tasks":[{"id":"1"}]}`},
		"a batch of one":  {`{"tasks":[` + add + `]}`, []queue.New{tasks.NewAddContact(12345, 98765)}, `{"tasks":[{"id":"1"}]}`},
		"a batch of two":  {`{"tasks": [ {"type":"upload","user_id":"9"} , ` + add + ` ] }`, []queue.New{tasks.NewUpload(9), tasks.NewAddContact(12345, 98765)}, `{"tasks":[{"id":"1"},{"id":"2"}]}`},
		"its own contact": {`{"type":"add_contact","user_id":"5","contact_id":"5"}`, []queue.New{tasks.NewAddContact(5, 5)}, `{"tasks":[{"id":"1"}]}`},
		"an escape":       {`{"type":"up\u006coad","user_id":"\u0039"}`, []queue.New{tasks.NewUpload(9)}, `{"tasks":[{"id":"1"}]}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			foreseen(t, postTasks(t.Context(), strings.NewReader(test.body)))
			w := b.post(t, test.body)
			if w.Code != http.StatusAccepted || w.Body.String() != test.ids {
				t.Errorf("%d %s, want 202 %s", w.Code, w.Body, test.ids)
			}
			if diff := cmp.Diff([][]queue.New{test.want}, b.enqueuer.calls()); diff != "" {
				t.Errorf("enqueued (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTasksRefusesBadTasks(t *testing.T) {
	t.Parallel()
	good := `{"type":"upload","user_id":"1"}`
	for name, test := range map[string]struct {
		body   string
		fields []string
	}{
		"a letter":               {`{"type":"upload","user_id":"a"}`, []string{"user_id"}},
		"zero":                   {`{"type":"upload","user_id":0}`, []string{"user_id"}},
		"zero string":            {`{"type":"upload","user_id":"0"}`, []string{"user_id"}},
		"two to the 64th":        {`{"type":"upload","user_id":18446744073709551616}`, []string{"user_id"}},
		"negative":               {`{"type":"upload","user_id":-1}`, []string{"user_id"}},
		"fraction":               {`{"type":"upload","user_id":1.5}`, []string{"user_id"}},
		"exponent":               {`{"type":"upload","user_id":1e3}`, []string{"user_id"}},
		"id null":                {`{"type":"upload","user_id":null}`, []string{"user_id"}},
		"id true":                {`{"type":"upload","user_id":true}`, []string{"user_id"}},
		"id object":              {`{"type":"upload","user_id":{}}`, []string{"user_id"}},
		"id array":               {`{"type":"upload","user_id":["1"]}`, []string{"user_id"}},
		"id empty":               {`{"type":"upload","user_id":""}`, []string{"user_id"}},
		"contact a letter":       {`{"type":"add_contact","user_id":"1","contact_id":"b"}`, []string{"contact_id"}},
		"contact zero":           {`{"type":"remove_contact","user_id":"1","contact_id":"0"}`, []string{"contact_id"}},
		"user missing":           {`{"type":"upload"}`, []string{"user_id"}},
		"contact missing":        {`{"type":"add_contact","user_id":"1"}`, []string{"contact_id"}},
		"contact extra":          {`{"type":"upload","user_id":"1","contact_id":"2"}`, []string{"contact_id"}},
		"contact extra null":     {`{"type":"upload","user_id":"1","contact_id":null}`, []string{"contact_id"}},
		"event missing":          {`{"type":"notify","user_id":"1"}`, []string{"event"}},
		"event misplaced":        {`{"type":"upload","user_id":"1","event":{"type":"a"}}`, []string{"event"}},
		"an empty event":         {`{"type":"notify","user_id":"1","event":{}}`, []string{"event.type"}},
		"an actor in an event":   {`{"tasks":[{"type":"notify","user_id":"1","event":{"type":"a","actor_id":"1","recipients":[]}}]}`, []string{"tasks[0].event.actor_id", "tasks[0].event.recipients"}},
		"type missing":           {`{"user_id":"1"}`, []string{"type"}},
		"type unknown":           {`{"type":"explode","user_id":"1"}`, []string{"type"}},
		"type internal":          {`{"type":"fan_out","user_id":"1"}`, []string{"type"}},
		"type wrong case":        {`{"type":"Upload","user_id":"1"}`, []string{"type"}},
		"type number":            {`{"type":7,"user_id":"1"}`, []string{"type"}},
		"type null":              {`{"type":null,"user_id":"1"}`, []string{"type"}},
		"unknown field":          {`{"type":"upload","user_id":"1","when":5}`, []string{"when"}},
		"field in wrong case":    {`{"type":"upload","User_ID":"1"}`, []string{"User_ID", "user_id"}},
		"field twice":            {`{"type":"upload","user_id":"1","user_id":"2"}`, []string{"user_id"}},
		"empty object":           {`{}`, []string{"type", "user_id"}},
		"everything wrong":       {`{"x":1,"type":"y","user_id":"z","contact_id":0}`, []string{"x", "type", "user_id"}},
		"an array":               {`[` + good + `]`, []string{"body"}},
		"a string":               {`"upload"`, []string{"body"}},
		"null":                   {`null`, []string{"body"}},
		"a number":               {`7`, []string{"body"}},
		"a boolean":              {`true`, []string{"body"}},
		"batch empty":            {`{"tasks":[]}`, []string{"tasks"}},
		"batch null":             {`{"tasks":null}`, []string{"tasks"}},
		"batch an object":        {`{"tasks":` + good + `}`, []string{"tasks"}},
		"batch a string":         {`{"tasks":"x"}`, []string{"tasks"}},
		"batch twice":            {`{"tasks":[` + good + `],"tasks":[` + good + `]}`, []string{"tasks"}},
		"batch and task":         {`{"tasks":[` + good + `],"type":"upload","user_id":"1"}`, []string{"type", "user_id"}},
		"batch in a batch":       {`{"tasks":[{"tasks":[` + good + `]}]}`, []string{"tasks[0].tasks", "tasks[0].type", "tasks[0].user_id"}},
		"half bad":               {`{"tasks":[` + good + `,{"type":"add_contact","user_id":"1"},` + good + `]}`, []string{"tasks[1].contact_id"}},
		"bad at the end":         {`{"tasks":[` + good + `,` + good + `,` + good + `,{"type":"upload","user_id":"-1"}]}`, []string{"tasks[3].user_id"}},
		"two bad":                {`{"tasks":[{"type":"x","user_id":"1"},` + good + `,{"type":"upload","user_id":0}]}`, []string{"tasks[0].type", "tasks[2].user_id"}},
		"a null in a batch":      {`{"tasks":[` + good + `,null]}`, []string{"tasks[1]"}},
		"a number in a batch":    {`{"tasks":[7,` + good + `]}`, []string{"tasks[0]"}},
		"field twice in a batch": {`{"tasks":[{"type":"upload","type":"upload","user_id":"1"}]}`, []string{"tasks[0].type"}},
		"one more than the cap":  {`{"tasks":[` + strings.Repeat(good+`,`, 5) + good + `]}`, []string{"tasks"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(c *api.Config) { c.MaxBatch = 5 })
			p := wantProblem(t, b.post(t, test.body), http.StatusBadRequest, "invalid-task")
			if !slices.Equal(p.fields(), test.fields) || p.Field != test.fields[0] {
				t.Errorf("fields = %q, first %q, want %q", p.fields(), p.Field, test.fields)
			}
			if got := b.enqueuer.calls(); len(got) > 0 {
				t.Errorf("enqueued %v", got)
			}
		})
	}
}

func TestTasksRefusesMalformedBodies(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"empty":            "",
		"space":            "  ",
		"cut off":          `{"type":"upload","user_id":"1"`,
		"trailing object":  `{"type":"upload","user_id":"1"}{}`,
		"trailing comma":   `{"type":"upload","user_id":"1",}`,
		"trailing letters": `{"type":"upload","user_id":"1"} x`,
		"a form":           `type=upload&user_id=1`,
		"leading zero":     `{"type":"upload","user_id":01}`,
		"not UTF-8":        "{\"type\":\"upload\",\"user_id\":\"1\xff\"}",
		"two order marks":  "\ufeff\ufeff" + `{"type":"upload","user_id":"1"}`,
		"very deep":        strings.Repeat("[", 20_000) + strings.Repeat("]", 20_000),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			wantProblem(t, b.post(t, body), http.StatusBadRequest, "malformed-body")
			if got := b.enqueuer.calls(); len(got) > 0 {
				t.Errorf("enqueued %v", got)
			}
		})
	}
}

func TestTasksBatchCap(t *testing.T) {
	t.Parallel()
	b := setup(t)
	batch := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"type":"upload","user_id":%d}`, i+1))
		}
		return `{"tasks":[` + strings.Join(list, ",") + `]}`
	}
	if w := b.post(t, batch(api.DefaultMaxBatch)); w.Code != http.StatusAccepted {
		t.Errorf("a full batch: %d %s", w.Code, w.Body)
	}
	p := wantProblem(t, b.post(t, batch(api.DefaultMaxBatch+1)), http.StatusBadRequest, "invalid-task")
	if want := "holds 1001 tasks"; !strings.Contains(p.Detail, want) {
		t.Errorf("detail = %q, want %q", p.Detail, want)
	}
	if got := len(b.enqueuer.calls()); got != 1 {
		t.Errorf("enqueued %d batches, want 1", got)
	}
}

func TestTasksNamesNoMoreFaultsThanFit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	body := `{"tasks":[` + strings.Repeat(`{"`+strings.Repeat("é", 500)+`":1},`, 500) + `{}]}`
	w := b.post(t, body)
	p := wantProblem(t, w, http.StatusBadRequest, "invalid-task")
	if len(p.Errors) != 20 || w.Body.Len() > 8000 {
		t.Errorf("%d faults in %d bytes, want 20 in a few thousand", len(p.Errors), w.Body.Len())
	}
}

func TestTasksContentType(t *testing.T) {
	t.Parallel()
	for contentType, ok := range map[string]bool{
		"application/json":                  true,
		"Application/JSON; charset=utf-8":   true,
		"":                                  false,
		"text/plain":                        false,
		"application/jsonx":                 false,
		"application/problem+json":          false,
		"application/x-www-form-urlencoded": false,
		"application/json, text/plain":      false,
		";;;":                               false,
	} {
		b := setup(t)
		r := postTasks(t.Context(), strings.NewReader(`{"type":"upload","user_id":"1"}`))
		r.Header.Set("Content-Type", contentType)
		w := b.do(t, r)
		if ok && w.Code != http.StatusAccepted {
			t.Errorf("%q: %d %s, want 202", contentType, w.Code, w.Body)
		}
		if !ok {
			wantProblem(t, w, http.StatusUnsupportedMediaType, "unsupported-media-type")
		}
		if got := len(b.enqueuer.calls()) > 0; got != ok {
			t.Errorf("%q: enqueued = %t", contentType, got)
		}
	}
}

func TestTasksBodySize(t *testing.T) {
	t.Parallel()
	body := `{"type":"upload","user_id":"1"}`
	for extra, ok := range map[int]bool{0: true, 1: false} {
		b := setup(t, func(c *api.Config) { c.MaxBody = int64(len(body)) })
		w := b.post(t, body+strings.Repeat(" ", extra))
		if ok && w.Code != http.StatusAccepted {
			t.Errorf("a body of exactly the limit: %d %s", w.Code, w.Body)
		}
		if !ok {
			wantProblem(t, w, http.StatusRequestEntityTooLarge, "body-too-large")
		}
		if got := len(b.enqueuer.calls()) > 0; got != ok {
			t.Errorf("%d bytes too many: enqueued = %t", extra, got)
		}
	}
}
