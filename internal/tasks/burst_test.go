package tasks_test

import (
	"errors"
	"testing"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// uploadsOf returns claimed upload tasks of member 1, as a site's plain SQL makes
// them: none absorbs another.
func uploadsOf(b *bench, n int) []queue.Task {
	b.Helper()
	var held []queue.Task
	for range n {
		enqueue(b.T, b.queue, tasks.NewUpload(1))
		held = append(held, claim(b.T, b.queue, 1)...)
	}
	return held
}

func TestAnUploadThatBeginsAbsorbsThoseThatWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.contact(viewer, 1, 100)
	b.refill(viewer)
	first := uploadsOf(b, 1)
	b.upload(1, 200)
	enqueue(t, b.queue, tasks.NewUpload(1), tasks.NewUpload(2))
	b.must(errors.Join(queuetest.Errors(b.uploads.Handle(t.Context(), first))...))
	counts(t, b.queue, queuetest.Counts{Running: 1, Waiting: 1}) // the upload of 2 waits
	b.holds(viewer, index.Entry{Contact: 1, Score: 200})         // and the work of both uploads of 1 is done
}

// Were it to die, the absorbed would die with it.
func TestALastAttemptAbsorbsNothing(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.contact(viewer, 1, 100)
	b.refill(viewer)
	held := uploadsOf(b, 1)
	held[0].Attempts = held[0].MaxAttempts
	enqueue(t, b.queue, tasks.NewUpload(1))
	b.must(errors.Join(queuetest.Errors(b.uploads.Handle(t.Context(), held))...))
	counts(t, b.queue, queuetest.Counts{Running: 1, Waiting: 1})
}

func TestOneUploadWaitsForAllOfItsBatch(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.contact(viewer, 1, 100)
	held := uploadsOf(b, 5)
	enqueue(t, b.queue, tasks.NewFanOut(1, 50))
	postponed := 0
	for _, err := range queuetest.Errors(b.uploads.Handle(t.Context(), held)) {
		if err != nil {
			postponed++
			if kind := outcome(t, err); kind != "postponed" {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
	if postponed != 1 {
		t.Errorf("%d of 5 uploads wait for the fan-out under way, want 1 for all", postponed)
	}
}
