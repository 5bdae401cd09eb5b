package push_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// TestRowsAreTargeted: a site inserts rows, and each process that works on a page for the first
// time dies before it finishes. Every device gets one delivery of each event.
func TestRowsAreTargeted(t *testing.T) {
	t.Parallel()
	const people, size = 45, 10
	db := openDB(t)
	store := push.NewMySQL(db)
	var users, follows, devices []string
	for id := 1; id <= people; id++ {
		users = append(users, fmt.Sprintf("(%d, 'u%d')", id, id))
		follows = append(follows, fmt.Sprintf("(%d, 1)", id)) // 1 follows itself, too
		devices = append(devices, fmt.Sprintf("(%d, %d, 'fcm', REPEAT(CHAR(%d), 32), 5)", id, id, id))
	}
	exec(t, db, "INSERT INTO users (id, username) VALUES "+strings.Join(users, ","))
	exec(t, db, "INSERT INTO contacts (user_id, contact_id) VALUES "+strings.Join(follows, ","))
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES "+strings.Join(devices, ","))
	exec(t, db, `INSERT INTO tasks (type, subject, args) VALUES ('notify', 1, JSON_OBJECT('type', 'upload')),
		('notify', 2, JSON_OBJECT('type', 'comment', 'recipients', JSON_ARRAY('7', 2, '8'), 'id', 'a')),
		('notify', 2, JSON_OBJECT('type', 'comment', 'recipients', JSON_ARRAY('7', 2, '8'), 'id', 'a')),
		('notify', 2, JSON_OBJECT('type', 'comment', 'recipients', 'all')), ('notify', 0, JSON_OBJECT('type', 'comment'))`)
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db), PageSize: size})
	dropped := 0
	for open := 1; open > 0; {
		_, err := q.Sweep(t.Context())
		must(t, err)
		for _, name := range []string{queue.DefaultQueue, push.QueuePush} {
			claim, err := q.Claim(t.Context(), name, 2, time.Millisecond) // until the next sweep, nothing else has it
			must(t, err)
			var results []queue.Result
			claim = slices.DeleteFunc(claim, func(task queue.Task) bool {
				is := task.Kind == push.Deliver
				if is {
					results = append(results, queue.Result{Task: task, Err: queue.Later(time.Hour, nil)})
				}
				return is
			})
			outcomes := g.Handle(t.Context(), claim)
			for i, task := range claim {
				if task.Attempts == 1 {
					dropped++
					continue
				}
				results = append(results, queue.Result{Task: task, Err: outcomes[i].Err, Next: outcomes[i].Next})
			}
			if len(results) > 0 {
				_, err = q.Finish(t.Context(), results)
				must(t, err)
			}
		}
		must(t, db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM task_leases) + (SELECT COUNT(*) FROM parked_tasks WHERE type <> 'deliver' AND state <> 'dead')").Scan(&open))
	}
	if pages := people/size + 1; dropped != 5+3+pages-1 {
		t.Errorf("%d tasks were tried in vain, want each of 5, those of 3 in their own queue, and the %d further pages once", dropped, pages-1)
	}
	type row struct{ deliveries, devices, dead, events int }
	var got row
	must(t, db.QueryRowContext(t.Context(), "SELECT SUM(JSON_LENGTH(args, '$.to')), (SELECT COUNT(DISTINCT JSON_VALUE(args, '$.event'), q.d) FROM parked_tasks, JSON_TABLE(args, '$.to[*]' COLUMNS (d INT PATH '$[1]')) AS q WHERE type = 'deliver'), (SELECT COUNT(*) FROM parked_tasks WHERE state = 'dead'),"+
		" (SELECT COUNT(*) FROM push_events) FROM parked_tasks WHERE type = 'deliver'").Scan(&got.deliveries, &got.devices, &got.dead, &got.events))
	if want := (row{people - 1 + 3, people - 1 + 3, 2, 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	var reasons string
	must(t, db.QueryRowContext(t.Context(), "SELECT GROUP_CONCAT(last_error ORDER BY id SEPARATOR '\n') FROM parked_tasks WHERE state = 'dead'").Scan(&reasons))
	if !strings.Contains(reasons, `recipients: "all": want "followers"`) || !strings.Contains(reasons, "the actor, is 0") {
		t.Errorf("the reasons are %s", reasons)
	}
}

// newTask returns the notify task number id of an actor, as its queue claims it.
func newTask(id, actor uint64, event string) queue.Task {
	now := time.Now().Truncate(time.Millisecond)
	return queue.Task{ID: id, Kind: push.Notify, Queue: push.QueuePush, Key: actor, Payload: json.RawMessage(event), Attempts: 1, MaxAttempts: 25, Created: now, Claimed: now}
}

// TestEventOfADeletedActor: what a member did that is deleted is not announced, also to those
// that the event names.
func TestEventOfADeletedActor(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (2, 'bob')")
	exec(t, db, "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (901, 1, 'public', 5)")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), 5)")
	g := push.NewTargeting(push.TargetingOptions{Store: push.NewMySQL(db), Followers: contacts.NewMySQL(db)})
	for i, test := range []struct {
		event string
		want  int
	}{
		{`{"type":"comment","recipients":["2"]}`, 0},
		{`{"type":"upload","object":"photo:901","recipients":["2"]}`, 0},
		{`{"type":"upload","object":"photo:901"}`, 0},
	} {
		o := g.Handle(t.Context(), []queue.Task{newTask(uint64(i+1), 1, test.event)})[0]
		if o.Err != nil || len(o.Next) != test.want {
			t.Errorf("%s: %+v", test.event, o)
		}
	}
}

