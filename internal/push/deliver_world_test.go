package push_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// world is what deliveries work with, in memory: the store, the queue and the push
// services. Its clock is that of the bubble.
type world struct {
	t        *testing.T
	queue    *queuetest.Memory
	notifier *notify.Notifier
	log      *bytes.Buffer
	logger   *slog.Logger

	mu       sync.Mutex
	events   map[uint64]*push.StoredEvent
	devices  map[uint64]push.Device
	pruned   map[uint64]push.Pruned
	hidden   map[uint64]bool // events about photos that their recipients may not see
	settings push.Settings   // of all members
	receipts map[receiptKey]push.Receipt
	silent   map[uint64]time.Time // by device: when a message was first sent in vain
	heard    map[uint64]bool      // devices that accepted one
	looks    int
	sent     []push.Message // that arrived at the push service
	accepted []push.Message
	answer   func(ctx context.Context, m push.Message) push.Result // nil: all are accepted
	origin   func(d push.Device) string                            // nil: all have the same
}

type receiptKey struct{ event, device uint64 }

// newWorld returns a world of one event for n devices, each of a member of its own.
func newWorld(t *testing.T, devices int) *world {
	t.Helper()
	notifier := &notify.Notifier{}
	w := &world{
		t: t, notifier: notifier, queue: queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now), log: &bytes.Buffer{},
		events: map[uint64]*push.StoredEvent{}, devices: map[uint64]push.Device{}, pruned: map[uint64]push.Pruned{},
		hidden: map[uint64]bool{}, silent: map[uint64]time.Time{}, heard: map[uint64]bool{}, receipts: map[receiptKey]push.Receipt{},
	}
	w.logger = slog.New(slog.NewTextHandler(w.log, nil))
	for i := range uint64(devices) {
		w.devices[i+1] = push.Device{ID: i + 1, Member: member.ID(i + 1), Platform: push.APNs, Address: addressOf(fmt.Sprint("secret-", i))}
	}
	return w
}

// event adds an event that has just been targeted, without deliveries.
func (w *world) event(e push.Event) *push.StoredEvent {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := uint64(len(w.events) + 1)
	if e.ExpiresIn == 0 {
		e.ExpiresIn = push.DefaultLife
	}
	e.ID, e.Type, e.Actor = fmt.Sprintf("event-%d", n), "upload", 99
	stored := &push.StoredEvent{Event: e, Number: n, Task: 1000 + n, Created: time.Now(), Expires: time.Now().Add(e.ExpiresIn)}
	w.events[n] = stored
	return stored
}

// deliver enqueues the deliveries of an event to devices, as targeting does.
func (w *world) deliver(e *push.StoredEvent, devices ...uint64) {
	w.t.Helper()
	w.deliverAll([]*push.StoredEvent{e}, devices...)
}

// deliverAll does so for some events at once.
func (w *world) deliverAll(events []*push.StoredEvent, devices ...uint64) {
	w.t.Helper()
	var batch []queue.New
	w.mu.Lock()
	for _, e := range events {
		batch = append(batch, w.deliveries(e, devices)...)
	}
	w.mu.Unlock()
	if _, err := w.queue.Enqueue(w.t.Context(), batch); err != nil {
		w.t.Fatal(err)
	}
}

// deliverPage enqueues the deliveries of an event of a burst to devices for which no other of the burst waits.
func (w *world) deliverPage(e *push.StoredEvent, devices ...uint64) {
	w.t.Helper()
	w.mu.Lock()
	batch := w.pages(e, devices)
	w.mu.Unlock()
	if _, err := w.queue.Enqueue(w.t.Context(), batch); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) pages(e *push.StoredEvent, devices []uint64) (batch []queue.New) {
	for some := range slices.Chunk(devices, 256) {
		var to []string
		for _, d := range some {
			to = append(to, fmt.Sprintf("[%d,%d]", cmp.Or(w.devices[d].Member, member.ID(d)), d))
		}
		batch = append(batch, queue.New{
			Kind: push.Deliver, Key: some[0], Queue: push.QueuePush, Payload: fmt.Appendf(nil, `{"event":%d,"to":[%s]}`, e.Number, strings.Join(to, ",")),
		})
	}
	return batch
}

func (w *world) deliveries(e *push.StoredEvent, devices []uint64) (batch []queue.New) {
	if e.Collapse == "" {
		return w.pages(e, devices)
	}
	burst := e.Burst()
	for _, d := range devices {
		of := cmp.Or(w.devices[d].Member, member.ID(d))
		batch = append(batch, queue.New{
			Kind: push.Deliver, Key: d, Queue: push.QueuePush, DedupeKey: fmt.Sprintf("burst:%d:%d:%x", of, d, burst),
			Payload: fmt.Appendf(nil, `{"event":%d,"to":[[%d,%d]],"burst":"%x"}`, e.Number, of, d, burst),
		})
		w.receipts[receiptKey{e.Number, d}] = push.Receipt{Event: e.Number, Member: of, Device: d, State: push.StatePending, Burst: burst}
	}
	return batch
}

