package push_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// The first event of a burst goes as any other does, by one task for many devices, and leaves no receipt that waits.
func TestTheFirstOfABurstGoesByPage(t *testing.T) {
	t.Parallel()
	bubble(t, 300, func(t *testing.T, w *world) {
		e := w.event(push.Event{Collapse: "key", Title: "photo"})
		w.deliverPage(e, devicesTo(300)...)
		w.counts(queuetest.Counts{Waiting: 2})
		w.begin()
		pass(10 * time.Second)
		w.done()
		if sent, accepted := w.messages(); sent != 300 || accepted != 300 || w.looks > 2 {
			t.Errorf("%d messages, %d accepted, %d looks", sent, accepted, w.looks)
		}
		for device := range uint64(300) {
			if r := w.receipt(e.Number, device+1); r.State != push.StateAccepted || r.Task == 0 || r.Burst != e.Burst() {
				t.Fatalf("receipt %+v", r)
			}
		}
		w.deliver(w.event(push.Event{Collapse: "key", Title: "photo"}), 7)
		pass(10 * time.Second)
		if m := w.accepted[300]; m.Title != "photo (2)" || m.Device.ID != 7 || m.Collapse != w.accepted[0].Collapse {
			t.Errorf("then %+v", m)
		}
	})
}

// What of a page has to wait for long is left to tasks for the burst, which sends it together with others; what waits briefly
// is not.
func TestWhatWaitsOfAPageIsLeftToTheBurst(t *testing.T) {
	t.Parallel()
	bubble(t, 20, func(t *testing.T, w *world) {
		waits := map[uint64]time.Duration{3: 20 * time.Second, 4: 20 * time.Second, 5: 5 * time.Minute, 6: 5 * time.Minute}
		start := time.Now()
		w.answering(func(_ context.Context, m push.Message) push.Result {
			if after := waits[m.Device.ID]; time.Since(start) < after {
				return push.Result{Outcome: push.Wait, Status: 429, After: after}
			}
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		first := w.event(push.Event{Collapse: "key", Title: "photo", Body: "first"})
		w.deliverPage(first, devicesTo(20)...)
		w.begin()
		pass(10 * time.Second)
		w.waits(4)
		w.counts(queuetest.Counts{Scheduled: 3}) // 3 and 4, 5, 6
		for device, want := range map[uint64]push.State{3: "", 5: push.StatePending, 6: push.StatePending} {
			if r := w.receipt(first.Number, device); r.State != want {
				t.Errorf("receipt %+v, want %q", r, want)
			}
		}
		second := w.event(push.Event{Collapse: "key", Title: "photo", Body: "second"})
		w.deliver(second, 5)
		pass(20 * time.Minute)
		w.done()
		got := map[uint64]string{}
		for _, m := range w.accepted {
			got[m.Device.ID] += fmt.Sprint(m.Title, " ", m.Body, ";")
		}
		for device, want := range map[uint64]string{1: "photo first;", 3: "photo first;", 5: "photo (2) second;", 6: "photo first;"} {
			if got[device] != want {
				t.Errorf("device %d got %q, want %q", device, got[device], want)
			}
		}
		for device := range uint64(20) {
			if r := w.receipt(first.Number, device+1); r.State != push.StateAccepted {
				t.Errorf("receipt %+v", r)
			}
		}
	})
}

// A device is not left to its burst before the receipt is written by which that finds it.
func TestWhatIsLeftToABurstIsWrittenFirst(t *testing.T) {
	t.Parallel()
	for _, devices := range []int{1, 2} {
		bubble(t, devices, func(t *testing.T, w *world) {
			w.answering(func(context.Context, push.Message) push.Result {
				return push.Result{Outcome: push.Wait, Status: 429, After: 2 * time.Minute}
			})
			p := &process{world: w, Store: w.queue, unrecorded: map[receiptKey]bool{}, refuses: func() bool { return true }}
			p.run()
			e := w.event(push.Event{Collapse: "key"})
			w.deliverPage(e, devicesTo(uint64(devices))...)
			pass(20 * time.Second)
			p.mu.Lock()
			p.dead = true
			p.mu.Unlock()
			w.answering(nil)
			w.begin()
			pass(10 * time.Minute)
			w.done()
			if _, accepted := w.messages(); accepted != devices {
				t.Errorf("%d accepted, want %d", accepted, devices)
			}
		})
	}
}

// A page comes late: others of the burst wait for a device by then, or were accepted. One message is sent for
// all, or it counts what came before, under the text of the newest.
func TestAPageComesLate(t *testing.T) {
	t.Parallel()
	bubble(t, 3, func(t *testing.T, w *world) {
		late := w.event(push.Event{Collapse: "key", Title: "photo", Body: "older"})
		pass(time.Millisecond)
		newest := w.event(push.Event{Collapse: "key", Title: "photo", Body: "newest"})
		w.deliver(newest, 1)
		w.begin()
		pass(5 * time.Second)
		d, err := w.queue.Enqueue(t.Context(), w.delayed(time.Minute, newest, 2)) // it waits for others
		if err != nil || len(d) != 1 {
			t.Fatal(d, err)
		}
		w.deliverPage(late, 1, 2, 3)
		pass(2 * time.Minute)
		w.done()
		got := map[uint64]string{}
		for _, m := range w.accepted {
			got[m.Device.ID] += fmt.Sprint(m.Title, " ", m.Body, ";")
		}
		for device, want := range map[uint64]string{1: "photo newest;photo (2) newest;", 2: "photo (2) newest;", 3: "photo older;"} {
			if got[device] != want {
				t.Errorf("device %d got %q, want %q", device, got[device], want)
			}
		}
	})
}

// More events of a burst than are looked at come late: the text is that of a newer one that was accepted.
func TestManyComeLate(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		var late []*push.StoredEvent
		for range 120 {
			late = append(late, w.event(push.Event{Collapse: "key", Title: "photo", Body: "older"}))
		}
		pass(time.Millisecond)
		w.deliver(w.event(push.Event{Collapse: "key", Title: "photo", Body: "newest"}), 1)
		w.begin()
		pass(5 * time.Second)
		w.deliverAll(late, 1)
		pass(time.Minute)
		w.done()
		if m := w.accepted[len(w.accepted)-1]; len(w.accepted) != 2 || m.Body != "newest" || m.Count != 100 {
			t.Errorf("the last of %d is %+v", len(w.accepted), m)
		}
	})
}