// slowSender answers when it is told to.
type slowSender struct {
	recorder
	sending chan struct{} // gets a value when a message arrives
	answer  chan struct{}
}

func (s *slowSender) Send(ctx context.Context, m push.Message) push.Result {
	s.sending <- struct{}{}
	<-s.answer
	return s.recorder.Send(ctx, m)
}

// TestABurstIsNotTakenTwice: while one process sends a burst, or its first event, another one targets a further event of
// it. Its delivery waits, so that it does not take what is being sent.
func TestABurstIsNotTakenTwice(t *testing.T) {
	t.Parallel()
	for _, together := range []int{1, 2} {
		t.Run(fmt.Sprint(together), func(t *testing.T) {
			t.Parallel()
			testABurstIsNotTakenTwice(t, together)
		})
	}
}

func testABurstIsNotTakenTwice(t *testing.T, together int) {
	t.Helper()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), '{}', 5)")
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	sender := &slowSender{sending: make(chan struct{}, 9), answer: make(chan struct{})}
	work := func(name string, h queue.Handler) (worked int) {
		list, err := q.Claim(t.Context(), name, 10, time.Minute)
		must(t, err)
		var results []queue.Result
		for i, o := range h.Handle(t.Context(), list) {
			must(t, o.Err)
			results = append(results, queue.Result{Task: list[i], Next: o.Next})
		}
		lost, err := q.Finish(t.Context(), results)
		must(t, err)
		return len(list) - lost
	}
	targeting := func() *push.Targeting { // of a process of its own
		return push.NewTargeting(push.TargetingOptions{Store: push.NewMySQL(db), Followers: contacts.NewMySQL(db), PageSize: 10})
	}
	deliveries := func() *push.Deliveries {
		return push.NewDeliveries(push.DeliveryOptions{
			Store: push.NewMySQL(db), Senders: map[push.Platform]push.Sender{push.FCM: sender}, Log: slog.New(slog.DiscardHandler), Patience: time.Minute, Timeout: time.Minute,
		})
	}
	happens := func() {
		exec(t, db, `INSERT INTO tasks (type, subject, args, queue) VALUES ('notify', 1, '{"type":"fave","recipients":["2"],"collapse":"k"}', 'push')`)
	}
	for range together { // one delivery does both: they are targeted together
		happens()
	}
	work(push.QueuePush, targeting())
	ended := make(chan int, 1)
	go func() { ended <- work(push.QueuePush, deliveries()) }()
	<-sender.sending
	happens()
	work(push.QueuePush, targeting())
	if n := work(push.QueuePush, deliveries()); n != 0 {
		t.Errorf("%d deliveries began while the burst was being sent", n)
	}
	var wait float64
	must(t, db.QueryRowContext(t.Context(), "SELECT (t.due_at - CAST((SELECT MAX(at) FROM push_runs WHERE event_number < e.number) AS SIGNED)) / 1000"+
		" FROM (SELECT type, args, due_at FROM tasks WHERE due_at > 0 UNION ALL SELECT type, args, due_at FROM parked_tasks WHERE state = 'scheduled') t"+
		" JOIN push_events e ON e.number = JSON_VALUE(t.args, '$.event') WHERE t.type = 'deliver'").Scan(&wait))
	if wait < 60 {
		t.Errorf("the further one begins %v s after what is pending, want a minute", wait)
	}
	close(sender.answer)
	if n := <-ended; n != 1 {
		t.Errorf("%d deliveries were done, want 1", n)
	}
	_, err := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}).Retry(t.Context(), queue.Filter{}, 10) // now
	must(t, err)
	if n := work(push.QueuePush, deliveries()); n != 1 || len(sender.sent) != 2 || sender.sent[0].Count != together || sender.sent[1].Count != together+1 { // with those that the device shows
		t.Errorf("then %d deliveries were done; the messages are %+v", n, sender.sent)
	}
}

