package api_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

func TestOverloadTurnsTasksAwayAndNoReads(t *testing.T) {
	var overloaded atomic.Bool
	refused := counting(t, "activityd_enqueues_refused_total")
	b := setup(t, func(c *api.Config) {
		c.Overloaded = func(int) bool { return overloaded.Load() }
	})
	if w := b.post(t, oneUpload); w.Code != http.StatusAccepted {
		t.Fatalf("before: %d %s", w.Code, w.Body)
	}
	overloaded.Store(true)
	unread := &countedBody{}
	w := b.do(t, postTasks(t.Context(), unread))
	wantProblem(t, w, http.StatusTooManyRequests, "too-many-waiting-tasks")
	if after := w.Header().Get("Retry-After"); after != "5" || unread.reads > 0 {
		t.Errorf("Retry-After %q, want 5; the body was read %d times", after, unread.reads)
	}
	wantProblem(t, b.postWith(t, oneUpload, "key"), http.StatusTooManyRequests, "too-many-waiting-tasks")
	if w := b.get(t, "/v1/users/1/recent-contact-photos"); w.Code != http.StatusOK {
		t.Errorf("a read: %d %s", w.Code, w.Body)
	}
	refused("while overloaded", metricstest.Samples{"activityd_enqueues_refused_total": 2})
	overloaded.Store(false)
	if w := b.post(t, oneUpload); w.Code != http.StatusAccepted || len(b.enqueuer.calls()) != 2 {
		t.Errorf("after: %d %s, enqueued %d times", w.Code, w.Body, len(b.enqueuer.calls()))
	}
	refused("after", metricstest.Samples{})
}

// A batch that is larger than the room that is left is refused, and a smaller batch is not.
func TestABatchThatIsTooLargeIsTurnedAway(t *testing.T) {
	t.Parallel()
	const room = 1
	b := setup(t, func(c *api.Config) {
		c.Overloaded = func(n int) bool { return n > room }
	})
	const twoUploads = `{"tasks":[{"type":"upload","user_id":"1"},{"type":"upload","user_id":"2"}]}`
	wantProblem(t, b.post(t, twoUploads), http.StatusTooManyRequests, "too-many-waiting-tasks")
	if w := b.post(t, oneUpload); w.Code != http.StatusAccepted || len(b.enqueuer.calls()) != 1 {
		t.Errorf("%d %s, enqueued %d times", w.Code, w.Body, len(b.enqueuer.calls()))
	}
}

// countedBody counts how often it is read.
type countedBody struct{ reads int }

func (c *countedBody) Read(p []byte) (int, error) {
	c.reads++
	return copy(p, oneUpload), nil
}
