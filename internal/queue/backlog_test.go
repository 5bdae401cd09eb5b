package queue_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/tasks"
)

// gauge is a queue that is as full as a test says.
type gauge struct {
	mu    sync.Mutex
	full  func(ctx context.Context, limit int) (full, stale bool, err error)
	count func(ctx context.Context) error
	looks int
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

// watched runs a Backlog of the gauge within a bubble of synctest.
func watched(t *testing.T, g *gauge, limit int) (b *queue.Backlog, log *logged) {
	t.Helper()
	log = &logged{}
	b = queue.NewBacklog(g, limit, slog.New(slog.NewTextHandler(log, nil)))
	go func() {
		if err := b.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	return b, log
}

// expect waits until all is quiet and compares the answer.
func expect(t *testing.T, b *queue.Backlog, want bool, when string) {
	t.Helper()
	synctest.Wait()
	if after, full := b.Overloaded(); full != want || after < 2*time.Second {
		t.Errorf("%s: full %t, want %t; retry after %v", when, full, want, after)
	}
}

// A real queue: the limit counts waiting tasks, whatever becomes of them.
func TestBacklogFollowsTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := queuetest.NewMemory(queue.Options{}, time.Now)
		g := &gauge{full: q.Full}
		b, log := watched(t, g, 3)
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
func TestBacklogKeepsItsAnswerWhileItCannotSee(t *testing.T) {
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
func TestBacklogIsFullWhileCountsFail(t *testing.T) {
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

func TestBacklogWithoutALimitNeverLooks(t *testing.T) {
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
