package push_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

func devicesTo(n uint64) (all []uint64) {
	for i := range n {
		all = append(all, i+1)
	}
	return all
}

func TestADeliveryIsSentOnceWithItsTexts(t *testing.T) {
	t.Parallel()
	bubble(t, 300, func(t *testing.T, w *world) {
		e := w.event(push.Event{Body: "a lake", Object: "photo:901", Data: []byte(`{"a":1}`)})
		w.deliver(e, devicesTo(300)...)
		w.begin()
		pass(time.Second)
		w.done()
		sent, accepted := w.messages()
		if sent != 300 || accepted != 300 || w.looks > 4 {
			t.Errorf("%d sent, %d accepted, %d looks", sent, accepted, w.looks)
		}
		ids := map[string]bool{}
		for _, m := range w.accepted {
			ids[m.ID] = true
			if m.Title != "alice" || m.Body != "a lake" || m.Object != "photo:901" || string(m.Data) != `{"a":1}` || m.Count != 1 ||
				m.Event != "event-1" || m.Actor != 99 || !m.Expires.Equal(e.Expires) || m.Collapse != w.accepted[0].Collapse {
				t.Fatalf("message %+v", m)
			}
			if r := w.receipt(1, m.Device.ID); r.State != push.StateAccepted || r.ProviderID != m.ID || r.Reason != "" {
				t.Fatalf("receipt %+v", r)
			}
		}
		if len(ids) != 300 {
			t.Errorf("%d ids", len(ids))
		}
		w.deliver(e, devicesTo(300)...) // a repetition
		pass(2 * time.Second)
		w.done()
		if sent, _ := w.messages(); sent != 300 {
			t.Errorf("%d sent", sent)
		}
	})
}

// What is not to be sent is not, and its receipt says why.
func TestTheLastLookDecides(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(w *world, e *push.StoredEvent)
		reason push.Skip
	}{
		"a photo that became private": {func(w *world, e *push.StoredEvent) { w.hidden[e.Number] = true }, push.NotVisible},
		"opted out":                   {func(w *world, _ *push.StoredEvent) { w.settings.Types = map[string]bool{"upload": false} }, push.OptedOut},
		"a device that went":          {func(w *world, _ *push.StoredEvent) { delete(w.devices, 1) }, push.NoDevice},
		"a device that moved": {func(w *world, _ *push.StoredEvent) {
			d := w.devices[1]
			d.Member = 7
			w.devices[1] = d
		}, push.NoDevice},
		"it expired": {func(_ *world, e *push.StoredEvent) { e.Expires = time.Now() }, push.Expired},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, w *world) {
				e := w.event(push.Event{})
				w.deliver(e, 1)
				test.change(w, e)
				w.begin()
				pass(time.Second)
				w.done()
				sent, _ := w.messages()
				if r := w.receipt(1, 1); sent != 0 || r.State != push.StateSkipped || r.Reason != string(test.reason) {
					t.Errorf("%d sent, receipt %+v", sent, r)
				}
			})
		})
	}
}

// What was seen by one attempt is not sent by the next.
func TestARetryLooksAgain(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		e := w.event(push.Event{Object: "photo:901"})
		w.deliver(e, 1)
		w.answering(func(context.Context, push.Message) push.Result {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.hidden[e.Number] = true
			return push.Result{Outcome: push.Wait, Reason: "dial"}
		})
		w.begin()
		pass(time.Minute)
		w.done()
		if sent, _ := w.messages(); sent != 1 || w.receipt(1, 1).Reason != string(push.NotVisible) {
			t.Errorf("%d sent, receipt %+v", sent, w.receipt(1, 1))
		}
	})
}

func TestQuietHoursPostpone(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		now := time.Now().UTC()
		minute := now.Hour()*60 + now.Minute()
		w.settings.Quiet = push.QuietHours{From: minute, To: (minute + 60) % (24 * 60), Zone: "UTC"}
		w.deliver(w.event(push.Event{}), 1)
		w.begin()
		pass(59 * time.Minute)
		if sent, _ := w.messages(); sent != 0 {
			t.Error("sent in the quiet hours")
		}
		w.counts(queuetest.Counts{Scheduled: 1})
		pass(time.Minute + 5*time.Second)
		w.done()
		if _, accepted := w.messages(); accepted != 1 {
			t.Errorf("%d accepted", accepted)
		}
	})
}

