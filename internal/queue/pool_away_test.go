package queue_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// half is a handler of tasks of which those with an odd key need a server that is away.
type half struct {
	away  atomic.Bool
	tries atomic.Int64 // of the tasks that wait

	mu   sync.Mutex
	done map[uint64]time.Time
}

func (h *half) do(_ context.Context, t queue.Task) error {
	if t.Key%2 == 1 && h.away.Load() {
		h.tries.Add(1)
		return fmt.Errorf("set of %d: %w", t.Key, index.ErrUnavailable)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done[t.Key] = time.Now()
	return nil
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
				h := &half{done: make(map[uint64]time.Time)}
				h.away.Store(true)
				p := startPool(t, each(h.do), queue.PoolOptions{
					Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 2, Batch: 256}},
					Partly:  func() bool { return test.known },
				})
				enqueue(t, p.queue, uploads(1, 2*test.waiting, 1)...)
				pass(10 * time.Second)
				counts(t, p.queue, queue.Counts{Scheduled: int(test.waiting)})
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
				counts(t, p.queue, queue.Counts{})
				if log := p.log.String(); log != "" {
					t.Errorf("log %s", log)
				}
			})
		})
	}
}
