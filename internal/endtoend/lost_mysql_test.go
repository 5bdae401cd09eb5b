package endtoend_test

import (
	"context"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

// TestKilledMySQL: kill -9 first with tasks waiting, which all survive, and then with two processes in the
// middle of their work.
func TestKilledMySQL(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	server := servertest.OwnMySQL(t)
	g := groundOn(t, needFor(seed), server.DSN(servertest.Database), servertest.Redis(t))
	tn := newTown(t, g, seed, 300)
	tn.warm(t, tn.viewers())

	tn.live(t, 20)
	before := tn.taskIDs(t)
	killAndRestart(t, server)
	if after := tn.taskIDs(t); len(before) < 20 || !slices.Equal(before, after) {
		t.Fatalf("%d committed tasks, after the crash there are %d", len(before), len(after))
	}

	worked := newCounter(20)
	a := tn.process(t, "a", faults{handlers: worked.wrap})
	a.start(t)
	b := tn.started(t, "b")
	audience := tn.watch(t, seed, a, b)
	alive := tn.living(t, 40)
	<-worked.reached
	killAndRestart(t, server)
	must(t, alive())
	audience.stop()
	tn.awaitIdle(t)
	tn.check(t, a.reader)
	tn.check(t, b.reader)
	t.Logf("%d of %d reads failed meanwhile", audience.outages.Load(), audience.reads.Load())
}

func killAndRestart(t *testing.T, server *localserver.MySQL) {
	t.Helper()
	must(t, server.Kill())
	must(t, server.Restart(t.Context()))
}

func (g *ground) taskIDs(t *testing.T) (ids []uint64) {
	t.Helper()
	rows, err := g.db.QueryContext(t.Context(), "SELECT id FROM tasks ORDER BY id")
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id uint64
		must(t, rows.Scan(&id))
		ids = append(ids, id)
	}
	must(t, rows.Err())
	return ids
}

// counter counts the tasks that the handlers of a process are given.
type counter struct {
	limit   int64
	total   atomic.Int64
	reached chan struct{} // closed when the total reaches the limit
}

func newCounter(limit int64) *counter {
	return &counter{limit: limit, reached: make(chan struct{})}
}

// wrap counts before each handler. Types that share a handler still do.
func (c *counter) wrap(handlers map[string]queue.Handler) map[string]queue.Handler {
	wrapped, counted := map[queue.Handler]queue.Handler{}, map[string]queue.Handler{}
	for kind, h := range handlers {
		if !reflect.ValueOf(h).Comparable() {
			counted[kind] = &countedHandler{h, c}
			continue
		}
		if wrapped[h] == nil {
			wrapped[h] = &countedHandler{h, c}
		}
		counted[kind] = wrapped[h]
	}
	return counted
}

type countedHandler struct {
	queue.Handler
	counter *counter
}

func (h *countedHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	for range batch {
		if h.counter.total.Add(1) == h.counter.limit {
			close(h.counter.reached)
		}
	}
	return h.Handler.Handle(ctx, batch)
}
