package push_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/queue"
)

// process is a process that is killed at one of its calls to the database or the push
// service: just before that has its effect, or just after, so that the answer is lost.
// From then on it has none.
type process struct {
	*world
	queue.Store

	mu    sync.Mutex
	calls []string // by now
	kill  int      // at which call; 0: never
	after bool
	dead  bool

	unrecorded map[receiptKey]bool // events that were sent, and whose receipts were not written

	frozen  chan struct{}  // closed when it goes on; nil: it is not stopped
	refuses func() bool    // whether the database refuses to write receipts just now; nil: never
	stopped map[string]int // calls that began, and wait for it to go on, by name
}

// wait waits until the process is not stopped.
func (p *process) wait(name string) {
	p.mu.Lock()
	frozen := p.frozen
	p.mu.Unlock()
	if frozen != nil {
		p.mu.Lock()
		p.stopped[name]++
		p.mu.Unlock()
		<-frozen
	}
}

// freeze stops the process for a time, as SIGSTOP does. It returns how many messages were
// sent by then and not recorded, or are sent at once when it goes on.
func (p *process) freeze(d time.Duration) (excused int) {
	frozen := make(chan struct{})
	p.mu.Lock()
	p.frozen, p.stopped = frozen, map[string]int{}
	p.mu.Unlock()
	pass(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	excused = len(p.unrecorded) + p.stopped["send"]
	p.frozen = nil
	close(frozen)
	return excused
}

// call is one call of the process.
func (p *process) call(name string, do func() error) error {
	p.wait(name)
	defer p.wait("answer")
	p.mu.Lock()
	if p.dead {
		p.mu.Unlock()
		return fmt.Errorf("%w: %w", mysql.ErrUnavailable, errKilled)
	}
	p.calls = append(p.calls, name)
	dies := len(p.calls) == p.kill
	p.dead = dies
	p.mu.Unlock()
	if dies && !p.after {
		return fmt.Errorf("%w: %w", mysql.ErrUnavailable, errKilled)
	}
	err := do()
	if dies {
		return fmt.Errorf("%w: %w", mysql.ErrUnavailable, errKilled)
	}
	return err
}

func (p *process) Claim(ctx context.Context, name string, n int, lease time.Duration) (list []queue.Task, err error) {
	err = p.call("claim", func() error { list, err = p.Store.Claim(ctx, name, n, lease); return err })
	return list, err
}

func (p *process) Extend(ctx context.Context, held []queue.Task, lease time.Duration) (lost int, err error) {
	err = p.call("extend", func() error { lost, err = p.Store.Extend(ctx, held, lease); return err })
	return lost, err
}

func (p *process) Finish(ctx context.Context, results []queue.Result) (lost int, err error) {
	err = p.call("finish", func() error { lost, err = p.Store.Finish(ctx, results); return err })
	return lost, err
}

func (p *process) Sweep(ctx context.Context) (s queue.Swept, err error) {
	err = p.call("sweep", func() error { s, err = p.Store.Sweep(ctx); return err })
	return s, err
}

func (p *process) Look(ctx context.Context, candidates []push.Candidate) (all []push.Facts, err error) {
	err = p.call("look", func() error { all, err = p.world.Look(ctx, candidates); return err })
	return all, err
}

func (p *process) Pending(ctx context.Context, bursts []push.BurstDevice) (all [][]uint64, err error) {
	err = p.call("pending", func() error { all, err = p.world.Pending(ctx, bursts); return err })
	return all, err
}

func (p *process) AcceptedSince(ctx context.Context, bursts []push.BurstDevice) (all [][]push.Receipt, err error) {
	err = p.call("accepted", func() error { all, err = p.world.AcceptedSince(ctx, bursts); return err })
	return all, err
}

func (p *process) Take(ctx context.Context, deliveries [][]push.Receipt, lasts time.Duration) (taken []bool, err error) {
	err = p.call("take", func() error { taken, err = p.world.Take(ctx, deliveries, lasts); return err })
	return taken, err
}

func (p *process) WriteReceipts(ctx context.Context, held []queue.Task, receipts []push.Receipt) error {
	return p.call("receipts", func() error {
		if p.refuses != nil && p.refuses() {
			return fmt.Errorf("%w: for the test", mysql.ErrUnavailable)
		}
		p.mu.Lock()
		for _, r := range receipts {
			delete(p.unrecorded, receiptKey{r.Event, r.Device})
		}
		p.mu.Unlock()
		return p.world.WriteReceipts(ctx, held, receipts)
	})
}

func (p *process) Send(ctx context.Context, m push.Message) (r push.Result) {
	err := p.call("send", func() error {
		p.mu.Lock()
		for _, e := range p.events {
			if e.ID == m.Event {
				p.unrecorded[receiptKey{e.Number, m.Device.ID}] = true
			}
		}
		p.mu.Unlock()
		r = p.world.Send(ctx, m)
		return nil
	})
	if err != nil {
		return push.Result{Outcome: push.Ambiguous, Reason: "reset"}
	}
	return r
}

// run is a process that goes on, or is killed.
func (p *process) run() {
	o := p.options()
	o.Store, o.Senders = p, map[push.Platform]push.Sender{push.APNs: p}
	p.start(push.NewDeliveries(o), p)
}

// The process is killed at every call that it makes, before the call has an effect
// and after it; another one goes on with its work. Every event is accepted for every
// device; and once, but for messages between the acceptance and the receipt.
func TestAProcessMayBeKilledAtAnyPoint(t *testing.T) {
	t.Parallel()
	t.Run("each waits", func(t *testing.T) { t.Parallel(); killAnywhere(t, 3, (*world).deliver) })
	t.Run("by page", func(t *testing.T) { t.Parallel(); killAnywhere(t, 1, (*world).deliverPage) })
}

// killAnywhere does so with an event of no burst, and so many of one.
func killAnywhere(t *testing.T, each int, deliver func(*world, *push.StoredEvent, ...uint64)) {
	t.Helper()
	const devices = 5
	// scenario runs the work, and returns the calls of the process that is killed.
	scenario := func(t *testing.T, kill int, after bool) (calls []string) {
		t.Helper()
		bubble(t, devices, func(t *testing.T, w *world) {
			w.answering(answerAfter(20 * time.Millisecond))
			e := w.event(push.Event{})
			w.deliver(e, devicesTo(devices)...)
			for range each {
				deliver(w, w.event(push.Event{Collapse: "key"}), devicesTo(devices)...)
			}
			p := &process{world: w, Store: w.queue, kill: kill, after: after, unrecorded: map[receiptKey]bool{}}
			p.run()
			pass(3 * time.Second)
			other := &process{world: w, Store: w.queue, unrecorded: map[receiptKey]bool{}}
			other.run()
			pass(time.Minute)
			w.done()
			p.mu.Lock()
			calls = p.calls[:min(len(p.calls), 30)]
			p.mu.Unlock()
			judge(t, w, devices, each, len(p.unrecorded))
			if !t.Failed() {
				return
			}
			for _, m := range w.accepted {
				t.Logf("accepted %s for device %d, count %d", m.Event, m.Device.ID, m.Count)
			}
		})
		return calls
	}
	calls := scenario(t, 0, false)
	seen := map[string]bool{}
	for i, name := range calls {
		seen[name] = true
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d %s %v", i+1, name, after), func(t *testing.T) {
				t.Parallel()
				scenario(t, i+1, after)
			})
		}
	}
	for _, name := range []string{"claim", "look", "pending", "send", "receipts", "finish"} {
		if !seen[name] {
			t.Errorf("the calls were %q: no %s among them", calls, name)
		}
	}
}