// TestWhatIsPendingOfACrashIsDone: between two attempts at an event of a burst, a device is
// removed, and another member opts out. What the first attempt noted as pending has a delivery
// nevertheless, or is skipped; and a late process does not make it pending again.
func TestWhatIsPendingOfACrashIsDone(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob'), (3, 'eve')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES"+
		" (20, 2, 'fcm', REPEAT('x', 32), 5), (30, 3, 'fcm', REPEAT('y', 32), 5)")
	store := push.NewMySQL(db)
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db)})
	task := newTask(5, 1, `{"id":"e","type":"comment","recipients":["2","3"],"collapse":"c"}`)
	attempt := func(want ...uint64) {
		t.Helper()
		o := g.Handle(t.Context(), []queue.Task{task})[0]
		var devices []uint64
		for _, n := range o.Next {
			devices = append(devices, n.Key)
		}
		if o.Err != nil || !slices.Equal(devices, want) {
			t.Errorf("%+v: deliveries to devices %v, want %v", o, devices, want)
		}
	}
	for of, device := range map[member.ID]uint64{2: 20, 3: 30} { // so that they wait
		acceptedNow(t, db, push.Event{Type: "comment", Collapse: "c"}, of, device)
	}
	attempt(20, 30) // which is lost
	_, err := store.Remove(t.Context(), 2, 20)
	must(t, err)
	must(t, store.SetSettings(t.Context(), 3, push.Settings{Types: map[string]bool{"comment": false}}))
	attempt(20)
	e, err := store.EventByID(t.Context(), "e")
	must(t, err)
	must(t, store.WriteReceipts(t.Context(), nil, []push.Receipt{{Event: e.Number, Member: 3, Device: 30, State: push.StatePending, Burst: e.Burst()}}))
	states, err := mysql.Select(t.Context(), db, mysql.Column[string], "SELECT CONCAT(device_id, ' ', state) FROM push_receipts WHERE event_number < 1000 ORDER BY device_id")
	if want := []string{"0 skipped", "20 pending", "30 skipped"}; err != nil || !slices.Equal(states, want) {
		t.Errorf("the receipts are %v, %v, want %v", states, err, want)
	}
}

// acceptedNow writes the receipt of an event of the same burst that a device has just accepted.
func acceptedNow(t *testing.T, db *sql.DB, e push.Event, of member.ID, device uint64) {
	t.Helper()
	burst := e.Burst()
	exec(t, db, "INSERT INTO push_receipts (event_number, member_id, device_id, state, at, burst) VALUES (1000, ?, ?, 'accepted', "+mysql.Now+", ?)", of, device, burst[:])
}

// TestADeadPageEndsNoChain: what follows it goes on.
func TestADeadPageEndsNoChain(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO contacts (user_id, contact_id) VALUES (2, 1), (3, 1), (4, 1)")
	broken := errors.New("no such column")
	fails := func(call string) error {
		if call == "look" {
			return broken
		}
		return nil
	}
	store := &shaky{MySQL: push.NewMySQL(db), contacts: contacts.NewMySQL(db), fails: fails, looked: map[push.Candidate]time.Time{}}
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: store, PageSize: 2})
	for _, test := range []struct{ attempts, follow int }{{24, 0}, {25, 1}} {
		task := newTask(5, 1, `{"type":"upload"}`)
		task.Attempts = test.attempts
		o := g.Handle(t.Context(), []queue.Task{task})[0]
		next := queue.Judge(queue.Result{Task: task, Err: o.Err, Next: o.Next}).Next
		if !errors.Is(o.Err, broken) || len(next) != test.follow || len(next) > 0 && !strings.Contains(string(next[0].Payload), `"after":"3"`) {
			t.Errorf("attempt %d: %v, and then %+v", test.attempts, o.Err, next)
		}
	}
}