// Of a burst, one task waits for the end of quiet hours, however many began in them: several that begin at once, in
// several processes, would send the same.
func TestOneTaskOfABurstWaitsForTheEndOfQuietHours(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		now := time.Now().UTC()
		minute := now.Hour()*60 + now.Minute()
		w.settings.Quiet = push.QuietHours{From: minute, To: (minute + 60) % (24 * 60), Zone: "UTC"}
		w.begin()
		w.start(push.NewDeliveries(w.options()), w.queue)
		for range 3 {
			w.deliver(w.event(push.Event{Collapse: "c"}), 1)
			pass(time.Second)
		}
		e := w.event(push.Event{Collapse: "c", Urgent: true}) // it has the one that waits begin now
		w.deliver(e, 1)
		pass(10 * time.Second)
		if sent, _ := w.messages(); sent != 1 || w.receipt(e.Number, 1).State != push.StateAccepted {
			t.Errorf("%d sent in the quiet hours, the urgent one: %+v", sent, w.receipt(e.Number, 1))
		}
		w.counts(queuetest.Counts{Scheduled: 1})
		pass(time.Hour)
		w.done()
		if sent, accepted := w.messages(); sent != 2 || accepted != 2 {
			t.Errorf("%d sent, %d accepted", sent, accepted)
		}
	})
}

// Likewise of those that are tried again.
func TestOneTaskOfABurstIsTriedAgain(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		var away atomic.Bool
		away.Store(true)
		w.answering(func(context.Context, push.Message) push.Result {
			if away.Load() {
				return push.Result{Outcome: push.Wait, Status: 503, After: 30 * time.Second}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		w.begin()
		for range 3 {
			w.deliver(w.event(push.Event{Collapse: "c"}), 1)
			pass(time.Second)
		}
		w.counts(queuetest.Counts{Scheduled: 1})
		away.Store(false)
		pass(time.Hour)
		w.done()
		if _, accepted := w.messages(); accepted != 1 {
			t.Errorf("%d accepted", accepted)
		}
	})
}

func TestADeviceThatIsGoneIsPruned(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, w *world) {
		since := time.Now().Add(-time.Hour)
		w.answering(func(_ context.Context, m push.Message) push.Result {
			if m.Device.ID == 1 {
				return push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered", GoneSince: since}
			}
			return push.Result{Outcome: push.Rejected, Status: 413, Reason: "PayloadTooLarge"}
		})
		w.deliver(w.event(push.Event{}), 1, 2)
		w.begin()
		pass(time.Minute)
		w.done()
		if p := w.pruned[1]; len(w.pruned) != 1 || p.Reason != "Unregistered" || !p.Since.Equal(since) {
			t.Errorf("pruned %+v", w.pruned)
		}
		for device, reason := range map[uint64]string{1: "Unregistered", 2: "PayloadTooLarge"} {
			if r := w.receipt(1, device); r.State != push.StateFailed || r.Reason != reason {
				t.Errorf("receipt %+v", r)
			}
		}
		if sent, _ := w.messages(); sent != 2 {
			t.Errorf("%d sent", sent)
		}
	})
}

// A lost answer is a second message of the same id, under the same collapse id.
func TestALostAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		var tries atomic.Int32
		w.answering(func(_ context.Context, m push.Message) push.Result {
			if tries.Add(1) == 1 {
				w.accept(m)
				return push.Result{Outcome: push.Ambiguous, Reason: "reset"}
			}
			return push.Result{Outcome: push.Accepted}
		})
		w.deliver(w.event(push.Event{}), 1)
		w.begin()
		pass(10 * time.Second)
		w.done()
		if len(w.accepted) != 2 || w.accepted[0].ID != w.accepted[1].ID || w.accepted[0].Collapse != w.accepted[1].Collapse {
			t.Errorf("accepted %+v", w.accepted)
		}
	})
}

