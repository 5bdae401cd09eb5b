package push_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// lateLook is a database whose answers to looks arrive late.
type lateLook struct {
	*world
	late time.Duration
}

func (s lateLook) Look(ctx context.Context, c []push.Candidate) ([]push.Facts, error) {
	all, err := s.world.Look(ctx, c)
	s.mu.Lock()
	for n := range s.events {
		s.hidden[n] = true // just after it was seen
	}
	s.mu.Unlock()
	time.Sleep(s.late) //nolint:forbidigo // the time of the bubble
	return all, err
}

// What a look saw is not acted on when its answer was under way for too long.
func TestALookThatArrivesLateIsNotActedOn(t *testing.T) {
	t.Parallel()
	for late, want := range map[time.Duration]int{2 * time.Second: 1, 4 * time.Second: 0} {
		t.Run(late.String(), func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, w *world) {
				o := w.options()
				o.Store = lateLook{w, late}
				w.start(push.NewDeliveries(o), w.queue)
				w.deliver(w.event(push.Event{}), 1)
				pass(time.Minute)
				w.done()
				if sent, _ := w.messages(); sent != want {
					t.Errorf("%d sent by a look of %v ago, want %d", sent, late, want)
				}
			})
		})
	}
}

// Members name thousands of push services that accept connections and answer nothing. The
// devices of the others are notified all the while, at once.
func TestPushServicesThatHangHoldUpNoOther(t *testing.T) {
	t.Parallel()
	const n, rounds = 3000, 9
	bubble(t, n+2*rounds+2, func(t *testing.T, w *world) {
		for id := uint64(1); id <= n+rounds+1; id++ {
			d := w.devices[id]
			d.Platform = push.WebPush
			w.devices[id] = d
		}
		w.origin = func(d push.Device) string {
			if d.ID > n {
				return fmt.Sprintf("https://%s.example:443", d.Platform)
			}
			return fmt.Sprintf("https://%d.made-up.example:443", d.ID)
		}
		most, now := 0, 0
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			if m.Device.ID > n {
				return push.Result{Outcome: push.Accepted, Status: 200}
			}
			w.mu.Lock()
			now++
			most = max(most, now)
			w.mu.Unlock()
			<-ctx.Done()
			w.mu.Lock()
			now--
			w.mu.Unlock()
			return push.Result{Outcome: push.Ambiguous, Reason: "timeout"}
		})
		o := w.options()
		o.Senders[push.WebPush] = w
		w.start(push.NewDeliveries(o), w.queue)
		w.deliver(w.event(push.Event{}), n+1) // the browsers' own push service is in use
		pass(time.Second)
		w.deliver(w.event(push.Event{ExpiresIn: 90 * time.Second}), devicesTo(n)...)
		for i := range uint64(rounds) {
			pass(7 * time.Second)
			e := w.event(push.Event{Urgent: true})
			devices := []uint64{n + 2 + i, n + rounds + 2 + i}
			w.deliver(e, devices...)
			pass(2 * time.Second)
			for _, device := range devices {
				if r := w.receipt(e.Number, device); r.State != push.StateAccepted {
					t.Errorf("device %d of %s was not notified within two seconds, %d s after the start: %+v", device, w.devices[device].Platform, 9*(i+1), r)
				}
			}
		}
		pass(2 * time.Minute)
		w.done()
		if most == 0 || most > 512 {
			t.Errorf("%d messages to those that hang were in flight", most)
		}
	})
}

// A worker that has not the keys of a platform leaves its deliveries to one that has: until
// the event expires.
func TestAnotherProcessMayHaveTheKeys(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.devices[1] = push.Device{ID: 1, Member: 1, Platform: push.FCM}
		e := w.event(push.Event{ExpiresIn: 10 * time.Minute})
		w.deliver(e, 1)
		_, stop := w.begin()
		pass(time.Minute)
		w.counts(queuetest.Counts{Scheduled: 1})
		if w.looks > 10 {
			t.Errorf("%d looks in a minute", w.looks)
		}
		stop()
		o := w.options()
		o.Senders[push.FCM] = w
		stop = w.start(push.NewDeliveries(o), w.queue)
		pass(2 * time.Minute)
		w.done()
		if r := w.receipt(e.Number, 1); r.State != push.StateAccepted {
			t.Errorf("receipt %+v", r)
		}
		stop()
		never := w.event(push.Event{ExpiresIn: 10 * time.Minute})
		w.deliver(never, 1)
		w.begin()
		pass(11 * time.Minute)
		w.done()
		if r := w.receipt(never.Number, 1); r.State != push.StateSkipped || r.Reason != string(push.Off) {
			t.Errorf("receipt %+v", r)
		}
	})
}

