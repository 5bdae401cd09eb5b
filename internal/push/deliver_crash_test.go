package push_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/queue"
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
}

// call is one call of the process.
func (p *process) call(name string, do func() error) error {
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

func (p *process) WriteReceipts(ctx context.Context, receipts []push.Receipt) error {
	return p.call("receipts", func() error {
		p.mu.Lock()
		for _, r := range receipts {
			delete(p.unrecorded, receiptKey{r.Event, r.Device})
		}
		p.mu.Unlock()
		return p.world.WriteReceipts(ctx, receipts)
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
	const devices, each = 5, 3
	// scenario runs the work, and returns the calls of the process that is killed.
	scenario := func(t *testing.T, kill int, after bool) (calls []string) {
		t.Helper()
		bubble(t, devices, func(t *testing.T, w *world) {
			w.answering(answerAfter(20 * time.Millisecond))
			e := w.event(push.Event{})
			w.deliver(e, devicesTo(devices)...)
			for range each {
				w.deliver(w.event(push.Event{Collapse: "key"}), devicesTo(devices)...)
			}
			p := &process{world: w, Store: w.queue, kill: kill, after: after, unrecorded: map[receiptKey]bool{}}
			p.run()
			pass(3 * time.Second)
			other := &process{world: w, Store: w.queue, unrecorded: map[receiptKey]bool{}}
			other.run()
			pass(5 * time.Minute)
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
