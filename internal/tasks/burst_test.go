package tasks_test

import (
	"errors"
	"testing"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// claimedUpload returns a claimed upload task of member 1.
func claimedUpload(b *bench) []queue.Task {
	b.Helper()
	enqueue(b.T, b.queue, tasks.NewUpload(1))
	return claim(b.T, b.queue, 1)
}

func TestAnUploadThatBeginsAbsorbsThoseThatWait(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.contact(viewer, 1, 100)
	b.refill(viewer)
	first := claimedUpload(b)
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
	held := claimedUpload(b)
	held[0].Attempts = held[0].MaxAttempts
	enqueue(t, b.queue, tasks.NewUpload(1))
	b.must(errors.Join(queuetest.Errors(b.uploads.Handle(t.Context(), held))...))
	counts(t, b.queue, queuetest.Counts{Running: 1, Waiting: 1})
}