// TestARowInAnotherQueue is handed over to its own queue, where it is the same event.
func TestARowInAnotherQueue(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), 5)")
	store := push.NewMySQL(db)
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db)})
	for i, c := range []struct {
		event    string
		priority int
		id       string
		want     int // the priority in its own queue
	}{
		{`{"type":"comment","recipients":["2"]}`, 5, "task-100", 5},
		{`{"type":"comment","recipients":["2"],"id":"mine","title":"t","body":"b","data":{"a":[1]}}`, 0, "mine", 0},
		{`{"type":"comment","urgent":true,"expires_in":60}`, 5, "task-102", queue.Urgent},
		{`{"type":"comment","urgent":true,"collapse":""}`, -20, "task-103", -20},
	} {
		row := newTask(uint64(100+i), 1, c.event)
		row.Queue, row.Priority, row.Claimed = queue.DefaultQueue, c.priority, row.Created.Add(1234*time.Millisecond)
		o := g.Handle(t.Context(), []queue.Task{row})[0]
		if o.Err != nil || len(o.Next) != 1 {
			t.Fatalf("%s: %+v", c.event, o)
		}
		valid, err := tasks.Kinds().Validate(o.Next)
		must(t, err)
		n := valid[0]
		inQueue := push.QueuePush
		if c.want <= queue.Urgent { // so they are urgent
			inQueue = push.QueueUrgent
		}
		if n.Kind != push.Notify || n.Queue != inQueue || n.Key != 1 || n.Priority != c.want || n.DedupeKey != "notify:"+c.id {
			t.Errorf("%s: handed over as %+v", c.event, n)
		}
		if known, err := store.EventByID(t.Context(), c.id); err != nil || known != nil {
			t.Errorf("%s is stored before: %+v, %v", c.id, known, err)
		}
		task := newTask(uint64(200+i), 1, string(n.Payload))
		task.Created, task.Claimed = row.Claimed, row.Claimed
		if o := g.Handle(t.Context(), []queue.Task{task})[0]; o.Err != nil {
			t.Fatal(o.Err)
		}
		stored, err := store.EventByID(t.Context(), c.id)
		must(t, err)
		want, err := push.ParseEvent(1, json.RawMessage(c.event))
		must(t, err)
		want.ID = c.id
		if stored == nil || !stored.Created.Equal(row.Created) || stored.Task != task.ID {
			t.Fatalf("%s is stored as %+v, want it created %v", c.id, stored, row.Created)
		}
		if diff := cmp.Diff(want, stored.Event); diff != "" {
			t.Errorf("%s (-as it was +handed over):\n%s", c.id, diff)
		}
	}
}

// TestAnEventThatExpiredBefore its task was enqueued is skipped, with its receipts.
func TestAnEventThatExpiredBefore(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), 5)")
	store := push.NewMySQL(db)
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db)})
	for age, want := range map[time.Duration]bool{0: true, 59 * time.Second: true, 10 * time.Minute: false, 29 * 24 * time.Hour: false} {
		e := push.Event{ID: fmt.Sprint("after-", age), Type: "comment", Actor: 1, Recipients: []member.ID{2}, ExpiresIn: time.Minute, Age: age}
		n, err := push.NewNotify(e)
		must(t, err)
		task := newTask(uint64(age/time.Second)+1, 1, string(n.Payload))
		o := g.Handle(t.Context(), []queue.Task{task})[0]
		if o.Err != nil || len(o.Next) == 1 != want {
			t.Errorf("after %v: %+v", age, o)
		}
		stored, err := store.EventByID(t.Context(), e.ID)
		must(t, err)
		if !stored.Created.Equal(task.Created.Add(-age)) || stored.Expires.Sub(stored.Created) != time.Minute {
			t.Errorf("after %v it was created %v and expires %v", age, stored.Created, stored.Expires)
		}
		receipts := fatesOf(t, store, stored.Number, 0)
		if !want && (len(receipts) != 1 || receipts[0].Reason != string(push.Expired)) || want && len(receipts) > 0 {
			t.Errorf("after %v the receipts are %+v", age, receipts)
		}
	}
}