// Two tasks of a burst begin at once, in two processes: the first one had begun before, and has no dedupe key any more.
// One of them sends; the other one waits, and finds that nothing is pending.
func TestTwoTasksOfABurstBeginAtOnce(t *testing.T) {
	t.Parallel()
	const devices = 3
	bubble(t, devices, func(t *testing.T, w *world) {
		w.answering(answerAfter(20 * time.Millisecond))
		var both [2][]queue.Task
		for i := range both {
			w.deliver(w.event(push.Event{Collapse: "key"}), devicesTo(devices)...)
			both[i] = queuetest.ClaimFor(t, w.queue, push.QueuePush, devices+1, time.Minute)
		}
		var all sync.WaitGroup
		for _, tasks := range both {
			all.Go(func() {
				var results []queue.Result
				for i, o := range push.NewDeliveries(w.options()).Handle(t.Context(), tasks) {
					results = append(results, queue.Result{Task: tasks[i], Err: o.Err, Next: o.Next})
				}
				if lost, err := w.queue.Finish(t.Context(), results); lost > 0 || err != nil {
					t.Error(lost, err)
				}
			})
		}
		all.Wait()
		w.counts(queuetest.Counts{Scheduled: devices})
		w.begin()
		pass(20 * time.Second)
		w.done()
		if len(w.accepted) != devices {
			t.Errorf("%d messages for %d devices", len(w.accepted), devices)
		}
		for _, m := range w.accepted {
			if m.Count != 2 {
				t.Errorf("a message that counts %d of 2", m.Count)
			}
		}
	})
}

