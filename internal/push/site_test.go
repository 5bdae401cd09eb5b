package push_test

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// notified is a site whose members are 1, ada, and 2 to 4, who follow her and have a device each: 20, 30 and 40. Tests
// claim its tasks, handle and finish them.
type notified struct {
	*testing.T

	db     *sql.DB
	queue  *queue.Queue
	store  *push.MySQL
	sender *scripted
	made   []*push.Handler
}

func newNotified(t *testing.T) *notified {
	t.Helper()
	s := &notified{T: t, db: openDB(t), sender: newScripted()}
	s.queue, s.store = queue.NewQueue(s.db, queue.Options{Kinds: tasks.Kinds()}), push.NewMySQL(s.db)
	exec(t, s.db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob'), (3, 'eve'), (4, 'dan')")
	exec(t, s.db, "INSERT INTO contacts (user_id, contact_id) VALUES (2, 1), (3, 1), (4, 1)")
	exec(t, s.db, "INSERT INTO photos (id, owner_id, title, visibility, date_upload) VALUES (901, 1, 'lake', 'public', 1)")
	for id := 2; id <= 4; id++ {
		exec(t, s.db, "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (? * 10, ?, 'fcm', REPEAT(?, 32), JSON_OBJECT('token', CONCAT('device', ? * 10)), 5)", id, id, id, id)
	}
	t.Cleanup(func() {
		for _, d := range s.made {
			d.Wait()
		}
	})
	return s
}

// handler returns the handler of a process.
func (s *notified) handler(change ...func(o *push.HandlerOptions)) *push.Handler {
	o := push.HandlerOptions{
		Store: s.store, Followers: contacts.NewMySQL(s.db), Senders: map[push.Platform]push.Sender{push.FCM: s.sender},
		Log: slog.New(slog.DiscardHandler), Patience: time.Minute, Timeout: time.Minute,
	}
	for _, f := range change {
		f(&o)
	}
	h := push.NewHandler(o)
	s.made = append(s.made, h)
	return h
}

// enqueue inserts an event of ada, as a site does.
func (s *notified) enqueue(event string) {
	s.Helper()
	exec(s.T, s.db, "INSERT INTO tasks (type, subject, args, queue) VALUES ('notify', 1, ?, 'push')", event)
}

// claim claims all that is due in the queues.
func (s *notified) claim(queues ...string) (list []queue.Task) {
	s.Helper()
	_, err := s.queue.Sweep(s.Context())
	must(s.T, err)
	for _, name := range queues {
		some, err := s.queue.Claim(s.Context(), name, 100, time.Minute)
		must(s.T, err)
		list = append(list, some...)
	}
	return list
}

// finish handles tasks and finishes them, and returns how many there were.
func (s *notified) finish(h queue.Handler, list []queue.Task) int {
	s.Helper()
	var results []queue.Result
	for i, o := range h.Handle(s.Context(), list) {
		results = append(results, queue.Result{Task: list[i], Err: o.Err, Next: o.Next})
	}
	if len(results) > 0 {
		lost, err := s.queue.Finish(s.Context(), results)
		if err != nil || lost > 0 {
			s.Errorf("finish: %d lost, %v", lost, err)
		}
	}
	return len(list)
}

// target has a process without keys do all that there is to do: deliveries wait.
func (s *notified) target() {
	s.Helper()
	h := s.handler(func(o *push.HandlerOptions) { o.Senders = nil })
	for some := 1; some > 0; {
		some = s.finish(h, s.claim(all...))
	}
	s.soon()
}

var all = []string{queue.DefaultQueue, push.QueuePush, push.QueueDeliver, push.QueueUrgent}

// deliver does the due tasks, once.
func (s *notified) deliver(h *push.Handler) {
	s.finish(h, s.claim(all...))
}

// soon has waiting tasks done now.
func (s *notified) soon() {
	s.Helper()
	exec(s.T, s.db, "UPDATE tasks SET run_at = 1 WHERE state IN ('waiting', 'scheduled')")
}

// left returns the tasks that are not done, as type and arguments.
func (s *notified) left() []string {
	s.Helper()
	list, err := mysql.Select(s.Context(), s.db, mysql.Column[string], "SELECT CONCAT(type, ' ', args) FROM tasks WHERE state <> 'running' ORDER BY id")
	must(s.T, err)
	return list
}

// receipts returns the ends of all events: id, device, state and reason.
func (s *notified) receipts() []string {
	s.Helper()
	return column(s.T, s.db, "SELECT TRIM(CONCAT_WS(' ', e.id, r.device_id, r.state, r.reason)) FROM push_receipts r JOIN push_events e ON e.number = r.event_number ORDER BY e.id, r.device_id")
}

func (s *notified) want(what string, got []string, want ...string) {
	s.Helper()
	if !slices.Equal(got, want) {
		s.Errorf("%s: %q, want %q", what, got, want)
	}
}

// scripted is a sender that answers as it is told to.
type scripted struct {
	mu     sync.Mutex
	sent   []push.Message
	answer func(ctx context.Context, m push.Message) push.Result
}

var accepted = push.Result{Outcome: push.Accepted, Status: 200, ID: "p1"}

func newScripted() *scripted {
	s := &scripted{}
	s.answers(accepted)
	return s
}

// answers has it give that result.
func (s *scripted) answers(r push.Result) {
	s.does(func(context.Context, push.Message) push.Result { return r })
}

func (s *scripted) does(answer func(context.Context, push.Message) push.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = answer
}

func (s *scripted) Send(ctx context.Context, m push.Message) push.Result {
	s.mu.Lock()
	s.sent = append(s.sent, m)
	answer := s.answer
	s.mu.Unlock()
	return answer(ctx, m)
}

func (*scripted) Origin(push.Device) string { return "https://push.example:443" }

// take returns the messages since, as device, event and count.
func (s *scripted) take() (list []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.sent {
		list = append(list, strings.TrimSuffix(fmt.Sprintf("%d %s ×%d", m.Device.ID, m.Event, m.Count), " ×1"))
	}
	s.sent = nil
	slices.Sort(list)
	return list
}
