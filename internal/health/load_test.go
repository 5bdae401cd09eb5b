package health_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/tasks"
)

// gauge is a queue that is as full as a test says.
type gauge struct {
	mu    sync.Mutex
	due   func(ctx context.Context) (map[string]time.Duration, error) // nil: nothing is due
	full  func(ctx context.Context, limit int) (full, stale bool, err error)
	count func(ctx context.Context) error
	looks int
}

func (g *gauge) Due(ctx context.Context) (map[string]time.Duration, error) {
	if g.due == nil {
		return map[string]time.Duration{}, nil
	}
	return g.due(ctx)
}

func (g *gauge) Full(ctx context.Context, limit int) (full, stale bool, err error) {
	g.mu.Lock()
	g.looks++
	look := g.full
	g.mu.Unlock()
	return look(ctx, limit)
}

func (g *gauge) CountWaiting(ctx context.Context, _ int) error {
	g.mu.Lock()
	count := g.count
	g.mu.Unlock()
	return count(ctx)
}

// become changes what the gauge says from now on.
func (g *gauge) become(full func(ctx context.Context, limit int) (full, stale bool, err error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.full = full
}

// watched runs a Load of a queue within a bubble of synctest.
func watched(t *testing.T, q health.Queue, limit int) (l *health.Load, log *logged) {
	t.Helper()
	log = &logged{}
	l = health.NewLoad(q, limit, outage.New(log.logger(), "MySQL"), log.logger())
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
	if after, full := l.Overloaded(); full != want || after < 2*time.Second {
		t.Errorf("%s: full %t, want %t; retry after %v", when, full, want, after)
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
		pass(2 * time.Second)
		expect(t, b, false, "two wait")
		enqueue(tasks.NewUpload(3))
		expect(t, b, false, "before it looks again")
		pass(2 * time.Second)
		expect(t, b, true, "three wait")
		if _, err := q.Claim(t.Context(), queue.DefaultQueue, 1, time.Minute); err != nil {
			t.Fatal(err)
		}
		pass(2 * time.Second)
		expect(t, b, false, "one of them was started")
		if said := log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "refuses tasks") || !strings.Contains(said, "again") {
			t.Errorf("logged:\n%s", said)
		}
	})
}

// A look that fails or hangs leaves the answer of before, and one line in the log.
func TestTheAnswerIsKeptWhileLooksFail(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			seeing := func(context.Context, int) (full, stale bool, err error) { return before, false, nil }
			g := &gauge{full: seeing}
			b, log := watched(t, g, 10)
			expect(t, b, before, "at first")
			first := log.String()
			g.become(func(context.Context, int) (full, stale bool, err error) { return !before, true, errors.New("away") })
			pass(10 * time.Second)
			expect(t, b, before, "away")
			g.become(func(ctx context.Context, _ int) (full, stale bool, err error) {
				<-ctx.Done()
				return !before, true, ctx.Err()
			})
			pass(10 * time.Second)
			expect(t, b, before, "hanging")
			if said := strings.TrimPrefix(log.String(), first); strings.Count(said, "\n") != 1 || !strings.Contains(said, "cannot be counted") {
				t.Errorf("logged:\n%s", said)
			}
			g.become(seeing)
			pass(4 * time.Second)
			expect(t, b, before, "back")
			if said := strings.TrimPrefix(log.String(), first); strings.Count(said, "\n") != 2 || !strings.Contains(said, "can be counted again") {
				t.Errorf("logged:\n%s", said)
			}
		})
	}
}

// While counts fail or hang, what the looks say holds: here, that so many may wait.
func TestTheLimitIsReachedWhileCountsFail(t *testing.T) {
	t.Parallel()
	for name, count := range map[string]func(ctx context.Context) error{
		"fail": func(context.Context) error { return errors.New("no") },
		"hang": func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				answer := func(full bool) func(context.Context, int) (bool, bool, error) {
					return func(context.Context, int) (bool, bool, error) { return full, full, nil }
				}
				g := &gauge{full: answer(true), count: count}
				b, log := watched(t, g, 10)
				expect(t, b, true, "at first")
				pass(time.Minute)
				expect(t, b, true, "after a minute")
				if said := log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "cannot be counted") {
					t.Errorf("logged:\n%s", said)
				}
				g.become(answer(false))
				pass(15 * time.Second)
				expect(t, b, false, "counted")
				if said := log.String(); strings.Count(said, "\n") != 4 || !strings.Contains(said, "can be counted again") {
					t.Errorf("logged:\n%s", said)
				}
			})
		})
	}
}

func TestNoLimitIsNeverLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{full: func(context.Context, int) (full, stale bool, err error) { return true, false, nil }}
		b, _ := watched(t, g, 0)
		pass(time.Minute)
		expect(t, b, false, "after a minute")
		if g.looks != 0 {
			t.Errorf("looked %d times", g.looks)
		}
	})
}

// How far behind the queue is follows from its oldest task.
func TestDueIsSinceTheOldestTask(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
		if due := health.NewLoad(q, 0, nil, nil).Due(); due != nil {
			t.Errorf("before it looked: %v", due)
		}
		l, _ := watched(t, q, 0)
		if due := l.Due(); due == nil || due[queue.DefaultQueue] != 0 {
			t.Errorf("of an empty queue: %v", due)
		}
		queuetest.Enqueue(t, q, tasks.NewUpload(1))
		pass(12 * time.Second)
		if due := l.Due(); due[queue.DefaultQueue] < 10*time.Second || due[tasks.QueueFanOut] != 0 {
			t.Errorf("after 12 s: %v", due)
		}
	})
}

// A database that fails, or only hangs, leaves what was seen for some seconds, and then
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
				g := &gauge{
					due: func(ctx context.Context) (map[string]time.Duration, error) {
						if down.Load() {
							return nil, away(ctx)
						}
						return want, nil
					},
					full:  func(context.Context, int) (full, stale bool, err error) { return false, true, nil },
					count: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
				}
				l, _ := watched(t, g, 10)
				for range 100 {
					pass(300 * time.Millisecond)
					if due := l.Due(); !maps.Equal(due, want) {
						t.Fatalf("while counts hang: %v", due)
					}
				}
				down.Store(true)
				pass(13 * time.Second)
				if due := l.Due(); due != nil {
					t.Errorf("after 13 s: %v", due)
				}
				down.Store(false)
				pass(14 * time.Second)
				if due := l.Due(); !maps.Equal(due, want) {
					t.Errorf("when it is back: %v", due)
				}
			})
		})
	}
}

// What is seen stays for some seconds.
func TestDueIsKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		l, _ := watched(t, &gauge{due: func(context.Context) (map[string]time.Duration, error) {
			if down.Load() {
				return nil, errors.New("away")
			}
			return map[string]time.Duration{"default": time.Minute}, nil
		}}, 0)
		down.Store(true)
		pass(5 * time.Second)
		if due := l.Due(); due["default"] != time.Minute {
			t.Errorf("after 5 s: %v", due)
		}
		down.Store(false)
		pass(20 * time.Second)
		if due := l.Due(); due["default"] != time.Minute {
			t.Errorf("when it is back: %v", due)
		}
	})
}
