package push_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// newHandler returns the handler of a process of its own.
func newHandler(t *testing.T, db *sql.DB, sender push.Sender, patience time.Duration) push.Handler {
	t.Helper()
	store := push.NewMySQL(db)
	d := push.NewDeliveries(push.DeliveryOptions{
		Store: store, Senders: map[push.Platform]push.Sender{push.FCM: sender}, Log: slog.New(slog.DiscardHandler), Patience: patience, Timeout: time.Minute,
	})
	t.Cleanup(d.Wait)
	return push.Handler{Targeting: push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db)}), Deliveries: d}
}

// someDevices gives member 1 followers with the ids 2, 3, …, each with a device of ten times its id.
func someDevices(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada')")
	for id := 2; id < 2+n; id++ {
		exec(t, db, fmt.Sprintf("INSERT INTO users (id, username) VALUES (%d, 'u%d')", id, id))
		exec(t, db, fmt.Sprintf("INSERT INTO contacts (user_id, contact_id) VALUES (%d, 1)", id))
		exec(t, db, fmt.Sprintf("INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (%d, %d, 'fcm', UNHEX(SHA2(%d, 256)), '{}', 5)", 10*id, id, id))
	}
}

// receiptsOf returns what receipts and runs say of the devices of an event.
func receiptsOf(t *testing.T, db *sql.DB, event string) []string {
	t.Helper()
	list, err := mysql.Select(t.Context(), db, mysql.Column[string], `
SELECT CONCAT(r.device_id, ' ', r.state, IF(r.reason = '', '', ' '), r.reason) FROM push_receipts r JOIN push_events e ON e.number = r.event_number WHERE e.id = ?
UNION ALL SELECT CONCAT(d.d, ' ', r.state) FROM push_runs r JOIN push_events e ON e.number = r.event_number, JSON_TABLE(r.devices, '$[*]' COLUMNS (d INT PATH '$[1]')) AS d WHERE e.id = ?`, event, event)
	must(t, err)
	slices.Sort(list)
	return list
}

