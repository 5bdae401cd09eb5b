package push_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/queue"
)

// awayStore is a database that is away for a while: it refuses every call, or answers none.
type awayStore struct {
	*world
	queue.Store

	mu    sync.Mutex
	until time.Time
	hangs bool
}

// leave makes it be away from now on.
func (a *awayStore) leave(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Now().Add(d)
}

// reach returns nil when it answers.
func (a *awayStore) reach(ctx context.Context) error {
	a.mu.Lock()
	left := time.Until(a.until)
	a.mu.Unlock()
	if left <= 0 {
		return ctx.Err()
	}
	err := fmt.Errorf("%w: for the test", mysql.ErrUnavailable)
	if !a.hangs {
		return err
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return err
	}
}

func (a *awayStore) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	if err := a.reach(ctx); err != nil {
		return nil, err
	}
	return a.Store.Claim(ctx, name, n, lease)
}

func (a *awayStore) Extend(ctx context.Context, held []queue.Task, lease time.Duration) (int, error) {
	if err := a.reach(ctx); err != nil {
		return 0, err
	}
	return a.Store.Extend(ctx, held, lease)
}

func (a *awayStore) Finish(ctx context.Context, results []queue.Result) (int, error) {
	if err := a.reach(ctx); err != nil {
		return 0, err
	}
	return a.Store.Finish(ctx, results)
}

func (a *awayStore) Sweep(ctx context.Context) (queue.Swept, error) {
	if err := a.reach(ctx); err != nil {
		return queue.Swept{}, err
	}
	return a.Store.Sweep(ctx)
}

func (a *awayStore) Pending(ctx context.Context, bursts []push.BurstDevice) ([][]uint64, error) {
	if err := a.reach(ctx); err != nil {
		return nil, err
	}
	return a.world.Pending(ctx, bursts)
}

func (a *awayStore) Look(ctx context.Context, candidates []push.Candidate) ([]push.Facts, error) {
	if err := a.reach(ctx); err != nil {
		return nil, err
	}
	return a.world.Look(ctx, candidates)
}

func (a *awayStore) Take(ctx context.Context, deliveries [][]push.Receipt, lasts time.Duration) ([]bool, error) {
	if err := a.reach(ctx); err != nil {
		return nil, err
	}
	return a.world.Take(ctx, deliveries, lasts)
}

func (a *awayStore) WriteReceipts(ctx context.Context, held []queue.Task, receipts []push.Receipt) error {
	if err := a.reach(ctx); err != nil {
		return err
	}
	return a.world.WriteReceipts(ctx, held, receipts)
}

// run starts a process over the database.
func (a *awayStore) run() (stop func()) {
	o := a.options()
	o.Store = a
	return a.start(push.NewDeliveries(o), a)
}

// The database goes away after messages left and before their receipts are written, for less
// or more than a batch tries and a lease lasts. Each message is accepted once, and has its
// receipt; nothing is pending without a task, and the next event of the burst counts itself
// alone.
func TestReceiptsOutliveTheDatabase(t *testing.T) {
	t.Parallel()
	const devices = 30
	for _, outage := range []time.Duration{2 * time.Second, 4300 * time.Millisecond, 6 * time.Second, 8 * time.Second, 12 * time.Second} {
		for _, hangs := range []bool{false, true} {
			for _, took := range []time.Duration{10 * time.Millisecond, 800 * time.Millisecond, 3 * time.Second} { // the last is detached
				t.Run(fmt.Sprint(outage, hangs, took), func(t *testing.T) {
					t.Parallel()
					bubble(t, devices, func(t *testing.T, w *world) {
						a := &awayStore{world: w, Store: w.queue, hangs: hangs}
						var once sync.Once
						w.answering(func(ctx context.Context, m push.Message) push.Result {
							r := answerAfter(took)(ctx, m)
							once.Do(func() { a.leave(outage) })
							return r
						})
						alone, burst := w.event(push.Event{}), w.event(push.Event{Collapse: "key"})
						w.deliver(alone, devicesTo(devices)...)
						w.deliver(burst, devicesTo(devices)...)
						a.run()
						pass(2 * time.Minute)
						w.done()
						w.answering(nil)
						next := w.event(push.Event{Collapse: "key"})
						w.deliver(next, devicesTo(devices)...)
						pass(10 * time.Second)
						w.done()
						for _, m := range w.accepted {
							if m.Count != 1 {
								t.Errorf("device %d was told of %d events in place of one", m.Device.ID, m.Count)
							}
						}
						if len(w.accepted) != 3*devices {
							t.Errorf("%d accepted, want %d", len(w.accepted), 3*devices)
						}
						for _, e := range []*push.StoredEvent{alone, burst, next} {
							for _, device := range devicesTo(devices) {
								if r := w.receipt(e.Number, device); r.State != push.StateAccepted {
									t.Errorf("receipt %+v", r)
								}
							}
						}
					})
				})
			}
		}
	}
}

// A process that ends while the database is away gives its receipts up after a while. The
// deliveries come again, which is counted.
func TestAProcessThatEndsWithoutTheDatabase(t *testing.T) {
	before := metricstest.Gather(t)
	bubble(t, 1, func(t *testing.T, w *world) {
		a := &awayStore{world: w, Store: w.queue}
		var once sync.Once
		w.answering(func(context.Context, push.Message) push.Result {
			once.Do(func() { a.leave(time.Hour) })
			return push.Result{Outcome: push.Accepted, Status: 200}
		})
		e := w.event(push.Event{Collapse: "key"})
		w.deliver(e, 1)
		stop := a.run()
		pass(10 * time.Second)
		began := time.Now()
		stop()
		if took := time.Since(began); took > push.DefaultTimeout+6*time.Second {
			t.Errorf("the end took %v", took)
		}
		a.leave(0)
		a.run()
		pass(time.Minute)
		w.done()
		if r := w.receipt(e.Number, 1); r.State != push.StateAccepted || len(w.accepted) != 2 || w.accepted[1].Count != 1 {
			t.Errorf("%d accepted, receipt %+v", len(w.accepted), r)
		}
	})
	const doubles = `activityd_push_doubles_possible_total{cause="no_receipt",platform="apns"}`
	if n := metricstest.Gather(t).Since(before)[doubles]; n != 1 {
		t.Errorf("%v possible doubles, want 1", n)
	}
}

// Receipts are never written: no more is sent than what can be kept of them.
func TestWithoutReceiptsNothingIsSentForEver(t *testing.T) {
	t.Parallel()
	bubble(t, 1, func(t *testing.T, w *world) {
		o := w.options()
		o.Store = failingReceipts{w, time.Now().Add(time.Hour)}
		d := push.NewDeliveries(o)
		sent := 0
		for id := uint64(1); id <= 30; id++ {
			var batch []queue.Task
			for range 1000 {
				e := w.event(push.Event{})
				batch = append(batch, queue.Task{ID: e.Number, Kind: push.Deliver, Key: 1, Attempts: 1, Payload: fmt.Appendf(nil, `{"event":%d,"to":[[1,1]]}`, e.Number)})
			}
			for _, outcome := range d.Handle(t.Context(), batch) {
				if outcome.Err == nil {
					t.Fatal("a task without a receipt is done")
				}
			}
			sent, _ = w.messages()
		}
		if sent != 10_000 {
			t.Errorf("%d sent, want 10,000", sent)
		}
		pass(2 * time.Hour)
		if _, accepted := w.messages(); accepted != sent || w.receipt(1, 1).State != push.StateAccepted {
			t.Errorf("%d accepted, receipt %+v", accepted, w.receipt(1, 1))
		}
		d.Wait()
	})
}