// A push service that never answers is tried until the event expires.
func TestAnEventIsTriedUntilItExpires(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.answering(func(context.Context, push.Message) push.Result {
			return push.Result{Outcome: push.Wait, Reason: "dial"}
		})
		e := w.event(push.Event{ExpiresIn: time.Hour})
		w.deliver(e, 1)
		w.begin()
		pass(50 * time.Minute)
		w.counts(queuetest.Counts{Scheduled: 1})
		pass(15 * time.Minute)
		w.done()
		sent, _ := w.messages()
		if sent < 30 || sent > 150 {
			t.Errorf("%d tries in an hour", sent)
		}
		r := w.receipt(1, 1)
		if failed := r.State == push.StateFailed && r.Reason == "dial"; !failed && (r.State != push.StateSkipped || r.Reason != string(push.Expired)) {
			t.Errorf("receipt %+v", r)
		}
		if log := w.log.String(); strings.Contains(log, "secret") || !strings.Contains(log, "push service fails and is left alone") {
			t.Errorf("log %s", log)
		}
	})
}

// All events of a burst that are pending go as one, which counts those that may be shown.
func TestABurstIsOneMessage(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		var events []*push.StoredEvent
		for i := range 5 {
			e := w.event(push.Event{Collapse: "key", Title: "new photos", Body: fmt.Sprintf("photo %d", i), Urgent: i == 1})
			events = append(events, e)
			w.deliver(e, 1)
		}
		w.hidden[events[4].Number], w.hidden[events[0].Number] = true, true
		w.begin()
		pass(time.Second)
		w.done()
		if len(w.accepted) != 1 {
			t.Fatalf("accepted %+v", w.accepted)
		}
		m := w.accepted[0]
		if m.Title != "new photos (3)" || m.Body != "photo 3" || m.Count != 3 || m.Event != events[3].ID || !m.Urgent {
			t.Errorf("message %+v", m)
		}
		for i, want := range []string{"skipped not_visible", "accepted doubled", "accepted doubled", "accepted ", "skipped not_visible"} {
			if r := w.receipt(events[i].Number, 1); string(r.State)+" "+r.Reason != want || r.Burst != events[0].Burst() {
				t.Errorf("receipt of event %d: %+v, want %s", i, r, want)
			}
		}
		w.deliver(w.event(push.Event{Collapse: "key", Body: "later"}), 1)
		pass(2 * time.Second)
		w.done()
		if len(w.accepted) != 2 || w.accepted[1].Collapse != m.Collapse || w.accepted[1].Count != 4 || w.accepted[1].Body != "later" {
			t.Errorf("accepted %+v", w.accepted[1:])
		}
	})
}

// A message takes the place of the one before on the device, so it counts what that one did.
func TestABurstIsCountedAsAWhole(t *testing.T) {
	t.Parallel()
	type step struct {
		after  time.Duration // since the step before
		events int
		hide   int    // the number of an event that is made private before
		want   string // the titles that the device is sent
	}
	for name, steps := range map[string][]step{
		"ten":                     {{0, 1, 0, "photo"}, {time.Second, 9, 0, "photo (10)"}},
		"two":                     {{0, 1, 0, "photo"}, {59 * time.Second, 1, 0, "photo (2)"}},
		"a chain":                 {{0, 1, 0, "photo"}, {50 * time.Second, 2, 0, "photo (3)"}, {50 * time.Second, 3, 0, "photo (6)"}, {61 * time.Second, 1, 0, "photo"}},
		"a burst and another one": {{0, 3, 0, "photo (3)"}, {61 * time.Second, 1, 0, "photo"}, {time.Second, 1, 0, "photo (2)"}},
		"made private":            {{0, 3, 0, "photo (3)"}, {time.Second, 1, 2, "photo (3)"}, {time.Second, 1, 5, ""}, {time.Second, 1, 0, "photo (4)"}},
		"more than are counted":   {{0, 70, 0, "photo (70)"}, {time.Second, 29, 0, "photo (99)"}, {time.Second, 5, 0, "photo (100)"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, w *world) {
				w.begin()
				var last string
				for i, s := range steps {
					pass(s.after)
					w.mu.Lock()
					w.hidden[uint64(s.hide)], w.accepted = true, nil
					w.mu.Unlock()
					var batch []*push.StoredEvent
					for range s.events {
						batch = append(batch, w.event(push.Event{Collapse: "key", Title: "photo"}))
					}
					w.deliverAll(batch, 1)
					pass(0)
					w.done()
					got := ""
					for _, m := range w.accepted {
						got += m.Title
						if last != "" && m.Collapse != last {
							t.Errorf("step %d takes no place", i+1)
						}
						last = m.Collapse
					}
					if got != s.want {
						t.Errorf("step %d: sent %q, want %q", i+1, got, s.want)
					}
				}
			})
		})
	}
}

