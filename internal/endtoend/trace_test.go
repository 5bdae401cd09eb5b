package endtoend_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/recent"
)

// TestRandomChanges: two processes work and read while the town changes; when
// all tasks are done, the sets keep the invariants and the answers are right.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, newGround(t, needFor(seed)), seed, 3000)
	a, b := tn.startedHesitant(t, "a"), tn.startedHesitant(t, "b")
	audience := tn.watch(t, seed, a, b, a)
	tn.live(t, 150)
	audience.stop()
	tn.awaitIdle(t)
	from := tn.check(t, a.reader)
	tn.check(t, b.reader)
	if audience.reads.Load() == 0 || audience.outages.Load() > 0 || from[recent.FromIndex] == 0 {
		t.Errorf("%d reads, %d of them failed, answers from %v", audience.reads.Load(), audience.outages.Load(), from)
	}
	t.Logf("%d reads meanwhile, at rest from %v", audience.reads.Load(), from)
}

// TestEventsShuffledAndDoubled: the sets exist, the changes happen while nobody
// works, and then every event arrives twice, in random order.
func TestEventsShuffledAndDoubled(t *testing.T) {
	t.Parallel()
	seed := seedFor(t)
	tn := newTown(t, newGround(t, needFor(seed)), seed, 400)
	tn.warm(t, tn.viewers())
	tn.live(t, 60)
	trace := tn.trace(t)
	a, b := tn.startedHesitant(t, "a"), tn.startedHesitant(t, "b")
	for range 2 {
		tn.replay(t, slices.Concat(trace, trace))
		tn.awaitIdle(t)
		tn.check(t, a.reader)
		tn.check(t, b.reader)
	}
}

// event is a task as the site wrote it.
type event struct{ kind, subject, args string }

// trace takes the tasks out of the queue.
func (tn *town) trace(t *testing.T) (events []event) {
	t.Helper()
	rows, err := tn.db.QueryContext(t.Context(), "SELECT type, subject, args FROM tasks ORDER BY id")
	must(t, err)
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var e event
		must(t, rows.Scan(&e.kind, &e.subject, &e.args))
		events = append(events, e)
	}
	must(t, rows.Err())
	if len(events) < 100 {
		t.Fatalf("the trace has %d events only", len(events))
	}
	tn.exec(t, "DELETE FROM tasks")
	return events
}

// replay puts events into the queue, in random order and in several
// transactions, so that the workers are at it before the last is there.
func (tn *town) replay(t *testing.T, events []event) {
	t.Helper()
	order := tn.rnd.Perm(len(events))
	for len(order) > 0 {
		some := order[:min(40, len(order))]
		order = order[len(some):]
		var args []any
		for _, i := range some {
			args = append(args, events[i].kind, events[i].subject, events[i].args)
		}
		tn.exec(t, fmt.Sprint("INSERT INTO tasks (type, subject, args) VALUES (?,?,?)", strings.Repeat(",(?,?,?)", len(some)-1)), args...)
	}
}
