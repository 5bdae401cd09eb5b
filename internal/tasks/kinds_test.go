package tasks_test

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/queue"
)

// noReader is asked nothing.
type noReader struct{ api.Reader }

// taken is a queue that remembers what the API enqueues.
type taken struct {
	api.Enqueuer
	batch []queue.New
}

func (q *taken) Enqueue(_ context.Context, batch []queue.New) ([]uint64, error) {
	q.batch = batch
	return make([]uint64, len(batch)), nil
}

// A kind that is listed is known everywhere: see the kind Poke.
func TestAKindIsAFileAndALine(t *testing.T) {
	t.Parallel()
	want := queue.New{Kind: tasks.Poke, Key: 7, Payload: json.RawMessage("{}"), Queue: tasks.QueueDefault, DedupeKey: "poke:7"}
	same := func(from string, got queue.New, err error) {
		t.Helper()
		if err != nil || got.Kind != want.Kind || got.Key != want.Key || string(got.Payload) != string(want.Payload) ||
			got.Queue != want.Queue || got.DedupeKey != want.DedupeKey {
			t.Errorf("%s: %+v, %v, want %+v", from, got, err, want)
		}
	}
	line, err := tasks.ParseLine([]byte(`{"type":"poke","user_id":"7"}`))
	same("a line", line, err)
	word, err := tasks.Parse(tasks.Poke, 7, 0)
	same("the command line", word, err)
	if _, err := tasks.ParseLine([]byte(`{"type":"poke","user_id":"7","contact_id":"8"}`)); err == nil {
		t.Error("it takes a contact")
	}

	q := &taken{}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tasks", strings.NewReader(`{"type":"poke","user_id":"7"}`))
	r.Host = "localhost"
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	api.New(api.Config{
		Reader: noReader{}, Enqueuer: q, Logger: quiet(), Health: func() api.Health { return api.Health{} },
	}).Handler().ServeHTTP(w, r)
	if w.Code != http.StatusAccepted || len(q.batch) != 1 {
		t.Fatalf("the API answers %d %s", w.Code, w.Body)
	}
	same("the API", q.batch[0], nil)

	if !strings.Contains(tasks.Usage(), "upload, refill or poke, with MEMBER") || !slices.Contains(tasks.Kinds().Names(), tasks.Poke) {
		t.Errorf("the command line knows %q, %q", tasks.Usage(), tasks.Kinds().Names())
	}
	if !slices.Contains(tasks.Changing(tasks.OwnSet), tasks.Poke) {
		t.Error("the audit does not know it")
	}
	queue.NewQueue(new(sql.DB), queue.Options{Kinds: tasks.Kinds(), Registerer: prometheus.DefaultRegisterer})
	if _, ok := metricstest.Gather(t)[`activityd_tasks_finished_total{outcome="done",queue="default",type="poke"}`]; !ok {
		t.Error("the metrics do not know it")
	}
	if _, ok := tasks.Handlers(nil, nil, nil, tasks.HandlerOptions{})[tasks.Poke]; !ok {
		t.Error("it has no handler")
	}
}

// A client that repeats itself over an update must not be refused: what
// [queue.Queue.EnqueueOnce] compares stays what it is.
func TestTheJSONOfTasksStays(t *testing.T) {
	t.Parallel()
	part := tasks.NewFanOut(5, 6)
	part.Priority, part.Delay, part.Life = -10, 2, 3
	raw, err := json.Marshal([]queue.New{tasks.NewAddContact(1, 2), tasks.NewRemoveContact(3, 4), tasks.NewUpload(5), tasks.NewRefill(1<<64 - 1), part})
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"type":"add_contact","subject":"1","args":{"contact_id":"2"},"queue":"default","dedupe_key":"pair:1:2"},` +
		`{"type":"remove_contact","subject":"3","args":{"contact_id":"4"},"queue":"default","dedupe_key":"pair:3:4"},` +
		`{"type":"upload","subject":"5","args":{},"queue":"default","dedupe_key":"upload:5"},` +
		`{"type":"refill","subject":"18446744073709551615","args":{},"queue":"refill","dedupe_key":"refill:18446744073709551615"},` +
		`{"type":"fan_out","subject":"5","args":{"after":"6"},"queue":"fan_out","dedupe_key":"fan_out:5:6","priority":-10,"delay":2,"life":3}]`
	if string(raw) != want {
		t.Errorf("tasks are\n%s, want\n%s", raw, want)
	}
	if hash := sha256.Sum256(raw); hex.EncodeToString(hash[:]) != "0c7f81f3f747f095789944588941bbc4a5d93943dbd13cea695375dfbb9ea5b1" {
		t.Errorf("the hash is %x", hash)
	}
}
