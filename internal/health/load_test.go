package health_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// gauge is a queue whose waiting tasks a test sets.
type gauge struct {
	due   func(ctx context.Context) (map[string]time.Duration, error) // nil: nothing is due
	waits atomic.Pointer[func(ctx context.Context) (n int, err error)]
}

func newGauge(waits func(ctx context.Context) (int, error)) *gauge {
	g := &gauge{}
	g.waits.Store(&waits)
	return g
}

func (g *gauge) Due(ctx context.Context, _ ...string) (map[string]time.Duration, error) {
	if g.due == nil {
		return map[string]time.Duration{}, nil
	}
	return g.due(ctx)
}

func (g *gauge) CountWaiting(ctx context.Context, _ int) (int, error) { return (*g.waits.Load())(ctx) }

func (g *gauge) become(waits func(ctx context.Context) (int, error)) { g.waits.Store(&waits) }

// counted is a count that succeeds.
func counted(n int) func(context.Context) (int, error) {
	return func(context.Context) (int, error) { return n, nil }
}

// watched runs a Load of a queue within a bubble of synctest.
func watched(t *testing.T, q health.Queue, limit int) (l *health.Load, log *logtest.Log) {
	t.Helper()
	log = &logtest.Log{}
	l = health.NewLoad(q, nil, limit, outage.New(log.Logger(), "MySQL"), log.Logger())
	go func() {
		if err := l.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return l, log
}

// expect waits until all is quiet and compares the answer.
func expect(t *testing.T, l *health.Load, want bool, when string) {
	t.Helper()
	synctest.Wait()
	if full := l.Overloaded(0); full != want {
		t.Errorf("%s: full %t, want %t", when, full, want)
	}
}

// A real queue: the limit counts waiting tasks, whatever becomes of them.
func TestTheLimitFollowsTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
		b, log := watched(t, q, 3)
		expect(t, b, false, "empty")
		enqueue := func(batch ...queue.New) {
			if _, err := q.Enqueue(t.Context(), batch); err != nil {
				t.Fatal(err)
			}
		}
		enqueue(tasks.NewUpload(1), tasks.NewUpload(2))
		pass(20 * time.Second)
		expect(t, b, false, "two wait")
		enqueue(tasks.NewUpload(3))
		expect(t, b, false, "before it looks again")
		pass(20 * time.Second)
		expect(t, b, true, "three wait")
		if _, err := q.Claim(t.Context(), queue.DefaultQueue, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		pass(20 * time.Second)
		expect(t, b, false, "one of them was started")
		if said := log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "refuses tasks") || !strings.Contains(said, "again") {
			t.Errorf("logged:\n%s", said)
		}
	})
}

// A count that fails or hangs leaves the answer of before, and one line in the log.
func TestTheAnswerIsKeptWhileCountsFail(t *testing.T) {
	t.Parallel()
	for n, before := range map[int]bool{0: false, 10: true} {
		synctest.Test(t, func(t *testing.T) {
			g := newGauge(counted(n))
			b, log := watched(t, g, 10)
			expect(t, b, before, "at first")
			first := log.String()
			for when, away := range map[string]func(context.Context) (int, error){
				"failing": func(context.Context) (int, error) { return 10 - n, errors.New("away") },
				"hanging": func(ctx context.Context) (int, error) { <-ctx.Done(); return 10 - n, ctx.Err() },
			} {
				g.become(away)
				pass(30 * time.Second)
				expect(t, b, before, when)
			}
			if said := strings.TrimPrefix(log.String(), first); strings.Count(said, "\n") != 1 || !strings.Contains(said, "cannot be counted") {
				t.Errorf("logged:\n%s", said)
			}
			g.become(counted(n))
			pass(time.Minute)
			expect(t, b, before, "back")
			if said := strings.TrimPrefix(log.String(), first); strings.Count(said, "\n") != 2 || !strings.Contains(said, "can be counted again") {
				t.Errorf("logged:\n%s", said)
			}
		})
	}
}