// The events of a burst live for different times: the shortest life is no end of the others.
func TestAShortLifeIsNoEndOfTheBurst(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]push.Result{
		"wait, for the device":       {Outcome: push.Wait, Status: 429, Reason: "TooManyRequests", After: 30 * time.Second},
		"wait, for the push service": {Outcome: push.Wait, Status: 503, Reason: "unavailable", After: 30 * time.Second, Origin: true},
		"ambiguous":                  {Outcome: push.Ambiguous, Reason: "reset"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, 1, func(t *testing.T, w *world) {
				until := time.Now().Add(20 * time.Second)
				w.answering(func(context.Context, push.Message) push.Result {
					if time.Now().Before(until) {
						return first
					}
					return push.Result{Outcome: push.Accepted, Status: 200}
				})
				old := w.event(push.Event{Collapse: "key", Title: "old"})
				short := w.event(push.Event{Collapse: "key", Title: "short", ExpiresIn: 8 * time.Second})
				w.deliverAll([]*push.StoredEvent{old, short}, 1)
				w.begin()
				pass(10 * time.Minute)
				w.done()
				if r := w.receipt(old.Number, 1); r.State != push.StateAccepted {
					t.Errorf("the event with a day of life: %+v", r)
				}
				if r := w.receipt(short.Number, 1); r.State != push.StateSkipped || r.Reason != string(push.Expired) {
					t.Errorf("the event with seconds of life: %+v", r)
				}
			})
		})
	}
}

// An event that expires while its push service is left alone is not given up before that, and
// is tried a last time.
func TestADeliveryIsTriedALastTimeBeforeItsEventExpires(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		n := 0
		w.answering(func(context.Context, push.Message) push.Result {
			n++
			if n == 1 {
				return push.Result{Outcome: push.Wait, Status: 503, Reason: "ServiceUnavailable", Pause: 15 * time.Minute, Origin: true}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		e := w.event(push.Event{ExpiresIn: 10 * time.Minute})
		w.deliver(e, 1)
		w.begin()
		pass(9 * time.Minute)
		w.counts(queuetest.Counts{Scheduled: 1})
		pass(time.Minute)
		w.done()
		if r := w.receipt(e.Number, 1); r.State != push.StateAccepted || !r.At.Before(e.Expires) {
			t.Errorf("receipt %+v", r)
		}
	})
}

// What a push service says of one message holds up no other.
func TestOneServerErrorHoldsUpNoOtherDevice(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, w *world) {
		w.answering(func(_ context.Context, m push.Message) push.Result {
			if m.Device.ID == 1 {
				return push.Result{Outcome: push.Wait, Status: 503, Reason: "ServiceUnavailable", Pause: 15 * time.Minute, Origin: true}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		w.deliver(w.event(push.Event{}), 1)
		w.begin()
		pass(2 * time.Second)
		e := w.event(push.Event{ExpiresIn: 10 * time.Minute})
		w.deliver(e, 2)
		pass(2 * time.Second)
		if r := w.receipt(e.Number, 2); r.State != push.StateAccepted {
			t.Errorf("another device, after one 503: %+v", r)
		}
	})
}

// unavailable are the answers 503 that ask for no time, as the senders classify them.
var unavailable = map[push.Platform]push.Result{
	push.APNs:    {Outcome: push.Wait, Status: 503, Reason: "ServiceUnavailable", Pause: 15 * time.Minute, Origin: true},
	push.WebPush: {Outcome: push.Wait, Status: 503, Reason: "unavailable", Origin: true},
	push.FCM:     {Outcome: push.Wait, Status: 503, Reason: "UNAVAILABLE", Pause: 10 * time.Second, Origin: true},
}

// toOneOrigin has the messages of 15 events a second go to one push service, each to a device of
// its own, and returns the events. answer is given how many messages were sent before.
func toOneOrigin(t *testing.T, w *world, p push.Platform, events int, answer func(sent int) push.Result) (all []*push.StoredEvent) {
	t.Helper()
	for id, d := range w.devices {
		d.Platform = p
		w.devices[id] = d
	}
	sent := 0
	w.answering(func(context.Context, push.Message) push.Result {
		w.mu.Lock()
		defer w.mu.Unlock()
		sent++
		return answer(sent - 1)
	})
	o := w.options()
	o.Senders[p] = w
	w.start(push.NewDeliveries(o), w.queue)
	for i := range events {
		e := w.event(push.Event{})
		w.deliver(e, uint64(i+1))
		all = append(all, e)
		pass(time.Second / 15)
	}
	return all
}

// Of a push service that answers two messages in a hundred with 503, no message is late but
// these.
func TestFewErrorsDelayFewMessages(t *testing.T) {
	t.Parallel()
	for platform, unavailable := range unavailable {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			const events = 1000
			bubble(t, events, func(t *testing.T, w *world) {
				errs := 0
				all := toOneOrigin(t, w, platform, events, func(sent int) push.Result {
					if sent%50 == 25 {
						errs++
						return unavailable
					}
					return push.Result{Outcome: push.Accepted, Status: 200}
				})
				pass(time.Hour)
				w.done()
				late := 0
				for i, e := range all {
					if r := w.receipt(e.Number, uint64(i+1)); r.State != push.StateAccepted || r.At.Sub(e.Created) > 3*time.Second {
						late++
					}
				}
				if late > errs || errs < events/50 {
					t.Errorf("%d of %d are later than 3 s, after %d errors", late, events, errs)
				}
			})
		})
	}
}

