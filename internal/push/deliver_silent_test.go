package push_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// counted is a queue that counts what becomes of tasks.
type counted struct {
	queue.Store
	postponed atomic.Int64
}

func (c *counted) Finish(ctx context.Context, results []queue.Result) (int, error) {
	for _, r := range results {
		if r.Err != nil {
			c.postponed.Add(1)
		}
	}
	return c.Store.Finish(ctx, results)
}

// browsers makes devices of the world those of Web Push, each at a push service of its own, and
// a number of them those of one member.
func (w *world) browsers(n, ofMember uint64) {
	for id := uint64(1); id <= n; id++ {
		d := w.devices[id]
		d.Platform, d.Member = push.WebPush, member.ID((id-1)/ofMember+1)
		w.devices[id] = d
	}
	w.origin = func(d push.Device) string {
		if d.ID > n {
			return "https://push.example:443"
		}
		return fmt.Sprintf("https://%d.made-up.example:443", d.ID)
	}
}

// hangs is a push service that accepts connections and answers nothing.
func hangs(ctx context.Context, _ push.Message) push.Result {
	<-ctx.Done()
	return push.Result{Outcome: push.Ambiguous, Reason: "timeout"}
}

// Six members name 300 push services that answer nothing, or 300 addresses of one, and ten events
// come for each. Few of what waits for them is looked at again and again, and the deliveries to
// others do not wait.
func TestWhatStandsForSilentServicesDoesNotCircle(t *testing.T) {
	t.Parallel()
	const silent = 300
	for name, origin := range map[string]func(push.Device) string{
		"each apart": func(d push.Device) string { return fmt.Sprintf("https://%d.made-up.example:443", d.ID) },
		"one":        func(push.Device) string { return "https://one.made-up.example:443" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSilentServices(t, silent, func(d push.Device) string {
				if d.ID > silent {
					return "https://push.example:443"
				}
				return origin(d)
			})
		})
	}
}

func testSilentServices(t *testing.T, silent uint64, origin func(push.Device) string) {
	const events, honest = 10, 50
	bubble(t, int(silent)+honest, func(t *testing.T, w *world) {
		w.browsers(silent, 50)
		w.origin = origin
		for id := silent + 1; id <= silent+honest; id++ {
			d := w.devices[id]
			d.Platform = push.WebPush
			w.devices[id] = d
		}
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			if m.Device.ID > silent {
				return answerAfter(20*time.Millisecond)(ctx, m)
			}
			return hangs(ctx, m)
		})
		o := w.options()
		o.Senders[push.WebPush] = w
		c := &counted{Store: w.queue}
		w.start(push.NewDeliveries(o), c)
		w.deliver(w.event(push.Event{}), silent+1) // the push service of the others is in use
		pass(time.Second)
		var all []*push.StoredEvent
		for range events {
			all = append(all, w.event(push.Event{}))
		}
		w.deliverAll(all, devicesTo(silent)...)
		for i := range 20 {
			pass(time.Minute)
			e := w.event(push.Event{})
			var devices []uint64
			for id := silent + 1; id <= silent+honest; id++ {
				devices = append(devices, id)
			}
			w.deliver(e, devices...)
			pass(5 * time.Second)
			late := 0
			for _, id := range devices {
				if w.receipt(e.Number, id).State != push.StateAccepted {
					late++
				}
			}
			if late > 0 {
				t.Errorf("after %d minutes, %d of %d that are answered had to wait", i+1, late, honest)
			}
		}
		// Each for itself, they came by in 3,400 batches and were put off 144,000 times; those to one
		// push service in 720, and 67,000 times.
		if n := c.postponed.Load(); w.looks > 700 || n > 32_000 {
			t.Errorf("%d batches, %d put off", w.looks, n)
		}
		if log := w.log.String(); !strings.Contains(log, "push services that accept nothing hold up messages") || !strings.Contains(log, "member=") ||
			!strings.Contains(log, "made-up.example") {
			t.Errorf("the log does not say whose they are: %s", log)
		}
	})
}