// Of many that take the receipts of a burst at once, one gets them, until they were marked for too long; and it gets all or none.
func TestTake(t *testing.T) {
	t.Parallel()
	store := push.NewMySQL(openDB(t))
	receipt := func(event, device uint64, state push.State) push.Receipt {
		return push.Receipt{Event: event, Member: 2, Device: device, State: state, Burst: [16]byte{1}}
	}
	var groups [][]push.Receipt
	for device := range uint64(20) {
		groups = append(groups, []push.Receipt{receipt(1, device+1, push.StatePending), receipt(2, device+1, push.StatePending)})
		must(t, store.WriteReceipts(t.Context(), nil, groups[device]))
	}
	const takers = 8
	var got [takers][]bool
	var all sync.WaitGroup
	take := func(lasts time.Duration, groups [][]push.Receipt) []bool {
		taken, err := store.Take(t.Context(), groups, lasts)
		if err != nil || len(taken) != len(groups) {
			t.Error(taken, err)
			return make([]bool, len(groups))
		}
		return taken
	}
	for i := range takers {
		all.Go(func() {
			var mine [][]push.Receipt
			for _, g := range groups {
				mine = append(mine, slices.Clone(g))
				for j := range g {
					mine[len(mine)-1][j].Reason = fmt.Sprint("unanswered: task ", i)
				}
			}
			rand.Shuffle(len(mine), func(i, j int) { mine[i], mine[j] = mine[j], mine[i] })
			taken := take(time.Hour, mine)
			got[i] = make([]bool, len(groups))
			for j, g := range mine {
				got[i][g[0].Device-1] = taken[j]
			}
		})
	}
	all.Wait()
	for device := range groups {
		n := 0
		for i := range takers {
			if got[i][device] {
				n++
			}
		}
		if n != 1 {
			t.Errorf("device %d was taken %d times", device+1, n)
		}
	}
	for _, g := range groups {
		for j := range g {
			g[j].Reason = "unanswered: task 99"
		}
	}
	if slices.Contains(take(time.Hour, groups), true) || slices.Contains(take(0, groups), false) {
		t.Error("a mark does not hold for as long as it should")
	}
	if slices.Contains(take(time.Hour, groups), false) {
		t.Error("a task does not get again what it has marked")
	}
	must(t, store.WriteReceipts(t.Context(), nil, []push.Receipt{receipt(2, 1, push.StateAccepted)}))
	other := []push.Receipt{receipt(1, 2, push.StatePending), receipt(9, 2, push.StatePending)}
	if slices.Contains(take(0, [][]push.Receipt{groups[0], other}), true) {
		t.Error("taken, without an event that was accepted, or that is not there")
	}
}

// delayed returns deliveries of an event of a burst that wait.
func (w *world) delayed(d time.Duration, e *push.StoredEvent, devices ...uint64) []queue.New {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.deliveries(e, devices)
	for i := range list {
		list[i].Delay = d
	}
	return list
}

