package push_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// leaving is a push service at whose first message the database goes away.
type leaving struct {
	recorder
	once  sync.Once
	leave func()
}

func (l *leaving) Send(ctx context.Context, m push.Message) push.Result {
	l.once.Do(l.leave)
	return l.recorder.Send(ctx, m)
}

// lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lockedBuffer) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.buf.String(), text)
}

// The server is killed, or stopped, between the acceptances and their receipts, for longer than a
// batch tries to write them: what TestReceiptsOutliveTheDatabase holds of the fakes.
func TestReceiptsOutliveAServer(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		leave func(m *localserver.MySQL) error
		again func(ctx context.Context, m *localserver.MySQL) error
	}{
		"killed":  {(*localserver.MySQL).Kill, func(ctx context.Context, m *localserver.MySQL) error { return m.Restart(ctx) }},
		"stopped": {(*localserver.MySQL).Pause, func(_ context.Context, m *localserver.MySQL) error { return m.Resume() }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const devices = 30
			server := servertest.OwnMySQL(t)
			db, err := mysql.Open(server.DSN(servertest.Database))
			must(t, err)
			t.Cleanup(func() { _ = db.Close() })
			store, notifier := push.NewMySQL(db), &notify.Notifier{}
			q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier})
			exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada')")
			var list []push.Device
			for i := range devices {
				exec(t, db, "INSERT INTO users (id, username) VALUES (?, ?)", i+2, fmt.Sprint("member", i))
				d, err := store.Register(t.Context(), member.ID(i+2), push.APNs, addressOf(fmt.Sprint("token", i)))
				must(t, err)
				list = append(list, d)
			}
			deliver := func(e *push.StoredEvent) {
				t.Helper()
				var tasks []queue.New
				var pending []push.Receipt
				for _, d := range list {
					n := queue.New{Kind: push.Deliver, Key: d.ID, Queue: push.QueuePush, DedupeKey: fmt.Sprint(e.Number, "/", d.ID)}
					n.Payload = fmt.Appendf(nil, `{"event":%d,"to":[[%d,%d]]}`, e.Number, d.Member, d.ID)
					if e.Collapse != "" {
						n.Payload = fmt.Appendf(nil, `{"event":%d,"to":[[%d,%d]],"burst":"%x"}`, e.Number, d.Member, d.ID, e.Burst())
						pending = append(pending, push.Receipt{Event: e.Number, Member: d.Member, Device: d.ID, State: push.StatePending, Burst: e.Burst()})
					}
					tasks = append(tasks, n)
				}
				must(t, store.WriteReceipts(t.Context(), nil, pending))
				queuetest.Enqueue(t, q, tasks...)
			}
			for _, collapse := range []string{"", "key"} {
				deliver(storeEvent(t, store, push.Event{Type: "fave", Actor: 1, Recipients: []member.ID{2}, Collapse: collapse, ExpiresIn: time.Hour}))
			}
			sender, log := &leaving{}, &lockedBuffer{}
			sender.leave = func() {
				if err := fault.leave(server); err != nil {
					t.Error(err)
				}
			}
			d := push.NewDeliveries(push.DeliveryOptions{
				Store: store, Senders: map[push.Platform]push.Sender{push.APNs: sender}, Log: slog.New(slog.NewTextHandler(log, nil)),
			})
			pool := queue.NewPool(q, map[string]queue.Handler{push.Deliver: d}, queue.PoolOptions{
				Log: slog.New(slog.DiscardHandler), Notifier: notifier, Kinds: tasks.Kinds(),
				Workers: []queue.Workers{{Queue: push.QueuePush, Count: 2, Batch: 128, Lease: 5 * time.Second}},
			})
			ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
			ended := make(chan error, 1)
			go func() { ended <- pool.Run(ctx) }()
			defer d.Wait()
			defer func() { must(t, <-ended) }()
			defer stop()
			servertest.Eventually(t, "a batch waits for its receipts no longer", func() bool { return log.has("not written") })
			must(t, fault.again(t.Context(), server))
			one := func(query string) (n int) {
				must(t, db.QueryRowContext(t.Context(), query).Scan(&n))
				return n
			}
			servertest.Eventually(t, "all tasks have ended", func() bool {
				return one("SELECT (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM task_leases) + (SELECT COUNT(*) FROM parked_tasks)") == 0
			})
			if n := one("SELECT COUNT(*) FROM push_receipts WHERE state = 'accepted'"); n != 2*devices {
				t.Errorf("%d receipts of what was accepted, want %d", n, 2*devices)
			}
			sender.mu.Lock()
			defer sender.mu.Unlock()
			for _, m := range sender.sent {
				if m.Count != 1 {
					t.Errorf("device %d was told of %d events in place of one", m.Device.ID, m.Count)
				}
			}
			if len(sender.sent) != 2*devices {
				t.Errorf("%d messages, want %d: this process knew what was accepted", len(sender.sent), 2*devices)
			}
		})
	}
}
