package push_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// TestDeliver: an event for followers and an event for named members go the whole way, and leave nothing but receipts.
func TestDeliver(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	exec(t, s.db, "INSERT INTO blocks (user_id, blocked_id) VALUES (4, 1)")
	s.enqueue(`{"id":"up","type":"upload","object":"photo:901","recipients":"followers"}`)
	s.enqueue(`{"id":"fave","type":"fave","recipients":["2","3"]}`)
	s.deliver(s.handler())
	s.want("sent", s.sender.take(), "20 fave", "20 up", "30 fave", "30 up")
	s.want("receipts", s.receipts(), "fave 20 accepted", "fave 30 accepted", "up 20 accepted", "up 30 accepted", "up 40 skipped blocked")
	s.want("tasks", s.left())
}

// TestDeliverLooksAgain: changes after the event was targeted decide.
func TestDeliverLooksAgain(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","object":"photo:901","recipients":"followers"}`)
	s.target()
	exec(t, s.db, "INSERT INTO blocks (user_id, blocked_id) VALUES (1, 2)")
	exec(t, s.db, "DELETE FROM push_devices WHERE id = 30")
	exec(t, s.db, "INSERT INTO push_mutes (member_id, object, until_at) VALUES (4, 'user:1', 9e12)")
	s.deliver(s.handler())
	s.want("sent", s.sender.take())
	s.want("receipts", s.receipts(), "up 20 skipped blocked", "up 30 skipped no_device", "up 40 skipped muted")
	s.want("tasks", s.left())
}

// TestQuietHoursBeginMeanwhile: the delivery waits for their end.
func TestQuietHoursBeginMeanwhile(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":"followers"}`)
	s.enqueue(`{"id":"now","type":"upload","recipients":["2"],"urgent":true}`)
	s.target()
	now := time.Now().UTC()
	minutes := now.Hour()*60 + now.Minute()
	must(t, s.store.SetSettings(t.Context(), 2, push.Settings{Quiet: push.QuietHours{From: (minutes + 1430) % 1440, To: (minutes + 60) % 1440, Zone: "UTC"}}))
	s.deliver(s.handler())
	s.want("sent", s.sender.take(), "20 now", "30 up", "40 up")
	if left := s.left(); len(left) != 1 || !strings.Contains(left[0], "[[2, 20]]") && !strings.Contains(left[0], "[[2,20]]") {
		t.Errorf("left is %q", left)
	}
	must(t, s.store.SetSettings(t.Context(), 2, push.Settings{}))
	s.soon()
	s.deliver(s.handler())
	s.want("sent afterwards", s.sender.take(), "20 up")
	s.want("tasks", s.left())
}

