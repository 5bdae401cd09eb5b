package push_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

// telling sends what few are told when it is targeted, on a real store.
type telling struct {
	*push.MySQL
	*push.Targeting

	deliveries *push.Deliveries
	followers  push.Followers
	t          *testing.T

	mu       sync.Mutex
	sent     map[uint64]int // by device
	answer   func(ctx context.Context, m push.Message) push.Result
	refuses  bool // the database takes no receipts
	platform push.Platform
}

// Devices 10, 20, 30, 40 are those of members 1 to 4; 4 has quiet hours all day.
func newTelling(t *testing.T) *telling {
	t.Helper()
	store, db := openStore(t)
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES"+
		" (10, 1, 'fcm', REPEAT('a', 32), '{}', 5), (20, 2, 'fcm', REPEAT('b', 32), '{}', 5), (30, 3, 'fcm', REPEAT('c', 32), '{}', 5), (40, 4, 'fcm', REPEAT('d', 32), '{}', 5)")
	now := time.Now().UTC()
	minute := now.Hour()*60 + now.Minute()
	exec(t, db, "INSERT INTO push_settings (member_id, quiet_from, quiet_to, time_zone) VALUES (4, ?, ?, 'UTC')", (minute+1380)%1440, (minute+120)%1440)
	s := &telling{MySQL: store, t: t, sent: make(map[uint64]int), platform: push.FCM}
	s.followers = contacts.NewMySQL(db)
	s.restart()
	return s
}

// restart starts another process.
func (s *telling) restart() {
	s.deliveries = push.NewDeliveries(push.DeliveryOptions{
		Store: s, Senders: map[push.Platform]push.Sender{s.platform: s}, Log: slog.New(slog.DiscardHandler), Patience: time.Second,
	})
	s.Targeting = push.NewTargeting(push.TargetingOptions{Store: s, Followers: s.followers, Deliveries: s.deliveries})
	s.t.Cleanup(s.deliveries.Wait)
}

func (s *telling) Send(ctx context.Context, m push.Message) push.Result {
	s.mu.Lock()
	s.sent[m.Device.ID]++
	answer := s.answer
	s.mu.Unlock()
	if answer != nil {
		return answer(ctx, m)
	}
	return push.Result{Outcome: push.Accepted, Status: 200}
}

func (s *telling) Origin(push.Device) string                 { return "https://push.example:443" }
func (s *telling) Check(context.Context, push.Address) error { return nil }

func (s *telling) WriteReceipts(ctx context.Context, receipts []push.Receipt) error {
	if s.refuses {
		return errAway
	}
	return s.MySQL.WriteReceipts(ctx, receipts)
}

// tell has an event targeted, and returns its outcome and the devices that its tasks are for.
func (s *telling) tell(task queue.Task) (o queue.Outcome, left []uint64) {
	s.t.Helper()
	o = s.Handle(s.t.Context(), []queue.Task{task})[0]
	for _, n := range o.Next {
		var d push.Delivery
		must(s.t, json.Unmarshal(n.Payload, &d))
		for _, to := range d.To {
			left = append(left, to.Device)
		}
	}
	slices.Sort(left)
	return o, left
}

func (s *telling) times(device uint64) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent[device]
}

const toFour = `{"id":"one","type":"comment","recipients":["1","2","3","4"],"body":"hello"}`

// What need not wait is sent and recorded by the task of the event itself. If its process dies before the
// end, the same task finds it.
func TestFewAreToldAtOnce(t *testing.T) {
	t.Parallel()
	s := newTelling(t)
	task := newTask(1, 5, toFour)
	for try := range 2 { // the first one dies before it finishes
		task.Attempts = try + 1
		if o, left := s.tell(task); o.Err != nil || !slices.Equal(left, []uint64{40}) {
			t.Errorf("%v, and tasks for %d; want one for the device of who has quiet hours", o.Err, left)
		}
	}
	e, err := s.EventByID(t.Context(), "one")
	must(t, err)
	for _, device := range []uint64{10, 20, 30} {
		if s.times(device) != 1 {
			t.Errorf("device %d was told %d times", device, s.times(device))
		}
	}
	if list := fatesOf(t, s.MySQL, e.Number, 0); len(list) != 3 {
		t.Errorf("receipts %+v", list)
	}
	if o, left := s.tell(newTask(2, 5, `{"id":"one","type":"comment","recipients":["1"]}`)); o.Err != nil || len(left) > 0 || s.times(10) != 1 {
		t.Errorf("a repetition: %v, %d", o.Err, left)
	}
}

// What cannot be sent now is left to tasks: who is slow, whose push service fails, or of whose platform
// this process has no keys. The event waits for none of it.
func TestTheRestOfAFewIsLeftToTasks(t *testing.T) {
	t.Parallel()
	s := newTelling(t)
	answered := make(chan struct{})
	s.answer = func(_ context.Context, m push.Message) push.Result {
		switch m.Device.ID {
		case 10:
			<-answered
		case 20:
			return push.Result{Outcome: push.Wait, Status: 429, After: time.Minute}
		}
		return push.Result{Outcome: push.Accepted, Status: 200}
	}
	o, left := s.tell(newTask(1, 5, toFour))
	if o.Err != nil || !slices.Equal(left, []uint64{10, 20, 40}) {
		t.Errorf("%v, and tasks for %d", o.Err, left)
	}
	for _, n := range o.Next {
		if n.Delay <= 0 || n.Queue != push.QueuePush {
			t.Errorf("a task %+v", n)
		}
	}
	close(answered)
	s.deliveries.Wait()
	e, err := s.EventByID(t.Context(), "one")
	must(t, err)
	if list := fatesOf(t, s.MySQL, e.Number, 1); len(list) != 1 || list[0].State != push.StateAccepted {
		t.Errorf("who was slow: %+v", list)
	}
	s.platform = push.APNs
	s.restart()
	if o, left := s.tell(newTask(3, 5, `{"type":"comment","recipients":["1","2"],"urgent":true}`)); o.Err != nil || !slices.Equal(left, []uint64{10, 20}) || o.Next[0].Delay > 0 || o.Next[0].Queue != push.QueueUrgent {
		t.Errorf("without keys: %+v", o)
	}
}

// While the database takes no receipts, the event is not over: it comes again, and whoever has it then
// sends what is not recorded.
func TestAnEventIsOverWhenItsReceiptsAre(t *testing.T) {
	t.Parallel()
	s := newTelling(t)
	s.refuses = true
	o, left := s.tell(newTask(1, 5, toFour))
	if v := queue.Judge(queue.Result{Task: newTask(1, 5, toFour), Err: o.Err}); v.State != queue.Scheduled || !v.Uncounted {
		t.Errorf("%+v, with tasks for %d", v, left)
	}
}
