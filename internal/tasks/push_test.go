package tasks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

func TestNotifyAsJSON(t *testing.T) {
	t.Parallel()
	n, err := tasks.ParseLine([]byte(`{"type":"notify","user_id":"7","event":{"type":"comment","recipients":[8],"id":"x1","urgent":true}}`))
	if err != nil || n.Kind != push.Notify || n.Key != 7 || n.Queue != push.QueueUrgent || n.Priority != queue.Urgent {
		t.Errorf("%+v, %v", n, err)
	}
	for line, want := range map[string]string{
		`{"type":"notify","user_id":"7"}`:                                                   "event",
		`{"type":"notify","user_id":"7","event":{"type":"a","recipients":[]}}`:              "event.recipients",
		`{"type":"notify","user_id":"7","event":{"type":"a"},"contact_id":"8"}`:             "contact_id",
		`{"type":"upload","user_id":"7","event":{"type":"a"}}`:                              "event",
		`{"type":"deliver","user_id":"7"}`:                                                  "type",
		`{"type":"notify","user_id":"7","event":{"type":"a","id":"stream-5","colour":"x"}}`: "event.colour event.id",
	} {
		_, err := tasks.ParseLine([]byte(line))
		if got := strings.Join(fields(t, line, err), " "); got != want {
			t.Errorf("%s: fields %q, want %q", line, got, want)
		}
	}
	if _, err := tasks.Parse(push.Notify, 7, 0); err == nil || !strings.Contains(err.Error(), "takes an event, as JSON") {
		t.Errorf("by words: %v", err)
	}
}

// A thousand recipients with the longest ids, and all else as large as it may be.
func TestTheLargestEventIsAPayload(t *testing.T) {
	t.Parallel()
	var ids []string
	for i := range push.MaxRecipients {
		ids = append(ids, fmt.Sprintf(`"%d"`, uint64(1<<64-1)-uint64(i)))
	}
	line := fmt.Sprintf(`{"type":"notify","user_id":"7","event":{"type":%q,"id":%q,"object":%q,"collapse":%q,"title":%q,"body":%q,"data":{"k":%q},"recipients":[%s]}}`,
		strings.Repeat("t", push.MaxType), strings.Repeat("i", push.MaxID), "trip:"+strings.Repeat("9", 90), strings.Repeat("c", push.MaxCollapse),
		strings.Repeat("t", push.MaxTitle-2), strings.Repeat("b", push.MaxBody-2), strings.Repeat("d", push.MaxData-10), strings.Join(ids, ","))
	n, err := tasks.ParseLine([]byte(line))
	if err != nil || len(n.Payload) > queue.MaxPayload {
		t.Errorf("%d bytes, %v", len(n.Payload), err)
	}
}

func TestWithoutPushTasksAreLeftToOthers(t *testing.T) {
	t.Parallel()
	handlers := tasks.Handlers(nil, nil, nil, tasks.HandlerOptions{})
	for _, kind := range []string{push.Notify, push.Target, push.Deliver} {
		task := queue.Task{Kind: kind, Attempts: 25, MaxAttempts: 25}
		err := queuetest.Errors(handlers[kind].Handle(t.Context(), []queue.Task{task}))[0]
		if v := queue.Judge(queue.Result{Task: task, Err: err}); v.State != queue.Scheduled || !v.Uncounted || !strings.Contains(v.Message, "no push") {
			t.Errorf("%s: %+v", kind, v)
		}
	}
}

func TestDefaultWorkers(t *testing.T) {
	t.Parallel()
	want := []queue.Workers{
		{Queue: "default", Count: 2, Batch: 256},
		{Queue: "fan_out", Count: 2, Batch: 4},
		{Queue: "fan_out_again", Count: 1, Batch: 100},
		{Queue: "refill", Count: 2, Batch: 128},
		{Queue: "backfill", Count: 3},
		{Queue: "check", Count: 1},
		{Queue: "push", Count: 32, Batch: 128, Lease: 5 * time.Second},
		{Queue: "push_deliver", Count: 32, Batch: 128, Lease: 5 * time.Second},
		{Queue: "push_urgent", Count: 8, Batch: 64, Lease: 5 * time.Second},
	}
	if got := tasks.DefaultWorkers(); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
	}
}