// TestAnswers: the end of a delivery by each kind of answer.
func TestAnswers(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	d := s.handler()
	send := func(id string, r push.Result) {
		t.Helper()
		s.enqueue(fmt.Sprintf(`{"id":%q,"type":"upload","recipients":["2"]}`, id))
		s.sender.answers(r)
		s.deliver(d)
		s.want("sent", s.sender.take(), "20 "+id)
	}
	send("rejected", push.Result{Outcome: push.Rejected, Status: 400, Reason: "PayloadTooLarge"})
	s.want("tasks", s.left())
	send("slow", push.Result{Outcome: push.Wait, Status: 429, Reason: "TooManyRequests"})
	if left := s.left(); len(left) != 1 {
		t.Errorf("left is %q", left)
	}
	s.sender.answers(accepted)
	s.soon()
	s.deliver(d)
	s.want("sent again", s.sender.take(), "20 slow")
	send("moved", push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered", GoneSince: time.UnixMilli(4)})
	wantIDs(t, s.store, 2, 20) // it was registered later
	send("gone", push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered", GoneSince: time.Now()})
	wantIDs(t, s.store, 2)
	s.want("receipts", s.receipts(), "gone 20 failed Unregistered", "moved 20 failed Unregistered", "rejected 20 failed PayloadTooLarge", "slow 20 accepted")
	s.want("tasks", s.left())
}

// TestNothingIsSentTwice: a process that died before the finish, and a process that was stopped before it, leave receipts. The
// next attempt sends only to devices without a receipt.
func TestNothingIsSentTwice(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":"followers"}`)
	list := s.claim(push.QueuePush)
	s.sender.does(func(_ context.Context, m push.Message) push.Result {
		if m.Device.ID == 30 {
			return push.Result{Outcome: push.Ambiguous, Reason: "connection"}
		}
		return accepted
	})
	s.handler().Handle(t.Context(), list) // and the process dies
	s.want("sent", s.sender.take(), "20 up", "30 up", "40 up")
	s.sender.answers(accepted)
	s.finish(s.handler(), list)
	s.want("sent by the next one", s.sender.take(), "30 up")
	s.want("receipts", s.receipts(), "up 20 accepted", "up 30 accepted", "up 40 accepted")
}

// TestALateAnswer: a handler does not wait for the slowest. Its answer is recorded all the same, and the task, as it
// comes again, finds it.
func TestALateAnswer(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":"followers"}`)
	answer := make(chan struct{})
	s.sender.does(func(_ context.Context, m push.Message) push.Result {
		if m.Device.ID == 30 {
			<-answer
		}
		return accepted
	})
	d := s.handler(func(o *push.HandlerOptions) { o.Patience = 100 * time.Millisecond })
	s.deliver(d)
	s.want("receipts", s.receipts(), "up 20 accepted", "up 40 accepted")
	close(answer)
	servertest.Eventually(t, "the late answer is recorded", func() bool { return len(s.receipts()) == 3 })
	s.sender.take()
	if left := s.left(); len(left) != 1 {
		t.Fatalf("left is %q", left)
	}
	s.soon()
	s.deliver(d)
	s.want("sent again", s.sender.take())
	s.want("tasks", s.left())
}

// TestAnUnansweredMessage is sent again under the same ids.
func TestAnUnansweredMessage(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":["2"]}`)
	s.target()
	s.sender.does(func(ctx context.Context, _ push.Message) push.Result {
		<-ctx.Done()
		return push.Result{Outcome: push.Ambiguous, Reason: "timeout"}
	})
	d := s.handler(func(o *push.HandlerOptions) { o.Timeout = 50 * time.Millisecond })
	s.deliver(d)
	s.sender.answers(accepted)
	s.soon()
	s.deliver(d)
	first, again := s.sender.sent[0], s.sender.sent[1]
	if left := time.Until(first.Before); left > 3*time.Second || first.Before.IsZero() {
		t.Errorf("it may leave for %v", left)
	}
	if first.ID != again.ID || first.Collapse != again.Collapse || first.Collapse == "" {
		t.Errorf("first %q, %q, and again %q, %q", first.ID, first.Collapse, again.ID, again.Collapse)
	}
	s.want("receipts", s.receipts(), "up 20 accepted")
}

// unsteady is a store whose Record fails for a while.
type unsteady struct {
	*push.MySQL
	fails atomic.Int64
}

func (u *unsteady) Record(ctx context.Context, receipts []push.Receipt) error {
	if u.fails.Add(-1) >= 0 {
		return errors.New("it is away")
	}
	return u.MySQL.Record(ctx, receipts)
}

// blind is a store whose first look fails.
type blind struct {
	*push.MySQL
	looks atomic.Int64
}

func (b *blind) Look(ctx context.Context, candidates []push.Candidate) ([]push.Facts, error) {
	if b.looks.Add(1) == 1 {
		return nil, errors.New("it is away")
	}
	return b.MySQL.Look(ctx, candidates)
}

// TestATaskThatFailedSendsNothing: it comes again as a whole.
func TestATaskThatFailedSendsNothing(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":["2"]}`)
	list := s.claim(push.QueuePush)
	store := &blind{MySQL: s.store}
	d := s.handler(func(o *push.HandlerOptions) { o.Store = store })
	if o := d.Handle(t.Context(), list)[0]; o.Err == nil {
		t.Errorf("it ends as %+v", o)
	}
	s.want("sent", s.sender.take())
	d.Handle(t.Context(), list)
	s.want("sent again", s.sender.take(), "20 up")
}

// slowLook is a store whose looks take long, as in a process that is stopped.
type slowLook struct{ *push.MySQL }

func (s slowLook) Look(ctx context.Context, candidates []push.Candidate) ([]push.Facts, error) {
	facts, err := s.MySQL.Look(ctx, candidates)
	<-time.After(3100 * time.Millisecond)
	return facts, err
}

// slowToStore is a store that takes longer for events than a handler takes further tasks of its batch.
type slowToStore struct{ *push.MySQL }

func (s slowToStore) StoreEvents(ctx context.Context, batch []*push.StoredEvent) ([]*push.StoredEvent, error) {
	<-time.After(1100 * time.Millisecond)
	return s.MySQL.StoreEvents(ctx, batch)
}

// TestASlowDatabaseIsNoEnd: a batch whose events took long to store is sent all the same. Else no batch would ever be.
func TestASlowDatabaseIsNoEnd(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":["2"]}`)
	s.deliver(s.handler(func(o *push.HandlerOptions) { o.Store = slowToStore{s.store} }))
	s.want("sent", s.sender.take(), "20 up")
	s.want("tasks", s.left())
}

// TestNothingIsSentByAnOldLook: a photo that was seen more than 3 s ago may have been hidden since, or sent by another process.
func TestNothingIsSentByAnOldLook(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","object":"photo:901","recipients":["2"]}`)
	s.deliver(s.handler(func(o *push.HandlerOptions) { o.Store = slowLook{s.store} }))
	s.want("sent", s.sender.take())
	exec(t, s.db, "UPDATE photos SET visibility = 'private'")
	s.soon()
	s.deliver(s.handler())
	s.want("sent afterwards", s.sender.take())
	s.want("receipts", s.receipts(), "up 20 skipped not_visible")
}

// TestReceiptsBeforeTheFinish: while the database takes no receipts, no task ends; and they are written when it does.
func TestReceiptsBeforeTheFinish(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":["2"]}`)
	s.target()
	store := &unsteady{MySQL: s.store}
	store.fails.Store(1 << 40)
	d := s.handler(func(o *push.HandlerOptions) { o.Store = store })
	list := s.claim(push.QueueDeliver)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // the lease is lost
	defer cancel()
	if o := d.Handle(ctx, list)[0]; o.Err == nil || len(o.Next) > 0 {
		t.Errorf("it ends as %+v", o)
	}
	store.fails.Store(0)
	servertest.Eventually(t, "the receipt is written", func() bool { return slices.Equal(s.receipts(), []string{"up 20 accepted"}) })
}

// TestAPanicIsNoAnswer.
func TestAPanicIsNoAnswer(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"up","type":"upload","recipients":["2"]}`)
	s.sender.does(func(context.Context, push.Message) push.Result { panic("no") })
	s.deliver(s.handler())
	if left := s.left(); len(left) != 1 || len(s.receipts()) > 0 {
		t.Errorf("left is %q", left)
	}
}

// TestNoKeys: a delivery for a platform without keys waits for another process, until it is too late.
func TestNoKeys(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"long","type":"upload","recipients":["2"]}`)
	s.enqueue(`{"id":"short","type":"upload","recipients":["2"],"expires_in":5}`)
	s.deliver(s.handler(func(o *push.HandlerOptions) { o.Senders = nil }))
	s.want("receipts", s.receipts(), "short 20 skipped off")
	if left := s.left(); len(left) != 1 {
		t.Errorf("left is %q", left)
	}
}