// options are those of deliveries in the world.
func (w *world) options() push.DeliveryOptions {
	return push.DeliveryOptions{
		Store: w, Senders: map[push.Platform]push.Sender{push.APNs: w}, ByMembers: map[push.Platform]bool{push.WebPush: true}, MustShow: map[push.Platform]bool{push.WebPush: true}, Log: w.logger,
	}
}

// start starts a process: a pool over the queue of the world. It is stopped when the test
// ends, if it was not before.
func (w *world) start(d *push.Deliveries, store queue.Store) (stop func()) {
	pool := queue.NewPool(store, map[string]queue.Handler{push.Deliver: d}, queue.PoolOptions{
		Log: slog.New(slog.DiscardHandler), Notifier: w.notifier, Kinds: tasks.Kinds(),
		Workers: []queue.Workers{{Queue: push.QueuePush, Count: 2, Batch: 256, Lease: 5 * time.Second}},
		Poll:    5 * time.Second, Sweep: time.Second,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- pool.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
		d.Wait()
	})
	w.t.Cleanup(stop)
	return stop
}

// begin starts the one process of a test.
func (w *world) begin() (*push.Deliveries, func()) {
	d := push.NewDeliveries(w.options())
	return d, w.start(d, w.queue)
}

// Events implements [push.DeliveryStore].
func (w *world) Events(_ context.Context, numbers []uint64) (map[uint64]*push.StoredEvent, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[uint64]*push.StoredEvent{}
	for _, n := range numbers {
		if e := w.events[n]; e != nil {
			found[n] = e
		}
	}
	return found, nil
}

// CurrentEvents implements [push.DeliveryStore].
func (w *world) CurrentEvents(ctx context.Context, numbers []uint64) (map[uint64]*push.StoredEvent, error) {
	return w.Events(ctx, numbers)
}

// Pending implements [push.DeliveryStore].
func (w *world) Pending(_ context.Context, bursts []push.BurstDevice) ([][]uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	pending := make([][]uint64, len(bursts))
	for i, b := range bursts {
		for _, r := range w.receipts {
			if r.State == push.StatePending && r.Burst == b.Burst && r.Device == b.Device && r.Member == b.Member {
				pending[i] = append(pending[i], r.Event)
			}
		}
		slices.Sort(pending[i])
	}
	return pending, nil
}

// Take implements [push.DeliveryStore].
func (w *world) Take(ctx context.Context, deliveries [][]push.Receipt, lasts time.Duration) ([]bool, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := make([]bool, len(deliveries))
	for i, d := range deliveries {
		taken[i] = !slices.ContainsFunc(d, func(r push.Receipt) bool {
			was := w.receipts[receiptKey{r.Event, r.Device}]
			return was.State != push.StatePending || strings.HasPrefix(was.Reason, "unanswered") && was.Reason != r.Reason && time.Since(was.At) < lasts
		})
		if taken[i] {
			w.write(d)
		}
	}
	return taken, nil
}

// AcceptedSince implements [push.DeliveryStore].
func (w *world) AcceptedSince(_ context.Context, bursts []push.BurstDevice) ([][]push.Receipt, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	accepted := make([][]push.Receipt, len(bursts))
	for i, b := range bursts {
		for _, r := range w.receipts {
			if r.State == push.StateAccepted && r.Burst == b.Burst && r.Device == b.Device && r.Member == b.Member {
				accepted[i] = append(accepted[i], r)
			}
		}
		slices.SortFunc(accepted[i], func(a, b push.Receipt) int { return b.At.Compare(a.At) })
		if len(accepted[i]) > 0 && accepted[i][0].At.Before(b.Since) {
			accepted[i] = nil
		}
	}
	return accepted, nil
}

// Look implements [push.Looker].
func (w *world) Look(_ context.Context, candidates []push.Candidate) (all []push.Facts, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	for i, c := range candidates {
		d, ok := w.devices[c.Device]
		if _, gone := w.pruned[c.Device]; !ok || gone || d.Member != c.Member {
			continue
		}
		r := w.receipts[receiptKey{c.Event, c.Device}]
		all = append(all, push.Facts{
			Candidate: i, Device: d, Settings: w.settings, Visible: !w.hidden[c.Event], Actor: "alice", Now: time.Now(),
			Accepted: r.State == push.StateAccepted, Failed: r.State == push.StateFailed,
			Unanswered: r.State == push.StatePending && strings.HasPrefix(r.Reason, "unanswered"),
			Silent:     w.silent[d.ID], Heard: w.heard[d.ID],
		})
	}
	return all, nil
}

