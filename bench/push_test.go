package main

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/apns"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// handlersOfPush returns the handlers that work calls, over the queue of a service.
func (p *pushBench) handlersOfPush(sender *apns.Sender) (our *activityd, handlers map[string]queue.Handler) {
	our = newActivityd(p.backend)
	store := push.NewMySQL(p.db)
	return our, tasks.Handlers(p.index, our.store, our.queue, tasks.HandlerOptions{
		Push: push.Handler{
			Targeting:  push.NewTargeting(push.TargetingOptions{Store: store, Followers: our.store}),
			Deliveries: push.NewDeliveries(push.DeliveryOptions{Store: store, Senders: map[push.Platform]push.Sender{apns.Platform: sender}, Log: p.log}),
		},
	})
}

// step claims tasks of a queue, and counts the statements of their handler, and of their end.
func (p *pushBench) step(t *testing.T, our *activityd, h map[string]queue.Handler, name string, want int) (work, finish float64) {
	t.Helper()
	claimed, err := our.queue.Claim(t.Context(), name, want, time.Minute)
	if err != nil || len(claimed) != want {
		t.Fatalf("%d tasks of %s were claimed, want %d: %v", len(claimed), name, want, err)
	}
	results := make([]queue.Result, len(claimed))
	worked := p.count(t, func(ctx context.Context) (int, error) {
		for i, o := range h[claimed[0].Kind].Handle(ctx, claimed) {
			if o.Err != nil {
				t.Errorf("task %d: %v", i, o.Err)
			}
			results[i] = queue.Result{Task: claimed[i], Err: o.Err, Next: o.Next}
		}
		return len(claimed), nil
	})
	finished := p.count(t, func(ctx context.Context) (int, error) { return our.queue.Finish(ctx, results) })
	return worked.Statements, finished.Statements
}

// However many devices, a batch of deliveries is one look, one transaction for the receipts and
// one statement for the end of its tasks; and a page of recipients is a few. So it is for the first event of a
// burst.
func TestPushCounts(t *testing.T) {
	t.Parallel()
	for name, burst := range map[string]bool{"no burst": false, "burst": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testPushCounts(t, burst)
		})
	}
}

func testPushCounts(t *testing.T, burst bool) {
	t.Helper()
	// A burst takes more: a transaction of four that writes the run, and two reads of what others of it are; and three
	// before the look.
	targeting, delivery := 3.0, 4.0
	if burst {
		targeting, delivery = 9, 7
	}
	p, err := setup(t, tiny()).pushes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	our, handlers := p.handlersOfPush(p.sender)
	for range 2 { // the statements are prepared, and the queue is known, after the first time
		events := p.toAll(push.MaxRecipients)
		if burst {
			events[0].Collapse = events[0].ID
		}
		if err := announce(t.Context(), our, events...); err != nil {
			t.Fatal(err)
		}
		// Insert the event, and look at the recipients.
		work, finish := p.step(t, our, handlers, push.QueuePush, 1)
		// One more of each: a connection that was not used for a second is asked whether its
		// server is the primary.
		if work > targeting || work < 1 || finish > 7 || finish < 1 {
			t.Errorf("a page of %d recipients: %v statements, and %v to end it, want at most %v and 7", push.MaxRecipients, work, finish, targeting)
		}
		start := time.Now()
		const pages = (push.MaxRecipients + 255) / 256
		work, finish = p.step(t, our, handlers, push.QueuePush, pages)
		// What their tasks sent before, a look, and a transaction of four statements for what was accepted in each 100 ms.
		most := delivery + 4*(1+math.Floor(float64(time.Since(start))/float64(100*time.Millisecond)))
		if work > most || work < 1 || finish > 5 || finish < 1 {
			t.Errorf("%d deliveries: %v statements, and %v to end them, want at most %v and 5", push.MaxRecipients, work, finish, most)
		}
		t.Logf("%d deliveries: %v statements, and %v to end them", push.MaxRecipients, work, finish)
		var rows, single int
		if err := p.db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM push_runs), (SELECT COUNT(*) FROM push_receipts)").Scan(&rows, &single); err != nil {
			t.Fatal(err)
		}
		if rows < 1 || rows > 20 || single != 0 {
			t.Errorf("%d runs and %d receipts of their own, want at most 20 and none", rows, single)
		}
		if err := p.forget(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := p.apple.Stats().Accepted, 2*push.MaxRecipients; got != want {
		t.Errorf("%d messages were accepted, want %d", got, want)
	}
}

// An event for one device is its row, one look and its receipt, each by one statement, and one for the end of its task: with the
// claim three transactions until it is accepted. For one of a burst, it is marked before, and others of the burst are looked for.
func TestCountsOfASmallEvent(t *testing.T) {
	t.Parallel()
	p, err := setup(t, tiny()).pushes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	our, handlers := p.handlersOfPush(p.sender)
	for _, test := range []struct {
		collapse string
		most     float64
	}{{"", 3}, {"", 3}, {"one", 9}, {"another", 9}} {
		e := p.event(followersFrom(0, 1)...)
		e.Collapse = test.collapse
		if err := announce(t.Context(), our, e); err != nil {
			t.Fatal(err)
		}
		work, finish := p.step(t, our, handlers, push.QueuePush, 1)
		// One more of each: a connection that was not used for a second is asked whether its server is the primary.
		if work > test.most+1 || work < 3 || finish > 2 || finish < 1 {
			t.Errorf("an event of the burst %q for one device: %v statements, and %v to end it, want at most %v and 1, and one more of each", test.collapse, work, finish, test.most)
		}
		t.Logf("an event of the burst %q for one device: %v statements, and %v to end it", test.collapse, work, finish)
	}
	var accepted, tasks int
	err = p.db.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM push_receipts WHERE state = 'accepted'), (SELECT COUNT(*) FROM tasks)").Scan(&accepted, &tasks)
	if err != nil || accepted != 4 || tasks != 0 || p.apple.Stats().Accepted != 4 {
		t.Errorf("%d receipts, %d tasks, %d messages, %v; want 4, none and 4", accepted, tasks, p.apple.Stats().Accepted, err)
	}
}

// All deliveries that wait when a process starts go over two connections at most.
func TestAColdStartOpensFewConnections(t *testing.T) {
	t.Parallel()
	p, err := setup(t, tiny()).pushes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if conns, err := p.coldStart(t.Context(), 500); err != nil || conns < 1 || conns > 2 {
		t.Errorf("%d connections, %v; want at most 2", conns, err)
	}
}

// checkPush checks that every way to send sent all, and that it was compared with a bare loop
// and with apns2.
func checkPush(t *testing.T, list []figure, o options) {
	t.Helper()
	var against []string
	for _, f := range list {
		if f.Against != "" {
			against = append(against, f.Against)
		}
		if len(f.Samples) > 0 && (len(f.Samples) != o.rounds || f.Samples[0].Ops != o.pushes) {
			t.Errorf("%s: %+v, want %d runs of %d deliveries", f.Name, f.Samples, o.rounds, o.pushes)
		}
	}
	slices.Sort(against)
	if got := strings.Join(slices.Compact(against), "; "); got != wayBare+"; "+wayAPNs2 {
		t.Errorf("compared with %q", got)
	}
}
