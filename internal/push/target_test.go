package push_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// TestRowsAreTargeted: a site inserts rows, and each process that works on a page for the first time dies before it
// finishes. Every device gets each event once.
func TestRowsAreTargeted(t *testing.T) {
	t.Parallel()
	const people, size = 45, 10
	db := openDB(t)
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
	g := push.NewTargeting(push.TargetingOptions{Store: push.NewMySQL(db), Followers: contacts.NewMySQL(db), PageSize: size})
	dropped, idle := 0, 0
	for idle < 2 {
		_, err := q.Sweep(t.Context())
		must(t, err)
		idle++
		for _, name := range []string{queue.DefaultQueue, push.QueuePush} {
			claim, err := q.Claim(t.Context(), name, 2, time.Millisecond) // until the next sweep, nothing else has it
			must(t, err)
			var results []queue.Result
			for i, o := range g.Handle(t.Context(), claim) {
				if idle = 0; claim[i].Attempts == 1 {
					dropped++
				} else {
					results = append(results, queue.Result{Task: claim[i], Err: o.Err, Next: o.Next})
				}
			}
			if len(results) > 0 {
				_, err = q.Finish(t.Context(), results)
				must(t, err)
			}
		}
	}
	if pages := people/size + 1; dropped != 5+pages-1 {
		t.Errorf("%d tasks were tried in vain, want each of 5, and the %d further pages once", dropped, pages-1)
	}
	list, err := q.Claim(t.Context(), push.QueueDeliver, 100, time.Minute)
	must(t, err)
	got := map[string]int{}
	for _, task := range list {
		var d push.Delivery
		must(t, json.Unmarshal(task.Payload, &d))
		for _, to := range d.To {
			got[fmt.Sprint(d.Event, to)]++
		}
	}
	for of, n := range got {
		if n > 1 {
			t.Errorf("%s has %d deliveries", of, n)
		}
	}
	if want := people - 1 + 3; len(got) != want {
		t.Errorf("%d deliveries, want %d", len(got), want)
	}
}

// newTask returns the notify task number id of an actor, as its queue claims it.
func newTask(id, actor uint64, event string) queue.Task {
	now := time.Now().Truncate(time.Millisecond)
	return queue.Task{ID: id, Kind: push.Notify, Queue: push.QueuePush, Key: actor, Payload: json.RawMessage(event), Attempts: 1, MaxAttempts: 25, Created: now, Claimed: now}
}

// TestEventOfADeletedActor: the deeds of a deleted member are not announced, nor to recipients
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

// TestADeadPageEndsNoChain: the next page goes on.
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
	store := &shaky{MySQL: push.NewMySQL(db), contacts: contacts.NewMySQL(db), fails: fails, looked: map[lookedKey]time.Time{}}
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: store, PageSize: 2})
	for _, test := range []struct{ attempts, follow int }{{24, 0}, {25, 1}} {
		task := newTask(5, 1, `{"type":"upload"}`)
		task.Attempts = test.attempts
		o := g.Handle(t.Context(), []queue.Task{task})[0]
		next := queue.Result{Task: task, Err: o.Err, Next: o.Next}.FollowUps()
		if !errors.Is(o.Err, broken) || len(next) != test.follow || len(next) > 0 && !strings.Contains(string(next[0].Payload), `"after":"3"`) {
			t.Errorf("attempt %d: %v, and then %+v", test.attempts, o.Err, next)
		}
	}
}

// TestARowInAnotherQueue is targeted there, and the tasks that follow lie in the queues of push.
func TestARowInAnotherQueue(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), 5)")
	g := push.NewTargeting(push.TargetingOptions{Store: push.NewMySQL(db), Followers: contacts.NewMySQL(db)})
	for i, c := range []struct {
		event    string
		priority int
		queue    string
		want     int // the priority of the delivery
	}{
		{`{"type":"comment","recipients":["2"]}`, 5, push.QueueDeliver, 5},
		{`{"type":"comment","urgent":true,"recipients":["2"]}`, 5, push.QueueUrgent, queue.Urgent},
		{`{"type":"comment","urgent":true,"recipients":["2"]}`, -20, push.QueueUrgent, -20},
	} {
		row := newTask(uint64(100+i), 1, c.event)
		row.Queue, row.Priority = queue.DefaultQueue, c.priority
		o := g.Handle(t.Context(), []queue.Task{row})[0]
		if o.Err != nil || len(o.Next) != 1 || o.Next[0].Kind != push.Deliver || o.Next[0].Queue != c.queue || o.Next[0].Priority != c.want {
			t.Errorf("%s: %+v", c.event, o)
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

// TestAPageOfAnotherActor is dead.
func TestAPageOfAnotherActor(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	store := push.NewMySQL(db)
	g := push.NewTargeting(push.TargetingOptions{Store: store, Followers: contacts.NewMySQL(db)})
	e := storeEvent(t, store, push.Event{Type: "upload", Actor: 1, Followers: true})
	page := newTask(77, 2, fmt.Sprintf(`{"event":%d,"task":%d}`, e.Number, e.Task))
	page.Kind = push.Target
	if o := g.Handle(t.Context(), []queue.Task{page})[0]; !errors.Is(o.Err, queue.ErrInvalid) || len(o.Next) > 0 {
		t.Errorf("%+v", o)
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