// Six members name 300 push services that fail at once, and an event comes for each every second. No more is sent
// to them than if they answered nothing.
func TestPushServicesThatFailAtOnceGetNoMore(t *testing.T) {
	t.Parallel()
	const members, ofMember, events = 6, 50, 20
	bubble(t, members*ofMember, func(t *testing.T, w *world) {
		w.browsers(members*ofMember, ofMember)
		var sent atomic.Int64
		w.answering(func(context.Context, push.Message) push.Result {
			sent.Add(1)
			return push.Result{Outcome: push.Ambiguous, Reason: "reset"}
		})
		o := w.options()
		o.Senders[push.WebPush] = w
		w.start(push.NewDeliveries(o), w.queue)
		for range events {
			w.deliver(w.event(push.Event{}), devicesTo(members*ofMember)...)
			pass(time.Second)
		}
		// Eight of each member at once, and eight more in each 10 s: else they are about 1,100.
		if n, most := sent.Load(), int64(members*8*(1+events/10)); n > most || n < most/2 {
			t.Errorf("%d messages, want at most %d", n, most)
		}
	})
}

// Of what waits for a subscription that has been silent for long, the newest is kept, and the others
// say why not.
func TestFewDeliveriesStandForASilentSubscription(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, w *world) {
		const events = 10
		w.browsers(2, 1)
		w.answering(hangs)
		o := w.options()
		o.Senders[push.WebPush] = w
		w.silent[1] = time.Now().Add(-time.Hour)
		w.heard[2] = true // before
		var all []*push.StoredEvent
		for range events {
			all = append(all, w.event(push.Event{}))
			w.deliver(all[len(all)-1], 1, 2)
		}
		w.start(push.NewDeliveries(o), w.queue)
		pass(time.Hour)
		var dropped []uint64
		for _, e := range all {
			if r := w.receipt(e.Number, 1); r.State == push.StateSkipped && r.Reason == string(push.Silent) {
				dropped = append(dropped, e.Number)
			}
			if r := w.receipt(e.Number, 2); r.State == push.StateSkipped {
				t.Errorf("a device that accepted something before: %+v", r)
			}
		}
		if n := len(dropped); n != events-3 || dropped[n-1] != events-3 {
			t.Errorf("dropped %v", dropped)
		}
		w.rest()
		w.counts(queuetest.Counts{Scheduled: 2*events - len(dropped)})
		w.answering(nil)
		pass(2 * time.Hour) // one that comes while another is sent waits for half an hour once more
		w.done()
		for _, e := range all[events-3:] {
			if r := w.receipt(e.Number, 1); r.State != push.StateAccepted {
				t.Errorf("when it answers: %+v", r)
			}
		}
		if !w.heard[1] {
			t.Error("that it accepted is not noted")
		}
	})
}

// A new subscription whose push service is away for some minutes gets all that was meant for it.
func TestABriefSilenceLosesNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.browsers(1, 1)
		w.answering(hangs)
		o := w.options()
		o.Senders[push.WebPush] = w
		w.start(push.NewDeliveries(o), w.queue)
		var all []*push.StoredEvent
		for range 10 {
			all = append(all, w.event(push.Event{}))
			w.deliver(all[len(all)-1], 1)
			pass(time.Minute)
		}
		if w.silent[1].IsZero() {
			t.Error("it was sent to in vain, and that is not noted")
		}
		w.answering(nil)
		pass(time.Hour)
		w.done()
		for _, e := range all {
			if r := w.receipt(e.Number, 1); r.State != push.StateAccepted {
				t.Errorf("event %d: %+v", e.Number, r)
			}
		}
	})
}

