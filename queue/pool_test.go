package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// Tasks of other processes are found without a notifier.
func TestThePollIsTheSafetyNet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now) // whose notifier nobody hears
		done := make(chan struct{}, 1)
		startPool(t, each(func(context.Context, queue.Task) error {
			done <- struct{}{}
			return nil
		}), queue.PoolOptions{Poll: time.Second}, func(queuetest.Queue) queuetest.Queue { return q })
		pass(time.Minute)
		start := time.Now()
		enqueue(t, q, tasks.NewUpload(1))
		<-done
		if took := time.Since(start); took > time.Second {
			t.Errorf("handled after %v, want at the next poll", took)
		}
	})
}

// A task that makes its handler panic does not spoil the rest of its batch.
func TestAPanicCostsOnlyThePoisonedTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var done []string
		q := &doing{func(_ context.Context, batch []queue.Task) []error {
			for _, task := range batch {
				if task.Key == 3 && task.Attempts == 1 {
					panic("poisoned")
				}
			}
			for _, task := range batch {
				done = append(done, fmt.Sprintf("%d at %d", task.Key, task.Attempts))
			}
			return make([]error, len(batch))
		}}
		p := startPool(t, q, queue.PoolOptions{})
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2), tasks.NewUpload(3), tasks.NewUpload(4))
		pass(time.Minute)
		slices.Sort(done)
		if got := strings.Join(done, ", "); got != "1 at 1, 2 at 1, 3 at 2, 4 at 1" {
			t.Errorf("done: %s", got)
		}
		if log := p.log.String(); !strings.Contains(log, "panic: poisoned") || !strings.Contains(log, "pool_test.go") {
			t.Errorf("the log does not name panic and place: %s", log)
		}
		counts(t, p.queue, queuetest.Counts{})
	})
}

// A handler that breaks its promise breaks nothing else.
func TestAHandlerThatAnswersTooLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := startPool(t, &doing{func(_ context.Context, batch []queue.Task) []error {
			return make([]error, len(batch)-1)
		}}, queue.PoolOptions{})
		enqueue(t, p.queue, tasks.NewUpload(1), tasks.NewUpload(2))
		pass(3 * time.Hour)
		counts(t, p.queue, queuetest.Counts{Dead: 2})
		if log := p.log.String(); !strings.Contains(log, "answered 1 of 2 tasks") {
			t.Errorf("log %s", log)
		}
	})
}

// A plain error is tried again, with growing pauses, as often as is allowed.
func TestErrorsAreTriedAgainUntilDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var attempts []int
		var times []time.Time
		p := startPool(t, each(func(_ context.Context, task queue.Task) error {
			attempts, times = append(attempts, task.Attempts), append(times, time.Now())
			return errors.New("not today")
		}), queue.PoolOptions{Poll: time.Minute})
		enqueue(t, p.queue, tasks.NewUpload(1))
		pass(3 * time.Hour)
		if len(attempts) != 25 || attempts[0] != 1 || attempts[24] != 25 {
			t.Fatalf("attempts %v", attempts)
		}
		text := p.log.String()
		if strings.Count(text, `level=WARN msg="task failed, and is tried again" task=1 `) != 24 {
			t.Errorf("the log says of the failures: %s", text)
		}
		if strings.Count(text, `level=ERROR msg="task is dead" task=1 `) != 1 || !strings.Contains(text, "activityd tasks retry 1\"") {
			t.Errorf("the log says of the death: %s", text)
		}
		if first, last := times[1].Sub(times[0]), times[24].Sub(times[23]); first > 2*time.Second || last < 2*time.Minute {
			t.Errorf("the first pause was %v, the last %v", first, last)
		}
		counts(t, p.queue, queuetest.Counts{Dead: 1})
	})
}

// heard is a service that claims errors of a class, but no errors of MySQL.
type heard struct {
	class  error
	errors atomic.Int64
}

func (h *heard) Waits(err error) bool {
	h.errors.Add(1)
	return errors.Is(err, h.class) && !errors.Is(err, mysql.ErrUnavailable)
}

// An outage is not the task's fault, however long it lasts.
func TestOutagesCountNoAttempts(t *testing.T) {
	t.Parallel()
	for name, class := range map[string]error{
		"redis": index.ErrUnavailable, "settings": index.ErrSettings, "database": mysql.ErrUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				end, tries := time.Now().Add(time.Hour), 0
				h := &heard{class: class}
				p := startPool(t, each(func(_ context.Context, task queue.Task) error {
					tries++
					switch {
					case task.Attempts != 1:
						t.Errorf("attempt %d was counted", task.Attempts)
					case time.Now().Before(end):
						return fmt.Errorf("asked: %w", class)
					}
					return nil
				}), queue.PoolOptions{Poll: time.Minute, Away: h.Waits})
				enqueue(t, p.queue, tasks.NewUpload(1))
				pass(50 * time.Minute)
				counts(t, p.queue, queuetest.Counts{Scheduled: 1})
				if s, err := p.queue.Stats(t.Context()); err != nil || s.Queues[0].Due.Round(time.Minute) != 50*time.Minute {
					t.Errorf("postponed for 50 minutes, the statistics say %+v, %v", s.Queues, err)
				}
				pass(time.Until(end) + 35*time.Second) // soon when it is over
				counts(t, p.queue, queuetest.Counts{})
				if tries < 100 || tries > 200 {
					t.Errorf("tried %d times in an hour", tries)
				}
				if n := h.errors.Load(); n != int64(tries-1) {
					t.Errorf("the service heard of %d errors in %d tries", n, tries)
				}
				if name != "database" { // the service logs its own
					if p.log.String() != "" {
						t.Errorf("logged:\n%s", p.log)
					}
					return
				}
				if !strings.Contains(p.log.String(), "asked: "+class.Error()[:10]) {
					t.Error("the log does not say what was away")
				}
				if n := strings.Count(p.log.String(), "tasks wait for the database"); n < 55 || n > 61 {
					t.Errorf("the log says it %d times in an hour, want once a minute", n)
				}
			})
		})
	}
}

// Run refuses to have a queue twice.
func TestWorkersOfAQueueAreNamedOnce(t *testing.T) {
	t.Parallel()
	p := queue.NewPool(queuetest.NewMemory(queue.Options{}, time.Now), nil, queue.PoolOptions{Workers: []queue.Workers{{Count: 1}, {Queue: "Default", Count: 1}}})
	if err := p.Run(t.Context()); !errors.Is(err, queue.ErrInvalid) {
		t.Errorf("err %v", err)
	}
}