// judge looks at what the push service accepted; unrecorded is how many messages the process
// that was killed had sent and not recorded.
func judge(t *testing.T, w *world, devices, each, unrecorded int) {
	t.Helper()
	doubles := 0
	for device := range uint64(devices) {
		single, burst, counted := 0, 0, 0
		for _, m := range w.accepted {
			switch {
			case m.Device.ID != device+1:
			case m.Event == "event-1":
				single++
			default:
				burst++
				counted = max(counted, m.Count)
			}
		}
		if single == 0 || burst == 0 || counted != each {
			t.Errorf("device %d: %d and %d messages, which count %d, want at least one of each, which count %d", device+1, single, burst, counted, each)
		}
		doubles += single - 1 + burst - 1
		for n := range w.events {
			if r := w.receipt(n, device+1); r.State != push.StateAccepted {
				t.Errorf("receipt of event %d for device %d: %+v", n, device+1, r)
			}
		}
	}
	collapse := map[string]map[uint64]string{}
	for _, m := range w.accepted {
		kind := fmt.Sprint(m.Event == "event-1")
		if collapse[kind] == nil {
			collapse[kind] = map[uint64]string{}
		}
		if was := collapse[kind][m.Device.ID]; was != "" && was != m.Collapse {
			t.Errorf("a double under another collapse id: %q and %q", was, m.Collapse)
		}
		collapse[kind][m.Device.ID] = m.Collapse
	}
	if doubles > unrecorded {
		t.Errorf("%d doubles, while %d messages were sent and not recorded", doubles, unrecorded)
	}
}

