package push_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// instantSender accepts all messages after a time.
type instantSender struct {
	sent  atomic.Int64
	after time.Duration
}

func (s *instantSender) Send(context.Context, push.Message) push.Result {
	if s.after > 0 {
		<-time.After(s.after)
	}
	s.sent.Add(1)
	return push.Result{Outcome: push.Accepted, Status: 200, ID: "6f1ff1ea-1fd8-4f2c-9d8e-5a3c9d7b0f11"}
}

func (s *instantSender) Origin(push.Device) string { return "https://push.example:443" }

// idle is a handler that does nothing.
type idle struct{ done atomic.Int64 }

func (h *idle) Handle(_ context.Context, batch []queue.Task) []queue.Outcome {
	h.done.Add(int64(len(batch)))
	return make([]queue.Outcome, len(batch))
}

// BenchmarkDeliver measures deliveries through the queue, by a sender that does nothing,
// and the same tasks by a handler that does nothing: what deliveries cost beyond the queue.
func BenchmarkDeliver(b *testing.B) {
	const devices = 10_000
	db, err := mysql.Open(servertest.MySQLDSN(b))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	insertRows(b, db, "users (id, username)", devices+1, func(i int) string { return fmt.Sprintf("(%d, 'member%d')", i+1, i+1) })
	insertRows(b, db, "push_devices (id, member_id, platform, address_hash, address, registered_at)", devices, func(i int) string {
		return fmt.Sprintf("(%d, %d, 'apns', UNHEX(SHA2('%d', 256)), JSON_OBJECT('token', SHA2('%d', 256)), 1)", i+1, i+1, i, i)
	})
	insertRows(b, db, "photos (id, owner_id, title, visibility, date_upload)", 1, func(int) string {
		return fmt.Sprintf("(901, %d, 'photo', 'public', 1)", devices+1)
	})
	store := push.NewMySQL(db)
	for _, kind := range []struct {
		name     string
		collapse string
		queue    bool
	}{{"queue", "", true}, {"event", "", false}, {"burst", "key", false}} {
		b.Run(kind.name, func(b *testing.B) {
			var took time.Duration
			for b.Loop() {
				q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: &notify.Notifier{}})
				event := storeEvent(b, store, push.Event{
					Type: "upload", Actor: member.ID(devices + 1), Object: "photo:901", Followers: true, Title: "A new photo", Body: "of a lake", Collapse: kind.collapse,
				})
				each := 256
				if kind.collapse != "" {
					each = 1
				}
				insertRows(b, db, "tasks (type, subject, args, queue)", (devices+each-1)/each, func(i int) string {
					var to []string
					for d := i*each + 1; d <= min((i+1)*each, devices); d++ {
						to = append(to, fmt.Sprintf("[%d,%[1]d]", d))
					}
					return fmt.Sprintf(`('deliver', %d, '{"event":%d,"to":[%s]}', 'push')`, i*each+1, event.Number, strings.Join(to, ","))
				})
				if kind.collapse != "" {
					burst := event.Burst()
					insertRows(b, db, "push_receipts (event_number, member_id, device_id, state, at, burst)", devices, func(i int) string {
						return fmt.Sprintf("(%d, %d, %d, 'pending', 1, X'%x')", event.Number, i+1, i+1, burst)
					})
				}
				sender := &instantSender{}
				var handler queue.Handler = push.NewDeliveries(push.DeliveryOptions{
					Store: store, Senders: map[push.Platform]push.Sender{push.APNs: sender}, Log: slog.New(slog.DiscardHandler),
				})
				if kind.queue {
					handler = &idle{}
				}
				start := time.Now()
				drain(b, db, q, handler)
				took += time.Since(start)
				if n := sender.sent.Load(); n != devices && !kind.queue {
					b.Fatalf("%d messages, want %d", n, devices)
				}
			}
			b.ReportMetric(float64(devices*b.N)/took.Seconds(), "deliveries/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// drain runs a pool until there are no tasks.
func drain(b *testing.B, db *sql.DB, q *queue.Queue, handler queue.Handler) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	pool := queue.NewPool(q, map[string]queue.Handler{push.Deliver: handler}, queue.PoolOptions{
		Log: slog.New(slog.DiscardHandler), Kinds: tasks.Kinds(),
		Workers: []queue.Workers{{Queue: push.QueuePush, Count: 4, Batch: 256, Lease: 5 * time.Second}},
	})
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	for left := 1; left > 0; {
		<-time.After(5 * time.Millisecond)
		if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM tasks) OR EXISTS (SELECT 1 FROM task_leases)").Scan(&left); err != nil {
			b.Fatal(err)
		}
	}
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}

// storeEvent stores an event that was created just now.
func storeEvent(tb testing.TB, store *push.MySQL, e push.Event) *push.StoredEvent {
	tb.Helper()
	task := uint64(time.Now().UnixNano())
	e.ID = fmt.Sprintf("task-%d", task)
	stored, err := store.StoreEvents(tb.Context(), []push.NewEvent{{Event: e, Task: task, Created: time.Now()}})
	if err != nil {
		tb.Fatal(err)
	}
	return stored[0].StoredEvent
}

// insertRows inserts n rows into a table.
func insertRows(tb testing.TB, db *sql.DB, table string, n int, row func(i int) string) {
	tb.Helper()
	for from := 0; from < n; from += 1000 {
		var rows []string
		for i := from; i < min(n, from+1000); i++ {
			rows = append(rows, row(i))
		}
		exec(tb, db, "INSERT INTO "+table+" VALUES "+strings.Join(rows, ","))
	}
}
