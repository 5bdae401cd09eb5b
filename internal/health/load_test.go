package health_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// gauge is a queue with as much room as a test says.
type gauge struct {
	mu    sync.Mutex
	due   func(ctx context.Context) (map[string]time.Duration, error) // nil: nothing is due
	room  func(ctx context.Context) (room int, stale bool, err error)
	count func(ctx context.Context) error
	looks int
}

func (g *gauge) Due(ctx context.Context, _ ...string) (map[string]time.Duration, error) {
	if g.due == nil {
		return map[string]time.Duration{}, nil
	}
	return g.due(ctx)
}

func (g *gauge) Room(ctx context.Context, _ int) (room int, stale bool, err error) {
	g.mu.Lock()
	g.looks++
	look := g.room
	g.mu.Unlock()
	return look(ctx)
}

func (g *gauge) CountWaiting(ctx context.Context, _ int) error {
	g.mu.Lock()
	count := g.count
	g.mu.Unlock()
	return count(ctx)
}

// become changes what the gauge says from now on.
func (g *gauge) become(room func(ctx context.Context) (room int, stale bool, err error)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.room = room
}

// seen is a look that succeeds.
func seen(room int, stale bool) func(context.Context) (int, bool, error) {
	return func(context.Context) (int, bool, error) { return room, stale, nil }
}

// limited is a queue that says when too many tasks wait.
type limited interface {
	health.Queue
	health.Backlog
}

// watched runs a Load of a queue within a bubble of synctest.
func watched(t *testing.T, q limited, limit int) (l *health.Load, log *logged) {
	t.Helper()
	log = &logged{}
	l = health.NewLoad(q, nil, q, limit, outage.New(log.logger(), "MySQL"), log.logger())
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
	if after, full := l.Overloaded(0); full != want || after < 2*time.Second {
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
	for room, before := range map[int]bool{10: false, 0: true} {
		synctest.Test(t, func(t *testing.T) {
			seeing := seen(room, false)
			g := &gauge{room: seeing}
			b, log := watched(t, g, 10)
			expect(t, b, before, "at first")
			first := log.String()
			g.become(func(context.Context) (int, bool, error) { return 10 - room, true, errors.New("away") })
			pass(10 * time.Second)
			expect(t, b, before, "away")
			g.become(func(ctx context.Context) (int, bool, error) {
				<-ctx.Done()
				return 10 - room, true, ctx.Err()
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
				g := &gauge{room: seen(0, true), count: count}
				b, log := watched(t, g, 10)
				expect(t, b, true, "at first")
				pass(time.Minute)
				expect(t, b, true, "after a minute")
				if said := log.String(); strings.Count(said, "\n") != 2 || !strings.Contains(said, "cannot be counted") {
					t.Errorf("logged:\n%s", said)
				}
				g.become(seen(10, false))
				pass(15 * time.Second)
				expect(t, b, false, "counted")
				if said := log.String(); strings.Count(said, "\n") != 4 || !strings.Contains(said, "can be counted again") {
					t.Errorf("logged:\n%s", said)
				}
			})
		})
	}
}

// While looks fail or hang, from the start or later, no more are enqueued than there was room for.
func TestTheLimitHoldsWhileLooksFail(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(context.Context) (int, bool, error){
		"fail": func(context.Context) (int, bool, error) { return 100, false, errors.New("away") },
		"hang": func(ctx context.Context) (int, bool, error) {
			<-ctx.Done()
			return 100, false, ctx.Err()
		},
	} {
		for _, room := range []int{10, 7} { // 10: no look ever succeeded
			t.Run(fmt.Sprint(name, room), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					g := &gauge{room: away}
					if room < 10 {
						g.room = seen(room, false)
					}
					l, _ := watched(t, g, 10)
					g.become(away)
					enqueued := 0
					for range 60 {
						for _, n := range []int{4, 3, 1} {
							if _, full := l.Overloaded(n); !full {
								enqueued += n
							}
						}
						pass(time.Second)
					}
					if enqueued != room {
						t.Errorf("%d were enqueued, want %d", enqueued, room)
					}
					expect(t, l, true, "nothing is left")
					g.become(seen(2, false))
					pass(5 * time.Second)
					if _, full := l.Overloaded(3); !full {
						t.Error("three are enqueued where there is room for two")
					}
					expect(t, l, false, "looks succeed again")
				})
			})
		}
	}
}

// What is enqueued during a look may be missing in what it saw.
func TestWhatALookMayHaveMissedCounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{room: seen(10, false)}
		l, _ := watched(t, g, 10)
		g.become(func(context.Context) (int, bool, error) {
			<-time.After(time.Second)
			return 10, false, nil
		})
		pass(2500 * time.Millisecond)
		if _, full := l.Overloaded(6); full {
			t.Error("full")
		}
		pass(time.Second)
		if _, full := l.Overloaded(5); !full {
			t.Error("eleven are enqueued")
		}
		pass(2 * time.Second) // the next look saw them: here, that they are done
		if _, full := l.Overloaded(10); full {
			t.Error("full though nothing waits")
		}
	})
}

func TestNoLimitIsNeverLookedAt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := &gauge{room: seen(0, false)}
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
		if due := health.NewLoad(q, nil, q, 0, nil, nil).Behind(); due != nil {
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
					room:  seen(10, true),
					count: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
				}
				l, _ := watched(t, g, 10)
				for range 100 {
					pass(300 * time.Millisecond)
					if due := l.Behind(); due == nil || !maps.Equal(due.ByQueue, want) {
						t.Fatalf("while counts hang: %v", due)
					}
				}
				down.Store(true)
				pass(13 * time.Second)
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
		if due := l.Behind(); due == nil || due.Longest != time.Minute {
			t.Errorf("after 5 s: %v", due)
		}
		down.Store(false)
		pass(20 * time.Second)
		if due := l.Behind(); due == nil || due.Longest != time.Minute {
			t.Errorf("when it is back: %v", due)
		}
	})
}