// Events that were enqueued one after the other may be numbered in another order.
func TestTheNewestOfABurstIsTheOneEnqueuedLast(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		for i, created := range []int64{2, 3, 3, 1} {
			e := w.event(push.Event{Collapse: "key", Body: fmt.Sprintf("photo %d", i)})
			e.Created = e.Created.Add(time.Duration(created) * time.Millisecond)
			w.deliver(e, 1)
		}
		w.events[3].Task = w.events[2].Task - 1
		w.begin()
		pass(time.Second)
		w.done()
		if len(w.accepted) != 1 || w.accepted[0].Body != "photo 1" || w.accepted[0].Count != 4 {
			t.Errorf("accepted %+v", w.accepted)
		}
	})
}

// An event that is delivered after a newer one of its burst, as the process died that targeted
// it, is counted under the text of the newer one.
func TestABurstEndsWithItsNewestEvent(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.begin()
		late := w.event(push.Event{Collapse: "key", Body: "older", ExpiresIn: time.Hour})
		pass(time.Second)
		newest := w.event(push.Event{Collapse: "key", Body: "newest"})
		w.deliver(newest, 1)
		pass(5 * time.Second)
		w.deliver(late, 1)
		pass(time.Minute)
		w.done()
		if len(w.accepted) != 2 {
			t.Fatalf("accepted %+v", w.accepted)
		}
		if m := w.accepted[1]; m.Body != "newest" || m.Event != newest.ID || m.Count != 2 || m.ID == w.accepted[0].ID {
			t.Errorf("the burst ends with %+v", m)
		}
		if r := w.receipt(late.Number, 1); r.State != push.StateAccepted || r.Reason != string(push.Doubled) {
			t.Errorf("receipt %+v", r)
		}
		w.mu.Lock()
		w.hidden[newest.Number] = true
		w.mu.Unlock()
		again := w.event(push.Event{Collapse: "key", Body: "latest but one"})
		again.Created = newest.Created.Add(-time.Millisecond)
		w.deliver(again, 1)
		pass(time.Minute)
		if m := w.accepted[2]; m.Body != "latest but one" || m.Count != 2 {
			t.Errorf("what is hidden now gave its text to %+v", m)
		}
	})
}

// Of a very long burst, only the newest events are looked at; if these may not be
// shown, the older ones have their turn.
func TestAnEndlessBurst(t *testing.T) {
	t.Parallel()
	for hidden, want := range map[int]string{0: "photos (100)", 150: "photos (50)", 245: "photos (5)", 250: ""} {
		t.Run(fmt.Sprint(hidden, " hidden"), func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, w *world) {
				const all = 250
				for i := range all {
					e := w.event(push.Event{Collapse: "key", Title: "photos"})
					w.deliver(e, 1)
					w.hidden[e.Number] = i >= all-hidden
				}
				w.begin()
				pass(time.Minute)
				w.done()
				var got string
				for _, m := range w.accepted {
					got += m.Title
				}
				if got != want {
					t.Errorf("accepted %q, want %q", got, want)
				}
				for n := range w.events {
					if r := w.receipt(n, 1); r.State == push.StatePending {
						t.Fatalf("event %d is pending", n)
					}
				}
			})
		})
	}
}