// WriteReceipts implements [push.DeliveryStore].
func (w *world) WriteReceipts(ctx context.Context, _ []queue.Task, receipts []push.Receipt) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.write(receipts)
	return nil
}

func (w *world) write(receipts []push.Receipt) {
	for _, r := range receipts {
		key := receiptKey{r.Event, r.Device}
		if was := w.receipts[key].State; was != push.StateAccepted && (r.State != push.StatePending || was == push.StatePending || was == "") {
			r.At = time.Now()
			w.receipts[key] = r
		}
	}
}

// Prune implements [push.DeliveryStore].
func (w *world) Prune(_ context.Context, gone []push.Pruned) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range gone {
		w.pruned[p.Device] = p
	}
	return len(gone), nil
}

// Hear implements [push.DeliveryStore].
func (w *world) Hear(_ context.Context, accepted, silent []uint64) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, id := range accepted {
		w.heard[id] = true
		delete(w.silent, id)
	}
	for _, id := range silent {
		if w.silent[id].IsZero() {
			w.silent[id] = time.Now()
			if w.heard[id] {
				w.silent[id] = time.Now().Add(24 * time.Hour)
			}
			delete(w.heard, id)
		}
	}
	return nil
}

// Send implements [push.Sender].
func (w *world) Send(ctx context.Context, m push.Message) push.Result {
	w.mu.Lock()
	w.sent = append(w.sent, m)
	answer := w.answer
	w.mu.Unlock()
	r := push.Result{Outcome: push.Accepted, Status: 200, ID: m.ID}
	if answer != nil {
		r = answer(ctx, m)
	}
	if r.Outcome == push.Accepted {
		w.accept(m)
	}
	return r
}

// accept is the acceptance of a message by the push service.
func (w *world) accept(m push.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.accepted = append(w.accepted, m)
}

// Origin implements [push.Sender].
func (w *world) Origin(d push.Device) string {
	if w.origin != nil {
		return w.origin(d)
	}
	return "https://push.example:443"
}

// answering sets what the push service answers.
func (w *world) answering(answer func(ctx context.Context, m push.Message) push.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = answer
}

// messages returns how many messages arrived, and how many were accepted.
func (w *world) messages() (sent, accepted int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.sent), len(w.accepted)
}

// receipt returns the receipt of an event for a device.
func (w *world) receipt(event, device uint64) push.Receipt {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.receipts[receiptKey{event, device}]
}

// done fails the test unless no task is left.
func (w *world) done() {
	w.t.Helper()
	w.counts(queuetest.Counts{})
}

func (w *world) counts(want queuetest.Counts) {
	w.t.Helper()
	got, err := queuetest.Count(w.t.Context(), w.queue)
	if err != nil || got != want {
		w.t.Errorf("tasks %+v, %v, want %+v", got, err, want)
	}
}

// waits fails the test unless so many devices wait for their deliveries, and nothing is under way.
func (w *world) waits(devices int) {
	w.t.Helper()
	list, err := w.queue.List(w.t.Context(), queue.Filter{}, 1000)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range list {
		var d push.Delivery
		if err := json.Unmarshal(r.Payload, &d); err != nil || r.State != queue.Scheduled {
			w.t.Errorf("task %+v: %v", r, err)
		}
		devices -= len(d.To)
	}
	if devices != 0 {
		w.t.Errorf("%d devices more than wait, want none", devices)
	}
}

// rest waits until no batch is under way.
func (w *world) rest() {
	w.t.Helper()
	for {
		c, err := queuetest.Count(w.t.Context(), w.queue)
		if err != nil {
			w.t.Fatal(err)
		}
		if c.Running == 0 {
			return
		}
		pass(time.Second)
	}
}

// pass lets time of the bubble pass, and then all goroutines come to rest.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of the bubble
	synctest.Wait()
}

// bubble runs a test in a world, in the time of a bubble.
func bubble(t *testing.T, devices int, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, devices)) })
}

// answerAfter is a push service that accepts all after a time, unless ctx ends first.
func answerAfter(d time.Duration) func(ctx context.Context, m push.Message) push.Result {
	return func(ctx context.Context, _ push.Message) push.Result {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return push.Result{Outcome: push.Accepted, Status: 200}
		case <-ctx.Done():
			return push.Result{Outcome: push.Ambiguous, Reason: "timeout"}
		}
	}
}

var errKilled = errors.New("the process was killed")