// TestAPageOfAReplacedEvent: see TestLookAtReplacedEvent. The followers of the cached event's
// actor have no devices, so that no look tells of it.
func TestAPageOfAReplacedEvent(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob'), (3, 'eve')")
	exec(t, db, "INSERT INTO contacts (user_id, contact_id) VALUES (2, 1), (3, 2)")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES (30, 3, 'fcm', REPEAT('x', 32), 5)")
	store := push.NewMySQL(db)
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db)})
	stored, err := store.StoreEvents(t.Context(), []push.NewEvent{{Task: 5, Created: time.Now(), Event: push.Event{ID: "e", Type: "upload", Actor: 1, Followers: true}}})
	must(t, err)
	page := newTask(77, 2, fmt.Sprintf(`{"event":%d}`, stored[0].Number))
	page.Kind = push.Target
	if o := g.Handle(t.Context(), []queue.Task{page})[0]; !errors.Is(o.Err, queue.ErrInvalid) || len(o.Next) > 0 {
		t.Errorf("a page of another actor's event: %+v", o)
	}
	for _, c := range []struct {
		change     string
		deliveries int
	}{
		{"UPDATE push_events SET id = 'f', actor_id = 2, created_at = created_at + 1", 1},
		{"DELETE FROM push_events", 0},
	} {
		exec(t, db, c.change)
		if o := g.Handle(t.Context(), []queue.Task{page})[0]; o.Err != nil || len(o.Next) != c.deliveries {
			t.Errorf("after %s: %+v", c.change, o)
		}
	}
}

// TestNumbersOfTasksBeginAgain: when the table of tasks was emptied, a row without an id has the
// number of an earlier one, and is another event nevertheless.
func TestNumbersOfTasksBeginAgain(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), 5)")
	g := push.NewTargeting(push.TargetingOptions{Store: push.NewMySQL(db), Followers: contacts.NewMySQL(db)})
	first, second := newTask(5, 1, `{"type":"comment","recipients":["2"]}`), newTask(5, 1, `{"type":"fave","recipients":["2"]}`)
	second.Created = second.Created.Add(time.Second)
	third := newTask(6, 1, `{"id":"task-5","type":"upload","recipients":["2"],"age_ms":1000}`) // handed over
	third.Created = third.Created.Add(time.Minute)
	for range 2 { // each is tried twice
		for _, task := range []queue.Task{first, second, third} {
			if o := g.Handle(t.Context(), []queue.Task{task})[0]; o.Err != nil || len(o.Next) != 1 {
				t.Fatalf("%+v", o)
			}
		}
	}
	types, err := mysql.Select(t.Context(), db, mysql.Column[string], "SELECT JSON_VALUE(event, '$.type') FROM push_events ORDER BY number")
	if err != nil || fmt.Sprint(types) != "[comment fave upload]" {
		t.Errorf("the events are %v, %v", types, err)
	}
}

func TestTargetTasksThatMakeNoSense(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	g := push.NewTargeting(push.TargetingOptions{Store: push.NewMySQL(db), Followers: contacts.NewMySQL(db)})
	for payload, dead := range map[string]bool{`{"event":77,"after":"9"}`: false, `{}`: true, `{"event":"x"}`: true, `"40000 bytes"`: true} {
		task := newTask(5, 1, payload)
		task.Kind = push.Target
		o := g.Handle(t.Context(), []queue.Task{task})[0]
		if errors.Is(o.Err, queue.ErrInvalid) != dead || !dead && (o.Err != nil || len(o.Next) > 0) {
			t.Errorf("%s: %+v", payload, o)
		}
	}
}

// TestALatePageWritesNothing: a process that was stopped while it targets a page, and goes on when
// another one has the task, leaves nothing pending for which no delivery would come.
func TestALatePageWritesNothing(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "REPLACE INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "REPLACE INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), 5)")
	exec(t, db, `INSERT INTO tasks (queue, type, subject, args) VALUES ('push', 'notify', 1, '{"id":"e","type":"fave","recipients":["2"],"collapse":"c"}')`)
	q, store := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), push.NewMySQL(db)
	claim := func() []queue.Task {
		t.Helper()
		list, err := q.Claim(t.Context(), push.QueuePush, 10, time.Minute)
		must(t, err)
		if len(list) != 1 {
			t.Fatalf("claimed %+v", list)
		}
		return list
	}
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db)})
	late := claim()
	exec(t, db, "UPDATE task_leases SET ends_at = 1")
	_, err := q.Sweep(t.Context())
	must(t, err)
	now := claim()
	if o := g.Handle(t.Context(), late)[0]; o.Err == nil {
		t.Errorf("the late one targets: %+v", o)
	}
	pending := func() (n int) {
		t.Helper()
		must(t, db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM push_receipts) + (SELECT COUNT(*) FROM push_runs)").Scan(&n))
		return n
	}
	if n := pending(); n != 0 {
		t.Errorf("the late one wrote %d receipts", n)
	}
	if o := g.Handle(t.Context(), now)[0]; o.Err != nil || len(o.Next) != 1 || pending() != 1 {
		t.Errorf("the other one: %+v, with %d receipts", o, pending())
	}
}
