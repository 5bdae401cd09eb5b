package push_test

import (
	"context"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/queuetest"
)

// A task of several devices ends as a whole: what waits is left to tasks for those that wait for as
// long, and what is accepted is not sent again.
func TestPageIsDivided(t *testing.T) {
	t.Parallel()
	bubble(t, 300, func(t *testing.T, w *world) {
		waits := map[uint64]time.Duration{5: time.Minute, 6: time.Minute, 270: time.Hour / 2}
		start := time.Now()
		w.answering(func(_ context.Context, m push.Message) push.Result {
			if after := waits[m.Device.ID]; time.Since(start) < after {
				return push.Result{Outcome: push.Wait, Status: 429, After: after}
			}
			if m.Device.ID == 7 {
				return push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered"}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		e := w.event(push.Event{})
		w.deliver(e, devicesTo(300)...)
		w.counts(queuetest.Counts{Waiting: 2})
		w.begin()
		pass(10 * time.Second)
		w.waits(3)
		w.counts(queuetest.Counts{Scheduled: 2})
		pass(time.Hour)
		w.done()
		sent, accepted := w.messages()
		if sent != 303 || accepted != 299 || w.receipt(e.Number, 7).State != push.StateFailed {
			t.Errorf("%d messages, %d accepted; the one that is gone: %+v", sent, accepted, w.receipt(e.Number, 7))
		}
		for device := range uint64(300) {
			if r := w.receipt(e.Number, device+1); r.State != push.StateAccepted && device+1 != 7 || r.Task != 0 && waits[device+1] > time.Minute {
				t.Errorf("receipt %+v", r)
			}
		}
	})
}

// A process that hangs with a page in flight, or dies: another one sends what has no receipt. A push
// service that is slow for some of a page holds up neither the others nor the page.
func TestPageOfASlowPushService(t *testing.T) {
	t.Parallel()
	bubble(t, 100, func(t *testing.T, w *world) {
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			if m.Device.ID <= 3 {
				return answerAfter(8*time.Second)(ctx, m)
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		e := w.event(push.Event{})
		w.deliver(e, devicesTo(100)...)
		w.begin()
		pass(2 * time.Second)
		if _, accepted := w.messages(); accepted != 97 {
			t.Errorf("%d were accepted at once, want 97", accepted)
		}
		w.waits(3)
		pass(time.Minute)
		w.done()
		if sent, accepted := w.messages(); sent != 100 || accepted != 100 {
			t.Errorf("%d messages, %d accepted", sent, accepted)
		}
	})
}

// More pages than may be in flight: a claim sends no more until some of them are answered.
func TestPagesInFlightAreBounded(t *testing.T) {
	t.Parallel()
	const devices = 5000
	bubble(t, devices, func(t *testing.T, w *world) {
		var now, most int
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			w.mu.Lock()
			now++
			most = max(most, now)
			w.mu.Unlock()
			defer func() {
				w.mu.Lock()
				now--
				w.mu.Unlock()
			}()
			return answerAfter(100*time.Millisecond)(ctx, m)
		})
		w.deliver(w.event(push.Event{}), devicesTo(devices)...)
		w.begin()
		pass(time.Minute)
		w.done()
		if sent, accepted := w.messages(); sent != devices || accepted != devices || most > 2*2000 {
			t.Errorf("%d messages, %d accepted, %d at once", sent, accepted, most)
		}
	})
}
