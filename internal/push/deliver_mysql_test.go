package push_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// recorder is a sender that answers by the name in a token.
type recorder struct {
	mu   sync.Mutex
	sent []push.Message
}

func (r *recorder) Send(_ context.Context, m push.Message) push.Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sent = append(r.sent, m)
	switch tokenOf(m.Device.Address) {
	case "gone":
		return push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered", GoneSince: time.Now().Add(time.Hour)}
	case "moved":
		return push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered", GoneSince: m.Device.Registered.Add(-time.Hour)}
	}
	return push.Result{Outcome: push.Accepted, Status: 200, ID: "id of " + tokenOf(m.Device.Address)}
}

func (*recorder) Origin(push.Device) string { return "https://push.example:443" }

// TestDeliverByMySQL is the whole way on a real server: what the fakes of the other tests
// take for granted.
func TestDeliverByMySQL(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'alice'), (2, 'bob'), (3, 'carol'), (4, 'dave')")
	exec(t, db, "INSERT INTO photos (id, owner_id, title, visibility, date_upload) VALUES (901, 1, 'lake', 'public', 1)")
	store := push.NewMySQL(db)
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	devices := map[string]push.Device{}
	for token, id := range map[string]uint64{"bob": 2, "gone": 3, "moved": 4} {
		d, err := store.Register(t.Context(), member.ID(id), push.APNs, addressOf(token))
		if err != nil {
			t.Fatal(err)
		}
		devices[token] = d
	}
	sender := &recorder{}
	handler := push.NewDeliveries(push.DeliveryOptions{
		Store: store, Senders: map[push.Platform]push.Sender{push.APNs: sender}, Log: slog.New(slog.DiscardHandler),
		Patience: time.Minute, Timeout: time.Minute,
	})
	t.Cleanup(handler.Wait)
	deliver := func(e *push.StoredEvent, tokens ...string) {
		t.Helper()
		for _, token := range tokens {
			d := push.Delivery{Event: e.Number, To: []push.Recipient{{Member: devices[token].Member, Device: devices[token].ID}}}
			if e.Collapse != "" {
				d.Burst = fmt.Sprintf("%x", e.Burst())
			}
			payload, err := json.Marshal(d)
			if err != nil {
				t.Fatal(err)
			}
			key, err := push.DeliverKey(devices[token].ID, payload)
			if err != nil {
				t.Fatal(err)
			}
			queuetest.Enqueue(t, q, queue.New{Kind: push.Deliver, Key: devices[token].ID, Queue: push.QueuePush, Payload: payload, DedupeKey: key})
		}
		list := queuetest.ClaimFor(t, q, push.QueuePush, 100, time.Minute)
		var results []queue.Result
		for i, o := range handler.Handle(t.Context(), list) {
			if o.Err != nil {
				t.Errorf("task %d: %v", list[i].ID, o.Err)
			}
			results = append(results, queue.Result{Task: list[i], Err: o.Err})
		}
		if lost, err := q.Finish(t.Context(), results); err != nil || lost > 0 {
			t.Fatalf("%d lost, %v", lost, err)
		}
	}
	receipt := func(e *push.StoredEvent, token string) (state push.State, reason, id string) {
		t.Helper()
		err := db.QueryRowContext(t.Context(), "SELECT state, reason, provider_id FROM push_receipts WHERE event_number = ? AND device_id = ?", e.Number, devices[token].ID).
			Scan(&state, &reason, &id)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			t.Fatal(err)
		}
		return state, reason, id
	}

	e := storeEvent(t, store, push.Event{Type: "upload", Actor: 1, Followers: true, Object: "photo:901", Body: "a lake"})
	deliver(e, "bob", "gone", "moved")
	deliver(e, "bob", "gone")
	if len(sender.sent) != 3 {
		t.Errorf("%d messages, want 3: one was accepted before, one is gone", len(sender.sent))
	}
	for _, m := range sender.sent {
		if m.Title != "alice" || m.Body != "a lake" || m.Device.ID != devices[tokenOf(m.Device.Address)].ID {
			t.Errorf("message %+v", m)
		}
	}
	for token, want := range map[string]push.State{"bob": push.StateAccepted, "gone": push.StateSkipped, "moved": push.StateFailed} {
		state, reason, id := receipt(e, token)
		if state != want || (id != "") != (token == "bob") {
			t.Errorf("%s: %s, %q, %q", token, state, reason, id)
		}
	}
	live, err := store.Devices(t.Context(), 3)
	if err != nil || len(live) != 1 || live[0].Gone.IsZero() || live[0].GoneReason != "Unregistered" {
		t.Errorf("what is gone is live: %v, %v", live, err)
	}
	if live, err = store.Devices(t.Context(), 4); err != nil || len(live) != 1 || !live[0].Gone.IsZero() {
		t.Errorf("what was registered after it was gone is not live: %v, %v", live, err)
	}

	private := storeEvent(t, store, push.Event{Type: "upload", Actor: 1, Followers: true, Object: "photo:901"})
	exec(t, db, "UPDATE photos SET visibility = 'private' WHERE id = 901")
	deliver(private, "bob")
	if state, reason, _ := receipt(private, "bob"); len(sender.sent) != 3 || state != push.StateSkipped || reason != string(push.NotVisible) {
		t.Errorf("%d messages, receipt %s %s", len(sender.sent), state, reason)
	}

	var burst []*push.StoredEvent
	var pending []push.Receipt
	for range 3 {
		e := storeEvent(t, store, push.Event{Type: "fave", Actor: 1, Followers: true, Collapse: "key"})
		burst = append(burst, e)
		pending = append(pending, push.Receipt{Event: e.Number, Member: 2, Device: devices["bob"].ID, State: push.StatePending, Burst: e.Burst()})
	}
	if err := store.WriteReceipts(t.Context(), nil, pending); err != nil {
		t.Fatal(err)
	}
	deliver(burst[0], "bob")
	deliver(burst[1], "bob")
	if len(sender.sent) != 4 || sender.sent[3].Count != 3 || sender.sent[3].Title != "alice (3)" || sender.sent[3].Event != burst[2].ID {
		t.Errorf("messages %+v", sender.sent[3:])
	}
	for i, e := range burst {
		if state, reason, _ := receipt(e, "bob"); state != push.StateAccepted || (reason == string(push.Doubled)) != (i < 2) {
			t.Errorf("receipt of event %d of the burst: %s %s", i, state, reason)
		}
	}
	last, err := store.LastSent(t.Context(), []push.BurstDevice{{Burst: burst[0].Burst(), Member: 2, Device: devices["bob"].ID}})
	if err != nil || last[0].Accepted.IsZero() {
		t.Errorf("the burst was accepted at %v, %v", last, err)
	}
}