// A slow push service does not hold up the others: their messages go, and their tasks
// end, within the patience of the batches.
func TestASlowPushServiceHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	for name, slow := range map[string]time.Duration{"slow": 8 * time.Second, "dead": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 3000, func(t *testing.T, w *world) {
				w.origin = func(d push.Device) string { return fmt.Sprintf("https://%d.example:443", d.ID%2) }
				w.answering(func(ctx context.Context, m push.Message) push.Result {
					if m.Device.ID%2 == 1 {
						return answerAfter(slow)(ctx, m)
					}
					return answerAfter(40*time.Millisecond)(ctx, m)
				})
				e := w.event(push.Event{ExpiresIn: 10 * time.Minute})
				w.deliver(e, devicesTo(3000)...)
				w.begin()
				pass(9 * time.Second) // 3000 tasks are six batches for each of the two workers
				others := 0
				w.mu.Lock() // workers may send at this moment
				accepted := slices.Clone(w.accepted)
				w.mu.Unlock()
				for _, m := range accepted {
					others += int((m.Device.ID + 1) % 2)
				}
				if others != 1500 {
					t.Errorf("%d of the 1500 messages to the other push service were accepted after 9 s", others)
				}
				pass(15 * time.Minute)
				w.done()
				seen := map[uint64]int{}
				for _, m := range w.accepted {
					seen[m.Device.ID]++
					if seen[m.Device.ID] > 1 {
						t.Fatalf("device %d was notified twice", m.Device.ID)
					}
				}
				if want := map[string]int{"slow": 3000, "dead": 1500}[name]; len(seen) != want {
					t.Errorf("%d devices were notified, want %d", len(seen), want)
				}
			})
		})
	}
}

// A message that its batch did not wait for is recorded when it is answered, also at the
// end of the process.
func TestALateAnswerIsRecorded(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.answering(answerAfter(5 * time.Second))
		w.deliver(w.event(push.Event{}), 1)
		_, stop := w.begin()
		pass(2 * time.Second)
		w.counts(queuetest.Counts{Scheduled: 1})
		start := time.Now()
		stop()
		if took := time.Since(start); took > 5*time.Second || w.receipt(1, 1).State != push.StateAccepted {
			t.Errorf("stopped after %v, receipt %+v", took, w.receipt(1, 1))
		}
		pass(time.Hour)
		w.begin()
		pass(time.Minute)
		w.done()
		if sent, _ := w.messages(); sent != 1 {
			t.Errorf("%d sent", sent)
		}
	})
}

// The sender may be wrong in every way: the process goes on, and so does the event.
func TestASenderThatPanicsOrNeverReturns(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(end chan struct{}) push.Result{
		"panics":        func(chan struct{}) push.Result { panic("sender") },
		"never returns": func(end chan struct{}) push.Result { <-end; return push.Result{Outcome: push.Wait} },
		"says nothing":  func(chan struct{}) push.Result { return push.Result{} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, w *world) {
				end := make(chan struct{})
				defer close(end)
				var tries atomic.Int32
				w.answering(func(context.Context, push.Message) push.Result {
					if tries.Add(1) == 1 {
						return wrong(end)
					}
					return push.Result{Outcome: push.Accepted}
				})
				w.deliver(w.event(push.Event{}), 1)
				w.begin()
				pass(time.Minute)
				w.done()
				if sent, accepted := w.messages(); sent != 2 || accepted != 1 {
					t.Errorf("%d sent, %d accepted", sent, accepted)
				}
			})
		})
	}
}

