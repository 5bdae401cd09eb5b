package push_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
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
	sender := newScripted()
	h := push.NewHandler(push.HandlerOptions{
		Store: push.NewMySQL(db), Followers: contacts.NewMySQL(db), Senders: map[push.Platform]push.Sender{push.FCM: sender},
		Log: slog.New(slog.DiscardHandler), PageSize: size,
	})
	for idle := 0; idle < 2; idle++ {
		_, err := q.Sweep(t.Context())
		must(t, err)
		for _, name := range all {
			claim, err := q.Claim(t.Context(), name, 2, time.Millisecond) // until the next sweep, nothing else has it
			must(t, err)
			var results []queue.Result
			for i, o := range h.Handle(t.Context(), claim) {
				if idle = 0; claim[i].Attempts > 1 {
					results = append(results, queue.Result{Task: claim[i], Err: o.Err, Next: o.Next})
				}
			}
			if len(results) > 0 {
				_, err = q.Finish(t.Context(), results)
				must(t, err)
			}
		}
	}
	sent := sender.take()
	if want := people - 1 + 3; len(sent) != want || len(slices.Compact(slices.Clone(sent))) != want {
		t.Errorf("%d messages, want %d that differ: %q", len(sent), want, sent)
	}
}

// newTask returns the notify task number id of an actor, as its queue claims it.
func newTask(id, actor uint64, event string) queue.Task {
	now := time.Now().Truncate(time.Millisecond)
	return queue.Task{ID: id, Kind: push.Notify, Queue: push.QueuePush, Key: actor, Payload: json.RawMessage(event), Attempts: 1, MaxAttempts: 25, Created: now, Claimed: now}
}

// TestARowInAnotherQueue sends nothing there: its delivery lies in a queue of push.
func TestARowInAnotherQueue(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	row := newTask(100, 1, `{"type":"comment","urgent":true,"recipients":["2"]}`)
	row.Queue = queue.DefaultQueue
	o := s.handler().Handle(t.Context(), []queue.Task{row})[0]
	s.want("sent", s.sender.take())
	if o.Err != nil || len(o.Next) != 1 || o.Next[0].Kind != push.Deliver || o.Next[0].Queue != push.QueueUrgent || o.Next[0].Priority != queue.Urgent {
		t.Errorf("%+v", o)
	}
}

// TestAnEventThatExpiredBefore its task was enqueued is skipped, with its receipts.
func TestAnEventThatExpiredBefore(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	for age, want := range map[time.Duration]string{0: "accepted", 59 * time.Second: "accepted", 10 * time.Minute: "skipped expired", 29 * 24 * time.Hour: "skipped expired"} {
		e := push.Event{ID: fmt.Sprint("after-", age), Type: "comment", Actor: 1, Recipients: []member.ID{2}, ExpiresIn: time.Minute, Age: age}
		n, err := push.NewNotify(e)
		must(t, err)
		task := newTask(uint64(age/time.Second)+1, 1, string(n.Payload))
		if o := s.handler().Handle(t.Context(), []queue.Task{task})[0]; o.Err != nil || len(o.Next) > 0 {
			t.Errorf("after %v: %+v", age, o)
		}
		stored, err := s.store.EventByID(t.Context(), e.ID)
		must(t, err)
		if !stored.Created.Equal(task.Created.Add(-age)) || stored.Expires.Sub(stored.Created) != time.Minute {
			t.Errorf("after %v it was created %v and expires %v", age, stored.Created, stored.Expires)
		}
		if got := s.receipts(); !slices.Contains(got, e.ID+" 20 "+want) {
			t.Errorf("the receipts are %q, want %s of %s", got, want, e.ID)
		}
	}
}