// A push service that is away, or asks for time, is left alone.
func TestAnOriginThatIsAwayIsLeftAlone(t *testing.T) {
	t.Parallel()
	for platform, unavailable := range unavailable {
		for name, test := range map[string]struct {
			after time.Duration
			most  int // messages in ten minutes
		}{
			"away":                    {0, 5 + 7 + 10}, // five failures; one after each pause of up to 32 s, and then each minute
			"asks for a minute":       {time.Minute, 10},
			"asks for an hour":        {time.Hour, 1},
			"asks for more than that": {24 * time.Hour, 1},
		} {
			t.Run(fmt.Sprint(platform, " ", name), func(t *testing.T) {
				t.Parallel()
				const events = 300
				bubble(t, events, func(t *testing.T, w *world) {
					answer := unavailable
					answer.After = test.after
					away, sent := true, 0
					all := toOneOrigin(t, w, platform, events, func(int) push.Result {
						sent++
						if away {
							return answer
						}
						return push.Result{Outcome: push.Accepted, Status: 200}
					})
					pass(10*time.Minute - events*time.Second/15)
					if sent > test.most || sent == 0 {
						t.Errorf("%d messages in ten minutes, want at most %d", sent, test.most)
					}
					w.mu.Lock()
					away = false
					w.mu.Unlock()
					pass(2 * time.Hour)
					w.done()
					for i, e := range all {
						if r := w.receipt(e.Number, uint64(i+1)); r.State != push.StateAccepted {
							t.Fatalf("event %d: %+v", e.Number, r)
						}
					}
				})
			})
		}
	}
}

// A push service that is left alone for longer than an event lives: its delivery waits until
// it expires, as another process may do better, or the keys may be replaced.
func TestAnEventIsNotGivenUpBeforeItExpires(t *testing.T) {
	t.Parallel()
	bubble(t, 2, func(t *testing.T, w *world) {
		w.answering(func(context.Context, push.Message) push.Result {
			return push.Result{Outcome: push.Wait, Status: 503, Origin: true, After: 15 * time.Minute}
		})
		w.deliver(w.event(push.Event{}), 1)
		_, stop := w.begin()
		pass(time.Second)
		e := w.event(push.Event{ExpiresIn: 30 * time.Second})
		w.deliver(e, 2)
		pass(20 * time.Second)
		w.counts(queuetest.Counts{Scheduled: 2})
		stop()
		w.answering(nil)
		w.begin() // its breakers are its own
		pass(10 * time.Second)
		if r := w.receipt(e.Number, 2); r.State != push.StateAccepted {
			t.Errorf("receipt %+v", r)
		}
	})
}