func TestATaskThatMakesNoSenseIsDead(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		d := push.NewDeliveries(w.options())
		for _, payload := range []string{``, `[]`, `{}`, `{"event":1}`, `{"event":"1","to":[[1,1]]}`, `{"to":[[1,1]]}`, `{"event":1,"to":[]}`, `{"event":1,"to":[[1,0]]}`, `{"event":1,"to":[[0,1]]}`, `{"event":1,"to":[[1,1],[2,2]],"burst":"000102030405060708090a0b0c0d0e0f"}`} {
			outcomes := d.Handle(t.Context(), []queue.Task{{ID: 1, Kind: push.Deliver, Key: 1, Attempts: 1, MaxAttempts: 25, Payload: []byte(payload)}})
			if v := queue.Judge(queue.Result{Err: outcomes[0].Err}); v.State != queue.Dead {
				t.Errorf("%s: %v", payload, outcomes[0].Err)
			}
		}
		outcomes := d.Handle(t.Context(), []queue.Task{{ID: 1, Kind: push.Deliver, Key: 1, Payload: []byte(`{"event":77,"to":[[1,1]]}`)}})
		if outcomes[0].Err != nil { // it was forgotten
			t.Error(outcomes[0].Err)
		}
	})
}

// Tasks that stand for the same are not sent side by side.
func TestTheSameIsNotSentTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for name, collapse := range map[string]string{"event": "", "burst": "key"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, w *world) {
				w.answering(answerAfter(50 * time.Millisecond))
				e := w.event(push.Event{Collapse: collapse})
				w.deliver(e, 1)
				payload := []byte(`{"event":1,"to":[[1,1]]}`)
				for i := range 3 { // as after the first one was postponed
					again := queue.New{Kind: push.Deliver, Key: 1, Queue: push.QueuePush, DedupeKey: fmt.Sprint(i), Payload: payload}
					if _, err := w.queue.Enqueue(t.Context(), []queue.New{again}); err != nil {
						t.Fatal(err)
					}
				}
				w.begin()
				pass(10 * time.Second)
				w.done()
				if sent, _ := w.messages(); sent != 1 {
					t.Errorf("%d sent", sent)
				}
			})
		})
	}
}

// A process that was stopped between the last look and the message looks again.
func TestAStaleLookIsNotActedOn(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		var once sync.Once
		w.origin = func(push.Device) string {
			once.Do(func() {
				time.Sleep(4 * time.Second) //nolint:forbidigo // the time of the bubble
				w.mu.Lock()
				defer w.mu.Unlock()
				w.hidden[1] = true
			})
			return "https://push.example:443"
		}
		w.deliver(w.event(push.Event{Object: "photo:901"}), 1)
		w.begin()
		pass(time.Minute)
		w.done()
		if sent, _ := w.messages(); sent != 0 || w.looks != 2 {
			t.Errorf("%d sent, %d looks", sent, w.looks)
		}
	})
}

// When the lease is lost or the process ends, the batch waits no longer, and what is accepted
// then is still recorded.
func TestTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, w *world) {
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			return answerAfter(time.Duration(m.Device.ID)*500*time.Millisecond-450*time.Millisecond)(ctx, m)
		})
		e := w.event(push.Event{})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var batch []queue.Task
		for device := range uint64(2) {
			batch = append(batch, queue.Task{ID: device, Kind: push.Deliver, Key: device + 1, Attempts: 1, Payload: fmt.Appendf(nil, `{"event":%d,"to":[[%d,%[2]d]]}`, e.Number, device+1)})
		}
		start := time.Now()
		d := push.NewDeliveries(w.options())
		outcomes := d.Handle(ctx, batch)
		if took := time.Since(start); took > 200*time.Millisecond || outcomes[0].Err != nil || outcomes[1].Err == nil {
			t.Errorf("after %v: %v", took, outcomes)
		}
		d.Wait()
		for _, device := range devicesTo(2) {
			if r := w.receipt(1, device); r.State != push.StateAccepted {
				t.Errorf("receipt %+v", r)
			}
		}
	})
}

// Refused keys hold up their platform alone, and say so in the log once a minute.
func TestRefusedKeys(t *testing.T) {
	t.Parallel()
	bubble(t, 200, func(t *testing.T, w *world) {
		w.answering(func(context.Context, push.Message) push.Result {
			return push.Result{Outcome: push.Credentials, Status: 403, Reason: "InvalidProviderToken", Origin: true}
		})
		w.deliver(w.event(push.Event{}), devicesTo(200)...)
		w.begin()
		pass(30 * time.Minute)
		w.waits(200)
		if sent, _ := w.messages(); sent > 220 {
			t.Errorf("%d messages in half an hour: the first 200 were under way, and then one every five minutes", sent)
		}
		if n := strings.Count(w.log.String(), "push service refuses our keys"); n < 5 || n > 30 || strings.Contains(w.log.String(), "secret") || len(w.pruned) > 0 {
			t.Errorf("%d lines, %d pruned", n, len(w.pruned))
		}
		w.answering(nil) // they were replaced
		pass(10 * time.Minute)
		w.done()
	})
}