// TestBurst: the first event of a burst is sent at once; events within a minute wait as a task, and are sent as the newest,
// with the number of the burst, under the same collapse id.
func TestBurst(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	d := s.handler()
	send := func(id, more string) {
		t.Helper()
		s.enqueue(fmt.Sprintf(`{"id":%q,"type":"comment","recipients":["2"],"collapse":"c"%s}`, id, more))
		s.deliver(d)
	}
	send("a", "")
	s.want("first", s.sender.take(), "20 a")
	send("b", "")
	send("c", "")
	s.want("soon after", s.sender.take())
	if left := s.left(); len(left) != 1 || !strings.HasPrefix(left[0], "burst ") {
		t.Errorf("left is %q", left)
	}
	s.soon()
	s.deliver(d)
	s.want("too early", s.sender.take())
	send("now", `,"urgent":true`)
	s.want("urgent", s.sender.take(), "20 now")
	exec(t, s.db, "UPDATE push_receipts SET at = at - 60000 WHERE state = 'accepted'")
	s.soon()
	s.deliver(d)
	s.want("a minute later", s.sender.take(), "20 c ×4")
	s.want("receipts", s.receipts(), "a 20 accepted", "b 20 accepted doubled", "c 20 accepted", "now 20 accepted")
	s.want("tasks", s.left())
}

// TestADeviceThatGoesBeforeTheFinish: an attempt left an event waiting with its burst, and died. The next finds no device.
func TestADeviceThatGoesBeforeTheFinish(t *testing.T) {
	t.Parallel()
	for what, statement := range map[string]string{
		"device deleted": "DELETE FROM push_devices WHERE id = 20",
		"device gone":    "UPDATE push_devices SET gone_at = 1, gone_reason = 'gone' WHERE id = 20",
		"member deleted": "DELETE FROM users WHERE id = 2",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newNotified(t)
			h := s.handler()
			s.enqueue(`{"id":"a","type":"comment","recipients":["2"],"collapse":"c"}`)
			s.deliver(h)
			s.enqueue(`{"id":"b","type":"comment","recipients":["2","3"],"collapse":"c"}`)
			list := s.claim(push.QueuePush)
			h.Handle(t.Context(), list) // and the process dies
			s.want("receipts", s.receipts(), "a 20 accepted", "b 20 pending", "b 30 accepted")
			exec(t, s.db, statement)
			list[0].Attempts++
			s.finish(h, list)
			s.want("receipts at last", s.receipts(), "a 20 accepted", "b 0 skipped no_device", "b 20 skipped no_device", "b 30 accepted")
			s.want("tasks", s.left())
		})
	}
}