// While counts fail or hang, from the start or later, no more tasks come than there was room for, however many
// requests bring them at once.
func TestTheLimitHoldsWhileCountsFail(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(context.Context) (int, error){
		"fail": func(context.Context) (int, error) { return 0, errors.New("away") },
		"hang": func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() },
	} {
		for _, room := range []int{10, 7} { // 10: no count ever succeeded
			t.Run(fmt.Sprint(name, room), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := newGauge(away)
					if room < 10 {
						g.become(counted(10 - room))
					}
					l, _ := watched(t, g, 10)
					g.become(away)
					var enqueued atomic.Int64
					for range 60 {
						for _, n := range []int{4, 3, 1} {
							go func() {
								if !l.Overloaded(n) {
									enqueued.Add(int64(n))
								}
							}()
						}
						pass(time.Second)
					}
					if n := enqueued.Load(); n != int64(room) {
						t.Errorf("%d were enqueued, want %d", n, room)
					}
					expect(t, l, true, "nothing is left")
					g.become(counted(8))
					pass(30 * time.Second)
					if !l.Overloaded(3) {
						t.Error("three are enqueued where there is room for two")
					}
					expect(t, l, false, "counts succeed again")
				})
			})
		}
	}
}

func TestNoLimitIsNeverCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b, _ := watched(t, newGauge(func(context.Context) (int, error) { t.Error("counted"); return 0, nil }), 0)
		pass(time.Minute)
		expect(t, b, false, "after a minute")
	})
}

// How far behind the queue is follows from its oldest task.
func TestDueIsSinceTheOldestTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
		if due := health.NewLoad(q, nil, 0, outage.New(slog.New(slog.DiscardHandler), "MySQL"), slog.New(slog.DiscardHandler)).Behind(); due != nil {
			t.Errorf("before it looked: %v", due)
		}
		l, _ := watched(t, q, 0)
		if due := l.Behind(); due == nil || due.Longest != 0 {
			t.Errorf("of an empty queue: %v", due)
		}
		queuetest.Enqueue(t, q, tasks.NewUpload(1))
		pass(12 * time.Second)
		if due := l.Behind(); due.ByQueue[queue.DefaultQueue] < 10*time.Second || due.ByQueue[tasks.QueueFanOut] != 0 || due.Longest != due.ByQueue[queue.DefaultQueue] {
			t.Errorf("after 12 s: %v", due)
		}
	})
}

// A database that fails, or only hangs, leaves the last look for some seconds, and then
// nothing: no answer says that it is up to date because the queue could not be asked. A count that
// hangs takes nothing away.
func TestDueIsForgotten(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(context.Context) error{
		"fails": func(context.Context) error { return errors.New("away") },
		"hangs": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				want := map[string]time.Duration{"default": time.Minute}
				var down atomic.Bool
				g := newGauge(func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
				g.due = func(ctx context.Context) (map[string]time.Duration, error) {
					if down.Load() {
						return nil, away(ctx)
					}
					return want, nil
				}
				l, _ := watched(t, g, 10)
				for range 100 {
					pass(300 * time.Millisecond)
					if due := l.Behind(); due == nil || !maps.Equal(due.ByQueue, want) {
						t.Fatalf("while counts hang: %v", due)
					}
				}
				down.Store(true)
				pass(5 * time.Second)
				if due := l.Behind(); due == nil || due.Longest != time.Minute {
					t.Errorf("after 5 s: %v", due)
				}
				pass(8 * time.Second)
				if due := l.Behind(); due != nil {
					t.Errorf("after 13 s: %v", due)
				}
				down.Store(false)
				pass(14 * time.Second)
				if due := l.Behind(); due == nil || !maps.Equal(due.ByQueue, want) {
					t.Errorf("when it is back: %v", due)
				}
			})
		})
	}
}