// What a member names as the push service of a browser says nothing about our keys, and its name
// is in no log.
func TestRefusalsOfAMadeUpPushService(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		d := w.devices[1]
		d.Platform = push.WebPush
		w.devices[1] = d
		w.origin = func(push.Device) string { return "https://made-up.example:443" }
		w.answering(func(context.Context, push.Message) push.Result {
			return push.Result{Outcome: push.Credentials, Status: 403, Reason: "forbidden", Origin: true}
		})
		o := w.options()
		o.Senders[push.WebPush] = w
		w.start(push.NewDeliveries(o), w.queue)
		w.deliver(w.event(push.Event{}), 1)
		pass(10 * time.Minute)
		w.counts(queuetest.Counts{Scheduled: 1})
		if sent, _ := w.messages(); sent == 0 || strings.Contains(w.log.String(), "made-up") || strings.Contains(w.log.String(), "refuses our keys") {
			t.Errorf("%d messages; the log: %s", sent, w.log.String())
		}
	})
}

// One error of a server is of its message: others are sent at once, and the message itself a
// last time before its event expires.
func TestAServerErrorIsOfItsMessage(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, w *world) {
		sent := 0
		w.answering(func(context.Context, push.Message) push.Result {
			sent++
			if sent == 1 {
				return push.Result{Outcome: push.Wait, Status: 503, Reason: "ServiceUnavailable", After: 15 * time.Minute}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		e := w.event(push.Event{ExpiresIn: 10 * time.Minute})
		w.deliver(e, 1)
		w.begin()
		pass(2 * time.Second)
		other := w.event(push.Event{ExpiresIn: 10 * time.Minute})
		w.deliver(other, 2)
		pass(2 * time.Second)
		if r := w.receipt(other.Number, 2); r.State != push.StateAccepted {
			t.Errorf("another message after a 503: %+v", r)
		}
		pass(10 * time.Minute)
		w.done()
		if r := w.receipt(e.Number, 1); r.State != push.StateAccepted {
			t.Errorf("the message that was answered by 503: %+v", r)
		}
	})
}

// Keys that one subscription refuses are about that one: its push service answers, and the
// others behind it are sent to.
func TestKeysThatOneSubscriptionRefuses(t *testing.T) {
	t.Parallel()
	bubble(t, 20, func(t *testing.T, w *world) {
		w.answering(func(_ context.Context, m push.Message) push.Result {
			switch {
			case m.Device.ID <= 10:
				return push.Result{Outcome: push.Credentials, Status: 403, Reason: "forbidden"}
			case m.Device.ID <= 19:
				return push.Result{Outcome: push.Credentials, Status: 401, Reason: "unauthorized"}
			}
			return push.Result{Outcome: push.Accepted, Status: 201}
		})
		w.deliver(w.event(push.Event{}), devicesTo(20)...)
		w.begin()
		for range 10 {
			pass(time.Minute)
			e := w.event(push.Event{})
			w.deliver(e, 20)
			pass(time.Second)
			if r := w.receipt(e.Number, 20); r.State != push.StateAccepted {
				t.Errorf("the one that takes our keys: %+v", r)
			}
		}
		w.counts(queuetest.Counts{Scheduled: 19})
		if len(w.pruned) > 0 || strings.Contains(w.log.String(), "refuses our keys") {
			t.Errorf("%d pruned; the log: %s", len(w.pruned), w.log.String())
		}
	})
}

func TestMetricsOfDeliveries(t *testing.T) {
	before := metricstest.Gather(t)
	bubble(t, 10, func(_ *testing.T, w *world) {
		var tries atomic.Int32
		w.answering(func(_ context.Context, m push.Message) push.Result {
			tries.Add(1)
			switch m.Device.ID {
			case 1:
				return push.Result{Outcome: push.Gone, Status: 410, Reason: "Unregistered"}
			case 2:
				return push.Result{Outcome: push.Rejected, Status: 400, Reason: "never heard of"}
			case 3:
				if tries.Load() <= 10 {
					return push.Result{Outcome: push.Ambiguous, Reason: "reset"}
				}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		w.hidden[2] = true
		w.deliver(w.event(push.Event{}), devicesTo(10)...)
		w.deliver(w.event(push.Event{}), 4)
		w.begin()
		pass(time.Minute)
		w.done()
	})
	got := metricstest.Gather(t).Since(before)
	want := metricstest.Samples{
		`activityd_push_messages_total{outcome="accepted",platform="apns",reason=""}`:               8,
		`activityd_push_messages_total{outcome="gone",platform="apns",reason="Unregistered"}`:       1,
		`activityd_push_messages_total{outcome="rejected",platform="apns",reason="never heard of"}`: 1,
		`activityd_push_messages_total{outcome="ambiguous",platform="apns",reason="reset"}`:         1,
		`activityd_push_doubles_possible_total{cause="no_answer",platform="apns"}`:                  1,
		`activityd_push_devices_gone_total{platform="apns",reason="Unregistered"}`:                  1,
		`activityd_push_skipped_total{reason="not_visible",stage="delivery"}`:                       1,
		`activityd_push_event_to_accepted_seconds{platform="apns"}`:                                 8,
		`activityd_push_messages_in_flight`:                                                         0,
	}
	for series, want := range want {
		if got[series] != want {
			t.Errorf("%s rose by %v, want %v", series, got[series], want)
		}
	}
}

// Quiet hours in a zone that is none, in a row that SQL wrote, are not kept, and the log says so
// once a minute.
func TestQuietHoursThatCannotBeKept(t *testing.T) {
	t.Parallel()
	bubble(t, 20, func(t *testing.T, w *world) {
		for zone, lines := range map[string]int{"Europe/Berlin": 0, "Europe//Berlin": 1} {
			now := time.Now().UTC()
			w.settings = push.Settings{Quiet: push.QuietHours{From: 0, To: 1439, Zone: zone}}
			if in, err := time.LoadLocation("Europe/Berlin"); err != nil || now.In(in).Hour() > 20 {
				t.Fatalf("the bubble's time is %v, %v", now, err)
			}
			e := w.event(push.Event{})
			w.deliver(e, devicesTo(20)...)
			_, stop := w.begin()
			pass(30 * time.Second)
			if r := w.receipt(e.Number, 1); (r.State == push.StateAccepted) != (lines > 0) {
				t.Errorf("%s: %+v", zone, r)
			}
			stop()
			if n := strings.Count(w.log.String(), "quiet hours cannot be kept"); n != lines {
				t.Errorf("%s: %d lines, want %d: %s", zone, n, lines, w.log)
			}
			w.log.Reset()
		}
	})
}

// The gauges tell which push services are left alone, and no more when they answer.
func TestGaugesOfBreakers(t *testing.T) {
	gauges := func() (open, refused float64) {
		s := metricstest.Gather(t)
		return s[`activityd_push_breakers_open{platform="apns"}`], s[`activityd_push_credentials_refused{platform="apns"}`]
	}
	open, refused := gauges()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.answering(func(context.Context, push.Message) push.Result {
			return push.Result{Outcome: push.Credentials, Status: 403, Reason: "InvalidProviderToken", Origin: true}
		})
		w.deliver(w.event(push.Event{}), 1)
		w.begin()
		pass(10 * time.Minute)
		if o, r := gauges(); o != open+1 || r != refused+1 {
			t.Errorf("%v open and %v refused, want one more than %v and %v", o, r, open, refused)
		}
		w.answering(nil)
		pass(10 * time.Minute)
		w.done()
	})
	if o, r := gauges(); o != open || r != refused {
		t.Errorf("%v open and %v refused, want %v and %v again", o, r, open, refused)
	}
}
