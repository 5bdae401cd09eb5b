package push_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/servertest"
)

// atTwo is a sender whose devices of member 2 are at a push service that hangs.
type atTwo struct {
	*scripted

	hang           chan struct{} // until it is closed
	asked, waiting atomic.Int64
}

func (s *atTwo) Send(ctx context.Context, m push.Message) push.Result {
	if m.Device.Member != 2 {
		return s.scripted.Send(ctx, m)
	}
	s.asked.Add(1)
	s.waiting.Add(1)
	defer s.waiting.Add(-1)
	<-s.hang
	return push.Result{Outcome: push.Ambiguous, Reason: "timeout"}
}

func (s *atTwo) Origin(d push.Device) string {
	if d.Member == 2 {
		return "https://hangs.example:443"
	}
	return s.scripted.Origin(d)
}

// TestOneMemberHoldsUpNoOther: of 300 devices of one member at a push service that hangs, few messages wait, and messages for
// other members leave at once.
func TestOneMemberHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	s := newNotified(t)
	for i := range 300 {
		exec(t, s.db, "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (?, 2, 'fcm', LPAD(?, 32, '0'), JSON_OBJECT('token', ?), 5)", 1000+i, i, i)
	}
	sender := &atTwo{scripted: s.sender, hang: make(chan struct{})}
	d := s.handler(func(o *push.HandlerOptions) {
		o.Senders[push.FCM], o.Patience = sender, 50*time.Millisecond
	})
	const events = 5
	for i := range events {
		s.enqueue(fmt.Sprintf(`{"id":"e%d","type":"upload","recipients":"followers","collapse":""}`, i))
	}
	s.deliver(d)
	if n := len(s.sender.take()); n != 2*events {
		t.Errorf("%d messages to others left, want %d", n, 2*events)
	}
	const share = 16 // maxOfMember
	if n := sender.waiting.Load(); n == 0 || n > share {
		t.Errorf("%d messages wait for the push service that hangs", n)
	}
	before := sender.asked.Load()
	s.soon()
	s.enqueue(`{"id":"last","type":"upload","recipients":"followers","collapse":""}`)
	s.deliver(d)
	if n := len(s.sender.take()); n != 2 || sender.asked.Load() != before {
		t.Errorf("then %d messages to others left, want 2, and %d more to the one that hangs", n, sender.asked.Load()-before)
	}
	close(sender.hang)
	servertest.Eventually(t, "no message waits", func() bool { return sender.waiting.Load() == 0 })
}