// TestABurstAtOnce: the events of a batch are a single message.
func TestABurstAtOnce(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	for i := range 5 {
		s.enqueue(fmt.Sprintf(`{"id":"e%d","type":"comment","recipients":"followers","collapse":"c"}`, i))
	}
	s.deliver(s.handler())
	s.want("sent", s.sender.take(), "20 e4 ×5", "30 e4 ×5", "40 e4 ×5")
	s.want("tasks", s.left())
}

// TestABurstTellsNothing of an event that its recipient may not see by now.
func TestABurstTellsNothing(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	d := s.handler()
	exec(t, s.db, "INSERT INTO photos (id, owner_id, visibility, date_upload) VALUES (902, 1, 'public', 1)")
	for _, e := range []string{"1", "2", "1"} {
		s.enqueue(fmt.Sprintf(`{"type":"upload","recipients":["2"],"collapse":"c","object":"photo:90%s"}`, e))
		s.deliver(d)
	}
	s.sender.take()
	exec(t, s.db, "UPDATE photos SET visibility = 'private' WHERE id = 901")
	exec(t, s.db, "UPDATE push_receipts SET at = at - 60000")
	s.soon()
	s.deliver(d)
	s.sender.mu.Lock()
	defer s.sender.mu.Unlock()
	if len(s.sender.sent) != 1 || s.sender.sent[0].Object != "photo:902" || s.sender.sent[0].Count != 1 {
		t.Errorf("sent %+v", s.sender.sent)
	}
	s.want("tasks", s.left())
}

// TestARefusedBurst: a refusal of the newest says nothing about the rest.
func TestARefusedBurst(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	d := s.handler()
	for i := range 3 {
		s.enqueue(fmt.Sprintf(`{"id":"e%d","type":"comment","recipients":["2"],"collapse":"c"}`, i))
	}
	s.sender.answers(push.Result{Outcome: push.Rejected, Status: 400, Reason: "BadTopic"})
	s.deliver(d)
	s.sender.answers(accepted)
	s.soon()
	s.deliver(d)
	s.want("sent", s.sender.take(), "20 e1 ×2", "20 e2 ×3")
	s.want("receipts", s.receipts(), "e0 20 accepted doubled", "e1 20 accepted", "e2 20 failed BadTopic")
	s.want("tasks", s.left())
}

// TestTasksThatMakeNoSense are dead; tasks of events that are not known any more are done.
func TestTasksThatMakeNoSense(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	h := s.handler()
	for kind, payloads := range map[string]map[string]bool{
		push.Notify:  {`{"type":"upload","recipients":"all"}`: true, `{}`: true},
		push.Target:  {`{"event":77,"after":"9"}`: false, `{}`: true, `{"event":"x"}`: true, `"40000 bytes"`: true},
		push.Deliver: {`{"event":77,"to":[[2,20]]}`: false, `{}`: true, `{"event":1,"to":[]}`: true, `{"event":1,"to":[[0,1]]}`: true, `"x"`: true},
		push.Burst:   {`{"event":77,"to":[[2,20]],"burst":"00112233445566778899aabbccddeeff"}`: false, `{"event":1,"to":[[2,20]],"burst":"00"}`: true},
	} {
		for payload, dead := range payloads {
			task := queue.Task{ID: 5, Kind: kind, Key: 1, Queue: push.QueueDeliver, Payload: []byte(payload), Attempts: 1}
			o := h.Handle(t.Context(), []queue.Task{task})[0]
			if errors.Is(o.Err, queue.ErrInvalid) != dead || !dead && (o.Err != nil || len(o.Next) > 0) {
				t.Errorf("%s %s: %+v", kind, payload, o)
			}
		}
	}
}

// TestALostEvent: tasks of events that the database has lost send nothing; a task whose number an earlier event has is dead.
func TestALostEvent(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	s.enqueue(`{"id":"lost","type":"upload","recipients":["2","3"]}`)
	s.target()
	exec(t, s.db, "UPDATE push_events SET id = 'another'")
	var number uint64
	must(t, s.db.QueryRowContext(t.Context(), "SELECT number FROM push_events").Scan(&number))
	task := queue.Task{ID: number, Kind: push.Notify, Key: 1, Payload: []byte(`{"id":"new","type":"fave","recipients":["2"]}`), Created: time.Now(), Claimed: time.Now()}
	if o := s.handler().Handle(t.Context(), []queue.Task{task})[0]; queue.Judge(queue.Result{Task: task, Err: o.Err}).State != queue.Dead {
		t.Errorf("a task whose number is taken: %+v", o)
	}
	exec(t, s.db, "DELETE FROM push_events")
	s.deliver(s.handler())
	s.want("sent", s.sender.take())
	s.want("tasks", s.left())
}