// Messages above the last one that a GOAWAY names are no failures of the push service.
func TestAGoAwayHoldsUpNothing(t *testing.T) {
	t.Parallel()
	bubble(t, 20, func(t *testing.T, w *world) {
		n := 0
		w.answering(func(context.Context, push.Message) push.Result {
			w.mu.Lock()
			n++
			first := n <= 10
			w.mu.Unlock()
			if first {
				return push.Result{Outcome: push.Wait, Reason: push.ReasonGoAway}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		e := w.event(push.Event{})
		w.deliver(e, devicesTo(10)...)
		w.begin()
		pass(100 * time.Millisecond)
		w.deliver(e, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20)
		pass(200 * time.Millisecond)
		if sent, accepted := w.messages(); sent != 20 || accepted != 10 {
			t.Errorf("%d sent, %d accepted", sent, accepted)
		}
		pass(10 * time.Second)
		w.done()
		if _, accepted := w.messages(); accepted != 20 || w.log.Len() > 0 {
			t.Errorf("%d accepted; the log: %s", accepted, w.log)
		}
	})
}

// The newest event of a burst is refused: the others are not.
func TestARefusedEventIsNoEndOfTheBurst(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.answering(func(_ context.Context, m push.Message) push.Result {
			if m.Body == "too large" {
				return push.Result{Outcome: push.Rejected, Status: 413, Reason: "PayloadTooLarge"}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		var events []*push.StoredEvent
		for _, body := range []string{"first", "second", "too large", "too large"} {
			events = append(events, w.event(push.Event{Collapse: "key", Body: body}))
		}
		w.deliverAll(events, 1)
		w.begin()
		pass(10 * time.Second)
		w.done()
		for i, want := range []string{"accepted doubled", "accepted ", "failed PayloadTooLarge", "failed PayloadTooLarge"} {
			if r := w.receipt(events[i].Number, 1); string(r.State)+" "+r.Reason != want {
				t.Errorf("receipt of event %d: %+v, want %s", i, r, want)
			}
		}
		if len(w.accepted) != 1 || w.accepted[0].Body != "second" || w.accepted[0].Count != 2 {
			t.Errorf("accepted %+v", w.accepted)
		}
	})
}

// A refusal that comes after the batch went on is not asked for again.
func TestALateRefusalIsFinal(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			r := answerAfter(3*time.Second)(ctx, m)
			if r.Outcome == push.Accepted {
				r = push.Result{Outcome: push.Rejected, Status: 400, Reason: "BadTopic"}
			}
			return r
		})
		w.deliver(w.event(push.Event{}), 1)
		w.begin()
		pass(time.Minute)
		w.done()
		if sent, _ := w.messages(); sent != 1 || w.receipt(1, 1).State != push.StateFailed {
			t.Errorf("%d sent, receipt %+v", sent, w.receipt(1, 1))
		}
	})
}

// Events of a burst that were forgotten are skipped, however many they are.
func TestForgottenEventsOfABurst(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		var events []*push.StoredEvent
		for range 150 {
			events = append(events, w.event(push.Event{Collapse: "key"}))
		}
		w.deliverAll(events, 1)
		w.mu.Lock()
		for _, e := range events[1:] {
			if e.Number > 30 {
				delete(w.events, e.Number)
			}
		}
		w.mu.Unlock()
		w.begin()
		pass(10 * time.Second)
		w.done()
		for i, e := range events {
			want := push.StateAccepted
			if i >= 30 {
				want = push.StateSkipped
			}
			if r := w.receipt(e.Number, 1); r.State != want {
				t.Fatalf("receipt of event %d: %+v, want %s", i, r, want)
			}
		}
	})
}

// failingReceipts is a database that writes no receipts for a while.
type failingReceipts struct {
	*world
	until time.Time
}

var errNoReceipts = errors.New("receipts are not written, for the test")