// A silent subscription is retired after three days, with the reason, unless its push service answers
// that our keys are wrong, or no push service of others accepts anything: then it may be our network.
func TestASilentSubscriptionIsRetired(t *testing.T) {
	before := metricstest.Gather(t)
	answers := map[string]func(context.Context, push.Message) push.Result{
		"silent":      hangs,
		"unavailable": func(context.Context, push.Message) push.Result { return push.Result{Outcome: push.Wait, Status: 503} },
		"our keys": func(context.Context, push.Message) push.Result {
			return push.Result{Outcome: push.Credentials, Status: 403}
		},
		"our network": hangs,
	}
	for name, answer := range answers {
		for since, retires := range map[time.Duration]bool{71 * time.Hour: false, 73 * time.Hour: name == "silent" || name == "unavailable"} {
			bubble(t, 2, func(t *testing.T, w *world) {
				w.browsers(2, 1)
				w.answering(func(ctx context.Context, m push.Message) push.Result {
					if m.Device.ID == 2 && name != "our network" {
						return push.Result{Outcome: push.Accepted, Status: 201}
					}
					return answer(ctx, m)
				})
				w.silent[1] = time.Now().Add(-since)
				o := w.options()
				o.Senders[push.WebPush] = w
				e := w.event(push.Event{})
				w.deliver(e, 2)
				w.start(push.NewDeliveries(o), w.queue)
				pass(time.Second)
				w.deliver(e, 1)
				pass(time.Minute)
				if p, retired := w.pruned[1]; retired != retires || retired && p.Reason != string(push.Silent) {
					t.Errorf("%s for %v: retired %t, %+v", name, since, retired, p)
				}
				if r := w.receipt(1, 1); retires && (r.State != push.StateFailed || r.Reason != string(push.Silent)) {
					t.Errorf("%s: receipt %+v", name, r)
				}
			})
		}
	}
	const retired = `activityd_push_devices_gone_total{platform="webpush",reason="silent"}`
	if n := metricstest.Gather(t).Since(before)[retired]; n != 2 {
		t.Errorf("%v are counted, want 2", n)
	}
}

// A subscription that accepted messages, and whose push service has gone away for good: for a day all
// is as before. Then it is asked less and less, and at last retired. What it is asked by are events once an hour.
func TestASubscriptionThatFallsSilentIsRetired(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, w *world) {
		w.browsers(2, 1)
		w.heard[1] = true
		asked := 0
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			if m.Device.ID == 2 {
				return push.Result{Outcome: push.Accepted, Status: 201}
			}
			w.mu.Lock()
			asked++
			w.mu.Unlock()
			return hangs(ctx, m)
		})
		o := w.options()
		o.Senders[push.WebPush] = w
		w.start(push.NewDeliveries(o), w.queue)
		var byDay []int
		gone := 0
		for hour := 1; hour <= 6*24; hour++ {
			w.deliver(w.event(push.Event{ExpiresIn: 28 * 24 * time.Hour}), 1, 2)
			pass(time.Hour)
			if _, retired := w.pruned[1]; retired && gone == 0 {
				gone = hour
			}
			if hour%24 == 0 {
				w.mu.Lock()
				byDay = append(byDay, asked)
				asked = 0
				w.mu.Unlock()
			}
		}
		if gone < 4*24 || gone > 4*24+14 {
			t.Errorf("it was retired after %d hours", gone)
		}
		if byDay[0] < 24*30 || byDay[1] > byDay[0]/8 || byDay[2] >= byDay[1] || byDay[5] != 0 {
			t.Errorf("messages by day: %v", byDay)
		}
		w.rest()
		w.counts(queuetest.Counts{})
	})
}

// A subscription that failed once, days ago, and fails again while its push service accepts messages
// to others is not dropped. What says nothing about it does not delay its message.
func TestASecondFailureDropsNoSubscription(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		result push.Result
		within time.Duration
	}{
		"unavailable":   {push.Result{Outcome: push.Wait, Status: 503, Reason: "unavailable", Origin: true}, 40 * time.Minute},
		"not processed": {push.Result{Outcome: push.Wait, Reason: push.ReasonGoAway}, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 2, func(t *testing.T, w *world) {
				w.browsers(2, 1)
				w.origin = func(push.Device) string { return "https://push.example:443" }
				w.silent[1] = time.Now().Add(-5 * 24 * time.Hour)
				failed := false
				w.answering(func(_ context.Context, m push.Message) push.Result {
					if m.Device.ID == 1 && !failed {
						failed = true
						return test.result
					}
					return push.Result{Outcome: push.Accepted, Status: 201}
				})
				o := w.options()
				o.Senders[push.WebPush] = w
				w.start(push.NewDeliveries(o), w.queue)
				for range 2 { // a failure ends the first proof
					w.deliver(w.event(push.Event{}), 2)
				}
				pass(time.Second)
				e := w.event(push.Event{})
				w.deliver(e, 1)
				pass(test.within)
				if r := w.receipt(e.Number, 1); !failed || r.State != push.StateAccepted || len(w.pruned) > 0 {
					t.Errorf("receipt %+v, dropped %v", r, w.pruned)
				}
			})
		})
	}
}