// Processes are killed and stopped, answers are lost, push services fail in every way,
// receipts cannot be written: every event is accepted for every device in the end, and
// more often only if there is a reason for it.
func TestDeliveriesOutliveFaults(t *testing.T) {
	t.Parallel()
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			bubble(t, 40, func(t *testing.T, w *world) { withFaults(t, w, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

func withFaults(t *testing.T, w *world, random *rand.Rand) {
	t.Helper()
	const devices, events = 40, 12
	var mu sync.Mutex // of random and what follows
	calm, excused := false, 0
	chance := func(percent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return !calm && random.IntN(100) < percent
	}
	w.origin = func(d push.Device) string { return fmt.Sprintf("https://%d.example:443", d.ID%3) }
	w.answering(func(ctx context.Context, m push.Message) push.Result {
		took := 10 * time.Millisecond
		if chance(5) {
			took = 3 * time.Second
		}
		r := answerAfter(took)(ctx, m)
		if r.Outcome != push.Accepted || !chance(15) {
			return r
		}
		mu.Lock()
		kind := random.IntN(5)
		mu.Unlock()
		switch kind {
		case 0: // the answer is lost
			w.accept(m)
			mu.Lock()
			excused++
			mu.Unlock()
			return push.Result{Outcome: push.Ambiguous, Reason: "reset"}
		case 1: // the message is
			return push.Result{Outcome: push.Ambiguous, Reason: "reset"}
		case 2:
			return push.Result{Outcome: push.Wait, Status: 503, Origin: true, After: 20 * time.Second}
		case 3:
			return push.Result{Outcome: push.Credentials, Status: 403, Reason: "InvalidProviderToken", Origin: true}
		}
		return push.Result{Outcome: push.Wait, Reason: "dial"}
	})
	var running []*process
	begin := func() {
		p := &process{world: w, Store: w.queue, unrecorded: map[receiptKey]bool{}, refuses: func() bool { return chance(5) }}
		running = append(running, p)
		p.run()
	}
	excuse := func(n int) {
		mu.Lock()
		defer mu.Unlock()
		excused += n
	}
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	for range 2 {
		begin()
	}
	for i := range events {
		e := push.Event{}
		if i%3 == 0 {
			e.Collapse = fmt.Sprint("key", i)
		}
		if i%2 == 0 {
			w.deliverPage(w.event(e), devicesTo(devices)...)
		} else {
			w.deliver(w.event(e), devicesTo(devices)...)
		}
		pass(time.Duration(draw(2000)) * time.Millisecond)
		p := running[draw(len(running))]
		switch draw(4) {
		case 0:
			p.mu.Lock()
			p.dead = true
			excused := len(p.unrecorded)
			p.mu.Unlock()
			excuse(excused)
			running = slices.DeleteFunc(running, func(other *process) bool { return other == p })
			begin()
		case 1:
			excuse(p.freeze(time.Duration(2+draw(8)) * time.Second))
		}
	}
	mu.Lock()
	calm = true
	mu.Unlock()
	pass(20 * time.Minute)
	w.done()
	accepted := map[receiptKey]int{}
	for _, m := range w.accepted {
		for _, e := range w.events {
			if e.ID == m.Event {
				accepted[receiptKey{e.Number, m.Device.ID}]++
			}
		}
	}
	doubles := 0
	for n := range w.events {
		for device := range uint64(devices) {
			times := accepted[receiptKey{n, device + 1}]
			if r := w.receipt(n, device+1); times == 0 || r.State != push.StateAccepted {
				t.Errorf("event %d was accepted %d times for device %d, receipt %+v", n, times, device+1, r)
			}
			doubles += times - 1
		}
	}
	if doubles > excused {
		t.Errorf("%d doubles, of which %d have a reason", doubles, excused)
	}
	t.Logf("%d messages, %d doubles, reasons for %d", len(w.accepted), doubles, excused)
}