// An event for few devices is sent by its own task. A process that dies before the finish has sent nothing twice: another one finds what
// was accepted.
func TestASmallEventIsSentByItsTask(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		event   string
		devices []string
	}{
		"one device":        {`{"id":"e","type":"fave","recipients":["2"]}`, []string{"20"}},
		"several":           {`{"id":"e","type":"fave","recipients":["2","3","4"]}`, []string{"20", "30", "40"}},
		"urgent":            {`{"id":"e","type":"fave","recipients":["2","3"],"urgent":true}`, []string{"20", "30"}},
		"a burst":           {`{"id":"e","type":"upload"}`, []string{"20", "30", "40"}},
		"a burst of one":    {`{"id":"e","type":"fave","recipients":["3"],"collapse":"c"}`, []string{"30"}},
		"a burst at hurry":  {`{"id":"e","type":"upload","urgent":true}`, []string{"20", "30", "40"}},
		"no device":         {`{"id":"e","type":"fave","recipients":["9"]}`, nil},
		"without followers": {`{"id":"e","type":"upload","recipients":["9"],"collapse":"c"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t)
			someDevices(t, db, 3)
			sender := &recorder{}
			task := newTask(7, 1, test.event)
			for attempt := 1; attempt <= 3; attempt++ {
				task.Attempts = attempt
				if o := newHandler(t, db, sender, time.Minute).Handle(t.Context(), []queue.Task{task})[0]; o.Err != nil || len(o.Next) > 0 {
					t.Fatalf("attempt %d: %+v", attempt, o)
				}
			}
			var sent, want []string
			for _, m := range sender.sent {
				sent = append(sent, fmt.Sprint(m.Device.ID))
			}
			slices.Sort(sent)
			if !slices.Equal(sent, test.devices) {
				t.Errorf("messages to %v, want one to each of %v", sent, test.devices)
			}
			for _, d := range test.devices {
				want = append(want, d+" accepted")
			}
			if test.devices == nil {
				want = []string{"0 skipped no_device"}
			}
			if got := receiptsOf(t, db, "e"); !slices.Equal(got, want) {
				t.Errorf("the receipts are %v, want %v", got, want)
			}
		})
	}
}

// An event for more devices than that is left to deliver tasks.
func TestHowManyDevicesAreFew(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		fields string
		few    int
	}{"alone": {"", 256}, "a burst": {`,"collapse":"c"`, 15}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t)
			someDevices(t, db, test.few+1)
			for more := range 2 {
				var to []string
				for i := range test.few + more {
					to = append(to, fmt.Sprintf(`"%d"`, 2+i))
				}
				sender := &recorder{}
				event := fmt.Sprintf(`{"id":"e%d","type":"fave","recipients":[%s]%s}`, more, strings.Join(to, ","), test.fields)
				o := newHandler(t, db, sender, time.Minute).Handle(t.Context(), []queue.Task{newTask(uint64(7+more), 1, event)})[0]
				must(t, o.Err)
				left := 0
				for _, n := range o.Next {
					var d push.Delivery
					must(t, json.Unmarshal(n.Payload, &d))
					left += len(d.To)
				}
				sent, wantLeft := len(sender.sent), more*(test.few+more)
				if sent+left != test.few+more || left != wantLeft {
					t.Errorf("of %d devices %d are sent to at once, and %d left to tasks, want %d", test.few+more, sent, left, wantLeft)
				}
				exec(t, db, "UPDATE push_receipts SET at = 1")
				exec(t, db, "UPDATE push_runs SET at = 1")
			}
		})
	}
}

// stuck is a sender that answers for some devices only when the test ends.
type stuck struct {
	recorder
	devices []uint64
	end     chan struct{}
}

func (s *stuck) Send(ctx context.Context, m push.Message) push.Result {
	if slices.Contains(s.devices, m.Device.ID) {
		<-s.end
	}
	return s.recorder.Send(ctx, m)
}

// What of a small event cannot be sent at once is a task of its own, and what was sent is not sent again by it: for quiet hours, a platform
// without keys, and a push service that does not answer.
func TestWhatWaitsOfASmallEventHasADelivery(t *testing.T) {
	t.Parallel()
	for name, fields := range map[string]string{"alone": "", "a burst": `,"collapse":"c"`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := openDB(t)
			someDevices(t, db, 4)
			store, now := push.NewMySQL(db), time.Now().UTC()
			from := now.Hour()*60 + now.Minute()
			must(t, store.SetSettings(t.Context(), 3, push.Settings{Quiet: push.QuietHours{From: (from + 1380) % 1440, To: (from + 60) % 1440, Zone: "UTC"}}))
			exec(t, db, "UPDATE push_devices SET platform = 'apns' WHERE id = 40")
			sender := &stuck{devices: []uint64{50}, end: make(chan struct{})}
			h := newHandler(t, db, sender, 20*time.Millisecond)
			t.Cleanup(func() { close(sender.end) })
			o := h.Handle(t.Context(), []queue.Task{newTask(7, 1, `{"id":"e","type":"fave","recipients":["2","3","4","5"]`+fields+`}`)})[0]
			must(t, o.Err)
			waits := make(map[uint64]time.Duration)
			for _, n := range o.Next {
				var d push.Delivery
				must(t, json.Unmarshal(n.Payload, &d))
				for _, to := range d.To {
					waits[to.Device] = n.Delay
				}
				if n.Kind != push.Deliver || (d.Burst != "") != (fields != "") {
					t.Errorf("it is followed by %+v", n)
				}
			}
			if len(waits) != 3 || waits[30] < 58*time.Minute || waits[40] < time.Second || waits[50] < time.Minute {
				t.Errorf("deliveries wait for %v", waits)
			}
			want := []string{"20 accepted", "50 pending unanswered"}
			if fields != "" { // what waits for others of its burst is not marked
				want = []string{"20 accepted", "30 pending", "40 pending", "50 pending unanswered"}
			}
			if got := receiptsOf(t, db, "e"); !slices.Equal(got, want) {
				t.Errorf("the receipts are %v, want %v", got, want)
			}
			if len(sender.sent) != 1 || sender.sent[0].Device.ID != 20 {
				t.Errorf("sent %+v", sender.sent)
			}
		})
	}
}

// slowLook is a store that does something after the second look.
type slowLook struct {
	*push.MySQL

	looks int
	do    func()
}

func (s *slowLook) Look(ctx context.Context, candidates []push.Candidate) ([]push.Facts, error) {
	facts, err := s.MySQL.Look(ctx, candidates)
	s.looks++
	if s.looks == 2 {
		s.do()
	}
	return facts, err
}

// A task that targets is done again, by the process that lost its lease, while that sends the event. It sends nothing twice, also if the answer comes
// between the second look and what follows it.
func TestASmallEventWaitsForWhatIsSentOfIt(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	someDevices(t, db, 2)
	sender := &stuck{devices: []uint64{20}, end: make(chan struct{})}
	h := newHandler(t, db, sender, 20*time.Millisecond)
	answer := sync.OnceFunc(func() {
		close(sender.end)
		h.Deliveries.Wait()
	})
	t.Cleanup(answer)
	h.Targeting = push.NewTargeting(push.TargetingOptions{Store: &slowLook{MySQL: push.NewMySQL(db), do: answer}, Followers: contacts.NewMySQL(db)})
	attempt := func(n int) queue.Outcome {
		task := newTask(7, 1, `{"id":"e","type":"fave","recipients":["2","3"]}`)
		task.Attempts = n
		return h.Handle(t.Context(), []queue.Task{task})[0]
	}
	must(t, attempt(1).Err) // it is not finished
	if attempt(2).Err == nil {
		t.Error("the second attempt does not wait")
	}
	answer()
	if o := attempt(3); o.Err != nil || len(o.Next) > 0 {
		t.Errorf("the third attempt: %+v", o)
	}
	if got := receiptsOf(t, db, "e"); !slices.Equal(got, []string{"20 accepted", "30 accepted"}) || len(sender.sent) != 2 {
		t.Errorf("the receipts are %v, after %d messages", got, len(sender.sent))
	}
}

// An attempt was accepted, by a run; another one, which had looked before, wrote that the same waits for an answer. The next attempt finds that it
// was accepted, and makes no delivery, which would not look for the run.
func TestWhatARunHasWaitsNoLonger(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	someDevices(t, db, 2)
	sender, task := &recorder{}, newTask(7, 1, `{"id":"e","type":"fave","recipients":["2","3"]}`)
	h := newHandler(t, db, sender, time.Minute)
	must(t, h.Handle(t.Context(), []queue.Task{task})[0].Err)
	exec(t, db, "DELETE FROM push_receipts")
	exec(t, db, "DELETE FROM push_runs")
	exec(t, db, `INSERT INTO push_receipts (event_number, member_id, device_id, state, reason, provider_id, burst, at) VALUES (1, 2, 20, 'pending', 'unanswered', '', NULL, 5)`)
	exec(t, db, `INSERT INTO push_runs (event_number, task_id, device_id, state, first_member, last_member, devices_count, devices, at) VALUES (1, 7, 20, 'accepted', 2, 3, 2, '[[2,20],[3,30]]', 5)`)
	task.Attempts = 3
	if o := h.Handle(t.Context(), []queue.Task{task})[0]; o.Err != nil || len(o.Next) > 0 {
		t.Errorf("it is followed by %+v", o)
	}
	if got := receiptsOf(t, db, "e"); !slices.Equal(got, []string{"20 accepted", "20 accepted doubled", "30 accepted"}) || len(sender.sent) != 2 {
		t.Errorf("the receipts are %v, after %d messages", got, len(sender.sent))
	}
}

// workOne has a task done, if there is one: done. It may be called from other goroutines.
func workOne(t *testing.T, q *queue.Queue, h push.Handler) (done, lost int) {
	t.Helper()
	list, err := q.Claim(t.Context(), push.QueuePush, 1, time.Minute)
	var results []queue.Result
	for i, o := range h.Handle(t.Context(), list) {
		results = append(results, queue.Result{Task: list[i], Err: o.Err, Next: o.Next})
	}
	if err == nil {
		lost, err = q.Finish(t.Context(), results)
	}
	if err != nil {
		t.Error(err)
	}
	return len(list), lost
}

// hooked is a sender that does something before the first message, and answers that and all others when the test ends.
type hooked struct {
	stuck

	once sync.Once
	do   func()
}

func (h *hooked) Send(ctx context.Context, m push.Message) push.Result {
	h.once.Do(h.do)
	return h.stuck.Send(ctx, m)
}

// A process that has lost its lease, to another one that has sent all, does not write that what it sent waits for an answer: no task would
// go on with that.
func TestALateProcessWritesNotThatSomethingWaits(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	someDevices(t, db, 2)
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	exec(t, db, `INSERT INTO tasks (type, subject, args, queue) VALUES ('notify', 1, '{"id":"e","type":"fave","recipients":["2","3"]}', 'push')`)
	other := &recorder{}
	sender := &hooked{stuck: stuck{devices: []uint64{20, 30}, end: make(chan struct{})}}
	late := newHandler(t, db, sender, time.Second)
	t.Cleanup(func() { close(sender.end) })
	sender.do = func() {
		exec(t, db, "UPDATE task_leases SET ends_at = 1")
		if _, err := q.Sweep(t.Context()); err != nil {
			t.Error(err)
		}
		if done, lost := workOne(t, q, newHandler(t, db, other, time.Minute)); done != 1 || lost != 0 {
			t.Error("the other one has lost its lease, too")
		}
	}
	if done, lost := workOne(t, q, late); done != 1 || lost != 1 {
		t.Errorf("%d tasks, of which %d leases were lost, want that of the late one", done, lost)
	}
	if got := receiptsOf(t, db, "e"); !slices.Equal(got, []string{"20 accepted", "30 accepted"}) || len(other.sent) != 2 {
		t.Errorf("the receipts are %v, after %d messages", got, len(other.sent))
	}
	var left int
	must(t, db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM task_leases) + (SELECT COUNT(*) FROM parked_tasks)").Scan(&left))
	if left != 0 {
		t.Errorf("%d tasks are left", left)
	}
}

// counting is a sender that takes a while, and notes what is sent to one device at a time.
type counting struct {
	mu       sync.Mutex
	inFlight map[uint64]int
	most     int
	last     map[uint64]push.Message
	shown    map[uint64]int // by device, the count of the last message
	sent     int
}

func (c *counting) Send(ctx context.Context, m push.Message) push.Result {
	c.mu.Lock()
	c.inFlight[m.Device.ID]++
	c.most = max(c.most, c.inFlight[m.Device.ID])
	c.mu.Unlock()
	select { // as a push service takes
	case <-time.After(20 * time.Millisecond):
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight[m.Device.ID]--
	c.sent++
	c.last[m.Device.ID], c.shown[m.Device.ID] = m, m.Count
	return push.Result{Outcome: push.Accepted, Status: 200}
}

func (*counting) Origin(push.Device) string { return "https://push.example:443" }

// Several processes target events of one burst at once. No device is sent two of them at a time, and each is shown all in the end.
func TestProcessesSendABurstInTurn(t *testing.T) {
	t.Parallel()
	const processes, devices = 8, 3
	db := openDB(t)
	someDevices(t, db, devices)
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	sender := &counting{inFlight: map[uint64]int{}, last: map[uint64]push.Message{}, shown: map[uint64]int{}}
	var handlers []push.Handler
	for range processes {
		exec(t, db, `INSERT INTO tasks (type, subject, args, queue) VALUES ('notify', 1, '{"type":"upload"}', 'push')`)
		handlers = append(handlers, newHandler(t, db, sender, time.Minute))
	}
	for open := 1; open > 0; {
		var all sync.WaitGroup
		for _, h := range handlers {
			all.Go(func() {
				for done := 1; done > 0; { // what is there now
					done, _ = workOne(t, q, h)
				}
			})
		}
		all.Wait()
		_, err := q.Retry(t.Context(), queue.Filter{}, 1000) // what waits is due
		must(t, err)
		must(t, db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM parked_tasks)").Scan(&open))
	}
	if sender.most != 1 {
		t.Errorf("%d messages at once to a device", sender.most)
	}
	var pending int
	must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM push_receipts WHERE state <> 'accepted'").Scan(&pending))
	if pending != 0 {
		t.Errorf("%d receipts are not accepted: %v", pending, strings.Join(receiptsOf(t, db, "task-1"), ", "))
	}
	for id := uint64(20); id < 20+10*devices; id += 10 {
		if sender.shown[id] != processes {
			t.Errorf("device %d shows %d events, want %d; %d messages were sent", id, sender.shown[id], processes, sender.sent)
		}
	}
}

// panicky is a store that no event can be stored in.
type panicky struct{ *push.MySQL }

func (panicky) StoreEvents(context.Context, []push.NewEvent) ([]push.Stored, error) {
	panic("for the test")
}

// When targeting panics, the tasks of the share are done again, one by one. What the others had sent by then is recorded, and not sent again.
func TestAPanicDoublesNoDelivery(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	someDevices(t, db, 2)
	store, sender := push.NewMySQL(db), &recorder{}
	e := storeEvent(t, store, push.Event{ID: "e", Type: "fave", Actor: 1, Recipients: []member.ID{2, 3}})
	deliver := queue.Task{ID: 8, Kind: push.Deliver, Key: 20, Attempts: 1, MaxAttempts: 25, Payload: fmt.Appendf(nil, `{"event":%d,"to":[[2,20],[3,30]]}`, e.Number)}
	h := newHandler(t, db, sender, time.Minute)
	h.Targeting = push.NewTargeting(push.TargetingOptions{Store: panicky{store}, Followers: contacts.NewMySQL(db)})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("nothing panicked")
			}
		}()
		h.Handle(t.Context(), []queue.Task{deliver, newTask(9, 1, `{"type":"fave","recipients":["2"]}`)})
	}()
	if o := h.Handle(t.Context(), []queue.Task{deliver})[0]; o.Err != nil || len(o.Next) > 0 {
		t.Errorf("the delivery again: %+v", o)
	}
	if got := receiptsOf(t, db, e.ID); !slices.Equal(got, []string{"20 accepted", "30 accepted"}) || len(sender.sent) != 2 {
		t.Errorf("the receipts are %v, after %d messages", got, len(sender.sent))
	}
}