// Push services that accept one message and hang then: batches wait for them briefly.
func TestPushServicesThatAcceptAndHangHoldUpNoOther(t *testing.T) {
	t.Parallel()
	const n = 40
	bubble(t, n, func(t *testing.T, w *world) {
		w.browsers(n, 1)
		o := w.options()
		o.Senders[push.WebPush] = w
		d := push.NewDeliveries(o)
		for i, step := range []struct {
			answer func(context.Context, push.Message) push.Result
			took   time.Duration
		}{
			{answerAfter(20 * time.Millisecond), 20 * time.Millisecond},
			{hangs, 250 * time.Millisecond},
			{hangs, 250 * time.Millisecond},
			{answerAfter(100 * time.Millisecond), 100 * time.Millisecond},
			{answerAfter(600 * time.Millisecond), 250 * time.Millisecond},
		} {
			w.answering(step.answer)
			e := w.event(push.Event{})
			var batch []queue.Task
			for _, id := range devicesTo(n) {
				batch = append(batch, queue.Task{ID: e.Number*n + id, Kind: push.Deliver, Key: id, Attempts: 1, Payload: fmt.Appendf(nil, `{"event":%d,"to":[[%d,%[2]d]]}`, e.Number, id)})
			}
			start := time.Now()
			d.Handle(t.Context(), batch)
			if took := time.Since(start); took != step.took {
				t.Errorf("batch %d took %v, want %v", i, took, step.took)
			}
		}
		d.Wait()
	})
}

// A push service that is slow, and answers others, is waited for.
func TestASlowMessageIsNoSilence(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, w *world) {
		d := push.NewDeliveries(w.options())
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			took := 600 * time.Millisecond
			if m.Device.ID == 1 {
				took = 3 * time.Second
			}
			return answerAfter(took)(ctx, m)
		})
		e := w.event(push.Event{})
		handle := func(devices ...uint64) time.Duration {
			var batch []queue.Task
			for _, id := range devices {
				batch = append(batch, queue.Task{ID: id, Kind: push.Deliver, Key: id, Attempts: 1, Payload: fmt.Appendf(nil, `{"event":%d,"to":[[%d,%[2]d]]}`, e.Number, id)})
			}
			start := time.Now()
			d.Handle(t.Context(), batch)
			return time.Since(start)
		}
		if took := handle(1, 2); took != push.DefaultPatience {
			t.Errorf("the first batch took %v", took)
		}
		if took := handle(3); took != 600*time.Millisecond || w.receipt(e.Number, 3).State != push.StateAccepted {
			t.Errorf("the second batch took %v, receipt %+v", took, w.receipt(e.Number, 3))
		}
		d.Wait()
	})
}

// One 503 of Firebase without Retry-After holds its own message for the 10 s that its guide for
// senders asks for, and no other; with Retry-After all are held.
func TestAnErrorOfFirebaseHoldsItsOwnMessageOnly(t *testing.T) {
	t.Parallel()
	for after, held := range map[time.Duration]bool{0: false, 10 * time.Second: true} {
		bubble(t, 4, func(t *testing.T, w *world) {
			for id, d := range w.devices {
				d.Platform = push.FCM
				w.devices[id] = d
			}
			failed := false
			w.answering(func(_ context.Context, m push.Message) push.Result {
				if m.Device.ID == 1 && !failed {
					failed = true
					return push.Result{Outcome: push.Wait, Status: 503, Reason: "UNAVAILABLE", Origin: true, Pause: 10 * time.Second, After: after}
				}
				return push.Result{Outcome: push.Accepted, Status: 200}
			})
			o := w.options()
			o.Senders[push.FCM] = w
			w.start(push.NewDeliveries(o), w.queue)
			e := w.event(push.Event{})
			w.deliver(e, 1)
			pass(100 * time.Millisecond)
			w.deliver(e, 2, 3, 4)
			pass(time.Second)
			for _, id := range devicesTo(4) {
				if r := w.receipt(e.Number, id); (r.State == push.StateAccepted) != (id != 1 && !held) {
					t.Errorf("asked to wait %v: device %d after a second: %+v", after, id, r)
				}
			}
			pass(20 * time.Second)
			for _, id := range devicesTo(4) {
				if r := w.receipt(e.Number, id); r.State != push.StateAccepted {
					t.Errorf("asked to wait %v: device %d after 20 s: %+v", after, id, r)
				}
			}
			w.done()
		})
	}
}
