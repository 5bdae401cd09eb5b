package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// half is a handler of tasks of which those with an odd key need a server that may be away, and
// what is known of the servers.
type half struct {
	away   atomic.Bool  // of the keys 1, 3, 5, …
	other  atomic.Bool  // of the keys 3, 7, 11, … alone
	tries  atomic.Int64 // of the tasks that wait
	known  bool         // it is known which keys have to wait
	partly bool         // it is known that not all do
	back   chan struct{}

	mu   sync.Mutex
	done map[uint64]time.Time
}

func (h *half) do(_ context.Context, t queue.Task) error {
	if h.waits(t.Key) {
		h.tries.Add(1)
		return fmt.Errorf("set of %d: %w", t.Key, index.ErrUnavailable)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done[t.Key] = time.Now()
	return nil
}

func (h *half) waits(key uint64) bool {
	return key%2 == 1 && h.away.Load() || key%4 == 3 && h.other.Load()
}

// These implement [queue.Dependency].

func (h *half) Waits(err error) bool { return errors.Is(err, index.ErrUnavailable) }

func (h *half) Usable(_ string, key uint64) (usable, known bool) {
	return h.known && !h.waits(key), h.known
}

func (h *half) Partly() bool { return h.partly && (h.away.Load() || h.other.Load()) }

func (h *half) Back() <-chan struct{} { return h.back }

// newHalf returns one that is away.
func newHalf(known, partly bool) *half {
	h := &half{done: make(map[uint64]time.Time), known: known, partly: partly, back: make(chan struct{}, 1)}
	h.away.Store(true)
	return h
}

// options are those of a pool with two workers.
func (h *half) options() queue.PoolOptions {
	return queue.PoolOptions{
		Kinds:   tasks.Kinds(),
		Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 2, Batch: 256}},
		Needs:   map[string]queue.Dependency{tasks.NeedsSets: h},
	}
}

func uploads(from, to, step uint64) (batch []queue.New) {
	for key := from; key <= to; key += step {
		batch = append(batch, tasks.NewUpload(id(key)))
	}
	return batch
}

// Tasks that need a server which is away hold up none of the others, whether a few wait or
// thousands, and whether or not it is known that only some servers are away; each is tried
// again and again, all together some hundred times a second, and they are done when the
// server is back: a few within seconds.
func TestTasksOfOneServerHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		waiting uint64
		known   bool
		back    time.Duration // within which all are done
	}{{300, true, 3 * time.Second}, {300, false, 4 * time.Second}, {5000, true, 15 * time.Second}} {
		t.Run(fmt.Sprint(test.waiting, test.known), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHalf(false, test.known)
				p := startPool(t, each(h.do), h.options())
				enqueue(t, p.queue, uploads(1, 2*test.waiting, 1)...)
				pass(10 * time.Second)
				got, err := queuetest.Count(t.Context(), p.queue)
				if !test.known { // some wait for a worker, which may pause
					got.Scheduled, got.Waiting = got.Scheduled+got.Waiting, 0
				}
				if want := (queuetest.Counts{Scheduled: int(test.waiting)}); err != nil || got != want {
					t.Fatalf("counts %+v, %v, want %+v", got, err, want)
				}
				const seconds = 30
				h.tries.Store(0)
				for i := range uint64(seconds) {
					key := 1_000_000 + 2*i
					began := time.Now()
					enqueue(t, p.queue, tasks.NewUpload(id(key)))
					pass(time.Second)
					limit := time.Millisecond
					if !test.known {
						limit = time.Second // a worker may pause
					}
					if took := h.done[key].Sub(began); took < 0 || took > limit {
						t.Errorf("a task of another server took %v", took)
					}
				}
				if n := h.tries.Load() / seconds; n < min(int64(test.waiting)/4, 400) || n > 600 {
					t.Errorf("%d tries a second", n)
				}
				h.away.Store(false)
				pass(test.back)
				counts(t, p.queue, queuetest.Counts{})
				if log := p.log.String(); log != "" {
					t.Errorf("log %s", log)
				}
			})
		})
	}
}

// When a server is back, what waited for it is done within seconds, however long it was away
// and however many wait for another one, which are tried no more often for it.
func TestTasksOfAServerThatIsBackAreDoneSoon(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"all are back": false, "another one is away": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHalf(true, true)
				h.other.Store(other)
				p := startPool(t, each(h.do), h.options())
				const waiting = 10_000
				enqueue(t, p.queue, uploads(1, 2*waiting, 2)...)
				pass(time.Minute)
				h.away.Store(false)
				h.tries.Store(0)
				left := 0
				if other {
					left = waiting / 2
				}
				for range 20 { // it comes and goes
					h.back <- struct{}{}
					pass(250 * time.Millisecond)
				}
				counts(t, p.queue, queuetest.Counts{Scheduled: left})
				if n := h.tries.Load(); n > 5*600 {
					t.Errorf("%d tries in 5 s", n)
				}
				if !other { // the next outage begins from nothing
					h.away.Store(true)
					enqueue(t, p.queue, tasks.NewUpload(1))
					pass(10 * time.Second)
					if n := h.tries.Load(); n < 5 {
						t.Errorf("%d tries in 10 s", n)
					}
				}
			})
		})
	}
}

// What waits for one dependency keeps its turns when another one is back.
func TestAnotherDependencyIsBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h, another := newHalf(true, true), newHalf(true, true)
		another.away.Store(false)
		o := h.options()
		o.Needs["another"] = another
		p := startPool(t, each(h.do), o)
		const waiting = 5000
		enqueue(t, p.queue, uploads(1, 2*waiting, 2)...)
		pass(time.Minute)
		h.tries.Store(0)
		for range 4 {
			another.back <- struct{}{}
			pass(250 * time.Millisecond)
		}
		if n := h.tries.Load(); n > waiting/5 {
			t.Errorf("%d tries in a second", n)
		}
	})
}

// While thousands wait for a server that is away, a passing error of another one postpones its
// task for seconds only. After a restart of the process the others are done within seconds, too.
func TestAPassingErrorTakesNoTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHalf(true, true)
		failed := make(map[uint64]bool)
		var mu sync.Mutex
		handler := each(func(ctx context.Context, task queue.Task) error {
			mu.Lock()
			defer mu.Unlock()
			if task.Key >= 1_000_000 && !failed[task.Key] {
				failed[task.Key] = true
				return fmt.Errorf("TRYAGAIN: %w", index.ErrUnavailable)
			}
			return h.do(ctx, task)
		})
		p := startPool(t, handler, h.options())
		const waiting = 5000
		enqueue(t, p.queue, uploads(1, 2*waiting, 2)...)
		pass(time.Minute)
		began := time.Now()
		enqueue(t, p.queue, uploads(1_000_000, 1_000_000, 1)...)
		pass(3 * time.Second)
		if took := h.done[1_000_000].Sub(began); took < 0 || took > 3*time.Second {
			t.Errorf("took %v", took)
		}
		p.stop()
		h.away.Store(false)
		p = joinPool(t, p, handler, h.options())
		h.back <- struct{}{} // as the first look at the servers says
		pass(5 * time.Second)
		counts(t, p.queue, queuetest.Counts{})
	})
}