// Of a burst with more pending events than are read at once, each is accepted, and each message is about a newer one.
func TestMorePendingThanAreRead(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), '{}', 5)")
	store, sender := push.NewMySQL(db), &recorder{}
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	const all = 2300
	var newest *push.StoredEvent
	var pending []push.Receipt
	for i := range all {
		newest = storeEvent(t, store, push.Event{Type: "fave", Actor: 1, Followers: true, Collapse: "key", Title: "t", Body: fmt.Sprint(i)})
		pending = append(pending, push.Receipt{Event: newest.Number, Member: 2, Device: 20, State: push.StatePending, Burst: newest.Burst()})
	}
	must(t, store.WriteReceipts(t.Context(), nil, pending))
	queuetest.Enqueue(t, q, queue.New{
		Kind: push.Deliver, Key: 20, Queue: push.QueuePush, Payload: fmt.Appendf(nil, `{"event":%d,"to":[[2,20]],"burst":"%x"}`, newest.Number, newest.Burst()),
	})
	d := push.NewDeliveries(push.DeliveryOptions{
		Store: store, Senders: map[push.Platform]push.Sender{push.FCM: sender}, Log: slog.New(slog.DiscardHandler), Patience: time.Minute, Timeout: time.Minute,
	})
	for round := range 3 {
		list := queuetest.ClaimFor(t, q, push.QueuePush, 10, time.Minute)
		o := d.Handle(t.Context(), list)[0]
		if len(sender.sent) != round+1 || o.Err != nil || (len(o.Next) == 0) != (round == 2) {
			t.Fatalf("round %d: %d messages, %+v", round+1, len(sender.sent), o)
		}
		if m := sender.sent[round]; m.Count != 100 || m.Body != fmt.Sprint(min(1000*(round+1), all)-1) {
			t.Errorf("round %d: a message about %q, which counts %d", round+1, m.Body, m.Count)
		}
		_, err := q.Finish(t.Context(), []queue.Result{{Task: list[0], Err: o.Err, Next: o.Next}})
		must(t, err)
		_, err = q.Retry(t.Context(), queue.Filter{}, 10) // now
		must(t, err)
	}
	var left int
	must(t, db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM push_receipts WHERE state <> 'accepted'").Scan(&left))
	if left != 0 {
		t.Errorf("%d are not accepted", left)
	}
}

// A process is stopped with a page when a device has to wait, and writes that it does when another process has sent to it.
// No later event of the burst sends it again.
func TestAStoppedProcessSaysThatWhatWasSentWaits(t *testing.T) {
	t.Parallel()
	db := openDB(t)
	exec(t, db, "INSERT INTO users (id, username) VALUES (1, 'ada'), (2, 'bob')")
	exec(t, db, "INSERT INTO push_devices (id, member_id, platform, address_hash, address, registered_at) VALUES (20, 2, 'fcm', REPEAT('x', 32), '{}', 5)")
	store, sender := push.NewMySQL(db), &recorder{}
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()})
	of := func(body string) (*push.StoredEvent, push.Receipt) {
		e := storeEvent(t, store, push.Event{Type: "fave", Actor: 1, Followers: true, Collapse: "key", Title: "t", Body: body})
		return e, push.Receipt{Event: e.Number, Member: 2, Device: 20, State: push.StatePending, Burst: e.Burst()}
	}
	first, late := of("first")
	was := late
	was.State, was.Task = push.StateAccepted, 7
	must(t, store.WriteReceipts(t.Context(), nil, []push.Receipt{was}))
	must(t, store.WriteReceipts(t.Context(), nil, []push.Receipt{late}))
	second, waits := of("second")
	must(t, store.WriteReceipts(t.Context(), nil, []push.Receipt{waits}))
	queuetest.Enqueue(t, q, queue.New{
		Kind: push.Deliver, Key: 20, Queue: push.QueuePush, Payload: fmt.Appendf(nil, `{"event":%d,"to":[[2,20]],"burst":"%x"}`, second.Number, second.Burst()),
	})
	d := push.NewDeliveries(push.DeliveryOptions{
		Store: store, Senders: map[push.Platform]push.Sender{push.FCM: sender}, Log: slog.New(slog.DiscardHandler), Patience: time.Minute, Timeout: time.Minute,
	})
	if o := d.Handle(t.Context(), queuetest.ClaimFor(t, q, push.QueuePush, 10, time.Minute))[0]; o.Err != nil {
		t.Error(o.Err)
	}
	if len(sender.sent) != 1 || sender.sent[0].Count != 2 || sender.sent[0].Body != "second" {
		t.Errorf("sent %+v", sender.sent)
	}
	for e, want := range map[*push.StoredEvent]string{first: "doubled", second: ""} {
		var state, reason string
		must(t, db.QueryRowContext(t.Context(), "SELECT state, reason FROM push_receipts WHERE event_number = ?", e.Number).Scan(&state, &reason))
		if state != "accepted" || reason != want {
			t.Errorf("receipt of %s: %s %q, want %q", e.Body, state, reason, want)
		}
	}
}
