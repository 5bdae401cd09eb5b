package push_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// olderSite is a site that loses events, and gives their numbers again, but no task.
type olderSite struct {
	*testing.T

	db     *sql.DB
	queue  *queue.Queue
	store  *push.MySQL
	sender *recorder
}

func newOlderSite(t *testing.T) *olderSite {
	t.Helper()
	s := &olderSite{T: t, db: openDB(t), sender: &recorder{}}
	s.queue = queue.NewQueue(s.db, queue.Options{Kinds: tasks.Kinds()})
	s.restart()
	exec(t, s.db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob'), (3, 'eve'), (4, 'dan')")
	for id := 2; id <= 4; id++ {
		exec(t, s.db, "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (? * 10, ?, 'fcm', REPEAT(?, 32), '{}', 5)", id, id, id)
	}
	return s
}

// restart starts a process, which has read no event yet.
func (s *olderSite) restart() {
	s.store = push.NewMySQL(s.db)
}

// lose deletes the events, and what was written of them.
func (s *olderSite) lose() {
	s.Helper()
	exec(s.T, s.db, "DELETE FROM push_events")
	exec(s.T, s.db, "DELETE FROM push_receipts")
	exec(s.T, s.db, "DELETE FROM push_runs")
}

func (s *olderSite) enqueue(event string) {
	s.Helper()
	exec(s.T, s.db, "INSERT INTO tasks (type, subject, args, queue) VALUES ('notify', 1, ?, 'push')", event)
}

// target works on the tasks of targeting that there are, but not on their successors.
func (s *olderSite) target() {
	s.Helper()
	s.work(push.NewTargeting(push.TargetingOptions{Store: s.store, Followers: contacts.NewMySQL(s.db), PageSize: 1}), push.Notify, push.Target)
}

// deliver returns what is sent, as a list of members and titles.
func (s *olderSite) deliver() (sent []string) {
	s.Helper()
	s.work(push.NewDeliveries(push.DeliveryOptions{
		Store: s.store, Senders: map[push.Platform]push.Sender{push.FCM: s.sender}, Log: slog.New(slog.DiscardHandler), Patience: time.Minute, Timeout: time.Minute,
	}), push.Deliver)
	for _, m := range s.sender.sent {
		sent = append(sent, fmt.Sprint(m.Device.Member, " ", m.Title))
	}
	slices.Sort(sent)
	return sent
}

// work has the tasks of some kinds done that there are, and no others.
func (s *olderSite) work(h queue.Handler, kinds ...string) {
	s.Helper()
	list, err := s.queue.Claim(s.Context(), push.QueuePush, 10, time.Minute)
	must(s.T, err)
	var results []queue.Result
	list = slices.DeleteFunc(list, func(task queue.Task) bool {
		isOther := !slices.Contains(kinds, task.Kind)
		if isOther {
			results = append(results, queue.Result{Task: task, Err: queue.Later(0, nil)})
		}
		return isOther
	})
	for i, o := range h.Handle(s.Context(), list) {
		must(s.T, o.Err)
		results = append(results, queue.Result{Task: list[i], Next: o.Next})
	}
	_, err = s.queue.Finish(s.Context(), results)
	must(s.T, err)
}

// TestTasksOfALostEvent: tasks of an event that the site has lost do not deliver the
// event that has its number now, whether the process knows the former one or not.
func TestTasksOfALostEvent(t *testing.T) {
	t.Parallel()
	for name, restarts := range map[string][2]bool{"no process": {}, "all processes": {true, true}, "that of the deliveries": {false, true}} {
		t.Run(name+" restarted", func(t *testing.T) {
			t.Parallel()
			s := newOlderSite(t)
			s.enqueue(`{"id":"one","type":"message","recipients":["2","4"],"title":"for bob"}`)
			s.target() // bob's delivery, and the page of dan
			s.lose()
			exec(t, s.db, "ALTER TABLE push_events AUTO_INCREMENT = 1")
			former := s.store
			if restarts[0] {
				s.restart()
			}
			s.enqueue(`{"id":"two","type":"message","recipients":["3","4"],"title":"a secret"}`)
			s.target()
			s.target()
			s.store = former // which may have read the lost event alone
			if restarts[1] {
				s.restart()
			}
			if sent := s.deliver(); !slices.Equal(sent, []string{"3 a secret", "4 a secret"}) {
				t.Errorf("sent %q", sent)
			}
			var left, receipts int
			must(t, s.db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM tasks) + (SELECT COUNT(*) FROM task_leases) + (SELECT COUNT(*) FROM parked_tasks)").Scan(&left))
			must(t, s.db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM push_receipts WHERE state = 'accepted'").Scan(&receipts))
			if left != 0 || receipts != 2 {
				t.Errorf("%d tasks are left, %d receipts", left, receipts)
			}
		})
	}
}

// TestADeliveryWhoseCacheIsOld: a process that has read the event that was lost delivers the one
// that has its number now.
func TestADeliveryWhoseCacheIsOld(t *testing.T) {
	t.Parallel()
	s := newOlderSite(t)
	s.enqueue(`{"id":"one","type":"message","recipients":["2"],"title":"lost"}`)
	s.target()
	exec(t, s.db, "DELETE FROM tasks")
	s.lose()
	exec(t, s.db, "ALTER TABLE push_events AUTO_INCREMENT = 1")
	old := s.store
	s.restart()
	s.enqueue(`{"id":"two","type":"message","recipients":["3"],"title":"for eve"}`)
	s.target()
	s.store = old
	if sent := s.deliver(); !slices.Equal(sent, []string{"3 for eve"}) {
		t.Errorf("sent %q", sent)
	}
}

// TestADeliveryWithoutATask is that of a process of a former release.
func TestADeliveryWithoutATask(t *testing.T) {
	t.Parallel()
	s := newOlderSite(t)
	s.enqueue(`{"id":"one","type":"message","recipients":["2","4"],"title":"as ever"}`)
	s.target()
	exec(t, s.db, "UPDATE tasks SET args = JSON_REMOVE(args, '$.task')")
	s.target()
	if sent := s.deliver(); !slices.Equal(sent, []string{"2 as ever", "4 as ever"}) {
		t.Errorf("sent %q", sent)
	}
}

// TestABurstOfALostEventGoesOn: the delivery of an event that was lost has absorbed that of another
// one of its burst, and sends it.
func TestABurstOfALostEventGoesOn(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]bool{"the number of another": true, "a number that no event has": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOlderSite(t)
			s.enqueue(`{"id":"one","type":"fave","recipients":["2"],"title":"lost","collapse":"k"}`)
			s.target()
			s.lose()
			if again {
				exec(t, s.db, "ALTER TABLE push_events AUTO_INCREMENT = 1")
			}
			s.restart()
			s.enqueue(`{"id":"two","type":"fave","recipients":["2"],"title":"kept","collapse":"k"}`)
			s.target()
			if sent := s.deliver(); !slices.Equal(sent, []string{"2 kept"}) {
				t.Errorf("sent %q", sent)
			}
		})
	}
}

// TestAPageWithoutMembersLeft: what an earlier attempt noted as pending, for a member that is no
// follower any more, has a delivery.
func TestAPageWithoutMembersLeft(t *testing.T) {
	t.Parallel()
	s := newOlderSite(t)
	exec(t, s.db, "INSERT INTO contacts (user_id, contact_id) VALUES (4, 1)")
	g := push.NewTargeting(push.TargetingOptions{Store: s.store, Followers: contacts.NewMySQL(s.db)})
	task := newTask(5, 1, `{"id":"e","type":"fave","collapse":"c"}`)
	acceptedNow(t, s.db, push.Event{Type: "fave", Collapse: "c"}, 4, 40) // so that it waits
	for range 2 {
		if o := g.Handle(t.Context(), []queue.Task{task})[0]; o.Err != nil || len(o.Next) != 1 || o.Next[0].Key != 40 {
			t.Errorf("%+v, want one delivery to device 40", o)
		}
		exec(t, s.db, "DELETE FROM contacts")
	}
}