func (s failingReceipts) WriteReceipts(ctx context.Context, held []queue.Task, receipts []push.Receipt) error {
	if time.Now().Before(s.until) {
		return errNoReceipts
	}
	return s.world.WriteReceipts(ctx, held, receipts)
}

// No delivery ends without a trace, and none is sent again whose receipt cannot be written.
func TestNoDeliveryEndsWithoutAReceipt(t *testing.T) {
	before := metricstest.Gather(t)
	bubble(t, 3, func(t *testing.T, w *world) {
		w.answering(func(_ context.Context, m push.Message) push.Result {
			if m.Device.ID == 2 {
				return push.Result{Outcome: push.Rejected, Status: 400, Reason: "BadTopic"}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		o := w.options()
		o.Store = failingReceipts{w, time.Now().Add(10 * time.Second)}
		delete(w.devices, 1)
		w.deliver(w.event(push.Event{}), 1, 2, 3)
		w.start(push.NewDeliveries(o), w.queue)
		pass(time.Minute)
		w.done()
		if r := w.receipt(1, 1); r.State != push.StateSkipped || r.Reason != string(push.NoDevice) {
			t.Errorf("skipped: receipt %+v", r)
		}
		if r := w.receipt(1, 2); r.State != push.StateFailed {
			t.Errorf("refused: receipt %+v", r)
		}
		if len(w.accepted) != 1 {
			t.Errorf("%d accepted", len(w.accepted))
		}
	})
	const doubles = `activityd_push_doubles_possible_total{cause="no_receipt",platform="apns"}`
	if n := metricstest.Gather(t).Since(before)[doubles]; n != 1 {
		t.Errorf("%v possible doubles, want 1: the message that was accepted", n)
	}
}

// A process dies with a message that its batch no longer waited for: its task was scheduled
// by then, and is not taken over but begun. What may be a double is counted.
func TestADoubleAfterADetachedMessageIsCounted(t *testing.T) {
	const takenOver, noAnswer = `activityd_push_doubles_possible_total{cause="taken_over",platform="apns"}`,
		`activityd_push_doubles_possible_total{cause="no_answer",platform="apns"}`
	for name, collapse := range map[string]string{"event": "", "burst": "key"} {
		before := metricstest.Gather(t)
		bubble(t, 1, func(t *testing.T, w *world) {
			w.answering(answerAfter(3 * time.Second))
			p := &process{world: w, Store: w.queue, unrecorded: map[receiptKey]bool{}}
			p.run()
			e := w.event(push.Event{Collapse: collapse})
			w.deliver(e, 1)
			pass(2 * time.Second)
			w.counts(queuetest.Counts{Scheduled: 1})
			p.mu.Lock()
			p.dead = true
			p.mu.Unlock()
			pass(3 * time.Second)
			w.answering(nil)
			w.begin()
			pass(time.Minute)
			w.done()
			if len(w.accepted) != 2 || w.receipt(e.Number, 1).State != push.StateAccepted {
				t.Errorf("%s: %d accepted, receipt %+v", name, len(w.accepted), w.receipt(e.Number, 1))
			}
		})
		if n := metricstest.Gather(t).Since(before); n[takenOver] != 1 {
			t.Errorf("%s: %v possible doubles, want 1", name, n[takenOver])
		}
	}
	before := metricstest.Gather(t)
	bubble(t, 1, func(t *testing.T, w *world) { // the process that sent it hears that there is no answer, and says so, too
		w.answering(func(ctx context.Context, m push.Message) push.Result {
			if w.looks > 1 {
				return push.Result{Outcome: push.Accepted, Status: 200}
			}
			return answerAfter(time.Hour)(ctx, m)
		})
		w.deliver(w.event(push.Event{}), 1)
		w.begin()
		pass(time.Minute)
		w.done()
		if len(w.accepted) != 1 {
			t.Errorf("%d accepted", len(w.accepted))
		}
	})
	if n := metricstest.Gather(t).Since(before); n[takenOver] != 1 || n[noAnswer] != 1 {
		t.Errorf("%v and %v possible doubles, want 1 and 1", n[takenOver], n[noAnswer])
	}
}
