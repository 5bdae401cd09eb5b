package tasks_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// noting is a queue that remembers what comes in, in batches, and can fail or
// block.
type noting struct {
	tasks.Enqueuer
	batches [][]string
	err     error
	blocked chan struct{} // not nil: wait until it is closed, or for ctx
}

func (n *noting) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	var keys []string
	for _, t := range batch {
		keys = append(keys, t.Kind+" "+t.DedupeKey)
	}
	slices.Sort(keys)
	n.batches = append(n.batches, keys)
	if n.blocked != nil {
		select {
		case <-n.blocked:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return make([]uint64, len(batch)), n.err
}

// hinting runs hints over q until the test is over.
func hinting(t *testing.T, q tasks.Enqueuer, log *slog.Logger) *tasks.Hints {
	t.Helper()
	h := tasks.NewHints(q, log)
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(context.Background())
	go func() { ended <- h.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return h
}

// pass lets time pass within a synctest bubble, and then all goroutines come to
// rest.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // the time of the bubble, which costs none
	synctest.Wait()
}

func TestHintsGatherWithoutDuplicates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var q noting
		h := hinting(t, &q, quiet())
		for range 3 {
			h.Refill(7)
			h.LookAgain(7, 8)
		}
		pass(time.Second)
		h.Refill(7) // a later hint counts again
		pass(time.Second)
		want := [][]string{{"refill refill:7", "remove_contact pair:7:8"}, {"refill refill:7"}}
		if !slices.EqualFunc(q.batches, want, slices.Equal) {
			t.Errorf("enqueued %q, want %q", q.batches, want)
		}
	})
}

// A queue that hangs costs the readers nothing: the surplus is dropped.
func TestHintsNeverBlock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := noting{blocked: make(chan struct{})}
		h := hinting(t, &q, quiet())
		h.Refill(1)
		pass(time.Second) // it hangs in the first Enqueue now
		for i := range 5000 {
			h.Refill(member.ID(i + 2))
		}
		close(q.blocked)
		pass(time.Second)
		kept := 0
		for _, batch := range q.batches[1:] {
			kept += len(batch)
		}
		if kept != 1024 {
			t.Errorf("%d hints were kept, want as many as fit", kept)
		}
		h.Refill(9999)
		pass(time.Second)
		if last := q.batches[len(q.batches)-1]; !slices.Equal(last, []string{"refill refill:9999"}) {
			t.Errorf("the last batch is %q", last)
		}
	})
}

func TestHintsSurviveAFailingQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		q := noting{err: errors.New("the queue is away")}
		h := hinting(t, &q, slog.New(slog.NewTextHandler(&out, nil)))
		h.Refill(1)
		pass(time.Second)
		if log := out.String(); !strings.Contains(log, "dropped") || !strings.Contains(log, "the queue is away") {
			t.Errorf("log %q", log)
		}
		q.err = nil
		h.Refill(2)
		pass(time.Second)
		if got := fmt.Sprint(q.batches); got != "[[refill refill:1] [refill refill:2]]" {
			t.Errorf("enqueued %s", got)
		}
	})
}

// The end of the context ends Run also in a queue that hangs, and is nothing to complain of.
func TestHintsStop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		t.Cleanup(func() { // after the cleanup of hinting
			if out.Len() > 0 {
				t.Errorf("log %q", out.String())
			}
		})
		h := hinting(t, &noting{blocked: make(chan struct{})}, slog.New(slog.NewTextHandler(&out, nil)))
		h.Refill(1)
		pass(time.Second)
	})
}
