package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// TestPropertyTasksOfASubjectRunInOrder lets pools of random shape work on random
// tasks of few subjects, and expects of each ordering key that in one queue its tasks
// run one batch at a time and in the order of their claims, and of all that they are
// done.
func TestPropertyTasksOfASubjectRunInOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playInOrder(t, seed) })
		})
	}
}

func playInOrder(t *testing.T, seed uint64) {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 1))
	w := &watchedKeys{t: t, random: rand.New(rand.NewPCG(seed, 2)), running: map[string]int{}, last: map[string]uint64{}, claims: map[uint64]int{}}
	w.claim.before = func(_ string, list []queue.Task) { deaf(w.claimed(list)) }
	o := queue.PoolOptions{Kinds: tasks.Kinds(), Sweep: time.Minute, Poll: time.Hour, Limit: time.Hour}
	for _, name := range []string{tasks.QueueDefault, tasks.QueueRefill, tasks.QueueFanOut} {
		o.Workers = append(o.Workers, queue.Workers{Queue: name, Count: 1 + random.IntN(4), Batch: 1 + random.IntN(6)})
	}
	p := startPool(t, &doing{w.handle}, o, w.claim.wrap)
	for range 30 {
		var batch []queue.New
		for range 1 + random.IntN(10) {
			n := anyTask(random)
			n.Priority = random.IntN(2)
			batch = append(batch, n)
		}
		enqueue(t, p.queue, batch...)
		deaf(time.Duration(random.IntN(3000)) * time.Millisecond)
	}
	pass(3 * time.Hour)
	counts(t, p.queue, queuetest.Counts{})
	if w.maxBusy < 2 {
		t.Errorf("at most %d ran at once", w.maxBusy)
	}
}

// A task that hangs with thousands behind it neither keeps other members' tasks from
// running, nor its process busy with claims.
func TestManyTasksBehindOneThatHangsHoldUpNoOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c claims
		other := make(chan time.Time, 1)
		p := startPool(t, each(func(ctx context.Context, task queue.Task) error {
			if task.Key == 1 {
				return sleepFor(ctx, time.Hour)
			}
			other <- time.Now()
			return nil
		}), queue.PoolOptions{Kinds: tasks.Kinds(), Limit: time.Minute, Workers: []queue.Workers{{Queue: tasks.QueueDefault, Count: 2, Batch: 10}}}, c.wrap)
		for i := range 2000 {
			enqueue(t, p.queue, tasks.NewAddContact(1, id(10+i)))
		}
		pass(20 * time.Second)
		c.take()
		pass(10 * time.Second)
		if n := c.take(); n > 1500 {
			t.Errorf("%d claims in ten seconds", n)
		}
		start := time.Now()
		enqueue(t, p.queue, tasks.NewAddContact(2, 3))
		if took := (<-other).Sub(start); took > 5*time.Second {
			t.Errorf("a task of another member waited %v", took)
		}
	})
}

func anyTask(random *rand.Rand) queue.New {
	subject := id(1 + random.IntN(3))
	switch random.IntN(5) {
	case 0:
		return tasks.NewRefill(subject)
	case 1:
		return tasks.NewUpload(subject)
	case 2:
		return tasks.NewFanOut(subject, id(random.IntN(20)))
	case 3:
		return tasks.NewRemoveContact(subject, id(10+random.IntN(20)))
	}
	return tasks.NewAddContact(subject, id(10+random.IntN(20)))
}

// watchedKeys looks at the tasks that run.
type watchedKeys struct {
	t     *testing.T
	claim claims

	mu            sync.Mutex
	random        *rand.Rand
	claimedAt     int
	claims        map[uint64]int // the place of each task in the order of claims
	running       map[string]int // batches of each key
	last          map[string]uint64
	busy, maxBusy int
}

// claimed notes the order, and returns how long the answer takes.
func (w *watchedKeys) claimed(list []queue.Task) (delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, task := range list {
		w.claimedAt++
		w.claims[task.ID] = w.claimedAt
	}
	return time.Duration(w.random.IntN(20)) * time.Millisecond
}

// keyOf names a task's queue and ordering key; parts of fan-outs have one each.
func keyOf(t queue.Task) string {
	switch t.Kind {
	case tasks.Upload:
		return fmt.Sprint(t.Queue, " uploader ", t.Key)
	case tasks.FanOut:
		return fmt.Sprint("part ", t.ID)
	}
	return fmt.Sprint(t.Queue, " set ", t.Key)
}

// handle takes some time over a batch.
func (w *watchedKeys) handle(_ context.Context, batch []queue.Task) []error {
	keys, took := w.begin(batch)
	deaf(took)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	for _, key := range keys {
		w.running[key]--
	}
	return make([]error, len(batch))
}

func (w *watchedKeys) begin(batch []queue.Task) (keys []string, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	w.maxBusy = max(w.maxBusy, w.busy)
	for _, task := range batch {
		key := keyOf(task)
		keys = append(keys, key)
		if before := w.last[key]; before != 0 && w.claims[before] > w.claims[task.ID] {
			w.t.Errorf("%s: task %d runs after task %d, which was claimed later", key, task.ID, before)
		}
		w.last[key] = task.ID
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	for _, key := range keys {
		w.running[key]++
		if w.running[key] > 1 {
			w.t.Errorf("%d batches run of %s", w.running[key], key)
		}
	}
	return keys, time.Duration(w.random.IntN(2000)) * time.Millisecond
}
