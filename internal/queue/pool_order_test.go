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

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

// TestPropertyTasksOfASubjectRunInOrder lets pools of random shape work on random
// tasks of few subjects, and expects of each lane that its tasks run one batch at
// a time and in the order of their claims, and of all that they are done.
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
	w := &watchedLanes{t: t, random: rand.New(rand.NewPCG(seed, 2)), running: map[string]int{}, last: map[string]uint64{}, claims: map[uint64]int{}}
	w.claim.before = func(_ string, list []queue.Task) { deaf(w.claimed(list)) }
	o := queue.PoolOptions{Sweep: time.Minute, Poll: time.Hour, Limit: time.Hour}
	for _, name := range []string{queue.DefaultQueue, tasks.QueueRefill, tasks.QueueFanOut} {
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
	counts(t, p.queue, queue.Counts{})
	if w.most < 2 {
		t.Errorf("at most %d ran at once", w.most)
	}
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

// watchedLanes looks at the tasks that run.
type watchedLanes struct {
	t     *testing.T
	claim claims

	mu         sync.Mutex
	random     *rand.Rand
	claimedAt  int
	claims     map[uint64]int // the place of each task in the order of claims
	running    map[string]int // batches in each lane
	last       map[string]uint64
	busy, most int
}

// claimed notes the order, and returns how long the answer is under way: who
// claims later may hear sooner.
func (w *watchedLanes) claimed(list []queue.Task) (delay time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, task := range list {
		w.claimedAt++
		w.claims[task.ID] = w.claimedAt
	}
	return time.Duration(w.random.IntN(20)) * time.Millisecond
}

// laneOf names a task's lane; parts of fan-outs have one each.
func laneOf(t queue.Task) string {
	switch t.Kind {
	case tasks.Upload:
		return fmt.Sprint("uploader ", t.Key)
	case tasks.FanOut:
		return fmt.Sprint("part ", t.ID)
	}
	return fmt.Sprint("set ", t.Key)
}

// handle takes some time over a batch.
func (w *watchedLanes) handle(_ context.Context, batch []queue.Task) []error {
	lanes, took := w.begin(batch)
	deaf(took)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy--
	for _, lane := range lanes {
		w.running[lane]--
	}
	return make([]error, len(batch))
}

func (w *watchedLanes) begin(batch []queue.Task) (lanes []string, took time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy++
	w.most = max(w.most, w.busy)
	for _, task := range batch {
		lanes = append(lanes, laneOf(task))
		order := laneOf(task) + " in " + task.Queue // claims of two queues have no order
		if before := w.last[order]; before != 0 && w.claims[before] > w.claims[task.ID] {
			w.t.Errorf("%s: task %d runs after task %d, which was claimed later", order, task.ID, before)
		}
		w.last[order] = task.ID
	}
	slices.Sort(lanes)
	lanes = slices.Compact(lanes)
	for _, lane := range lanes {
		w.running[lane]++
		if w.running[lane] > 1 {
			w.t.Errorf("%d batches run in the lane of %s", w.running[lane], lane)
		}
	}
	return lanes, time.Duration(w.random.IntN(2000)) * time.Millisecond
}
