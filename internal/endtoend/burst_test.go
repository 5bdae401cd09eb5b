package endtoend_test

import (
	"context"
	"strconv"
	"sync"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/queue"
)

// TestBurstOfUploads: the celebrity uploads twenty times while the followers
// are still being told of the first. The burst is absorbed: what was uploaded
// while one fan-out ran is told by the next, and everybody has the newest in the
// end.
func TestBurstOfUploads(t *testing.T) {
	t.Parallel()
	const uploads, fans, newest = 20, 2000, start + 1000
	seed := seedFor(t)
	tn := newTown(t, newGround(t, 10), seed, fans)
	tn.warm(t, tn.viewers())
	worked, gate := newCounter(1), newGate()
	for _, name := range []string{"a", "b"} {
		tn.process(t, name, faults{handlers: func(h map[string]queue.Handler) map[string]queue.Handler {
			return worked.wrap(gate.wrap(h))
		}}).start(t)
	}
	tn.celebrate(t, newest-uploads)
	<-gate.reached
	for i := range uint64(uploads - 1) {
		tn.celebrate(t, newest-i) // the last is not the newest
	}
	eventually(t, "the others wait for the first", func() bool { return worked.uploads.Load() >= uploads })
	close(gate.open)
	tn.awaitIdle(t)

	chain := int64(fans / partSize)
	t.Logf("%d uploads: upload tasks were handled %d times and parts of fan-outs %d times; one fan-out has %d parts",
		uploads, worked.uploads.Load(), worked.fanOuts.Load(), chain)
	// One that runs, one that waits, and one because two processes may begin at
	// the same time.
	if parts := worked.fanOuts.Load(); parts < chain || parts > 3*chain+3 {
		t.Errorf("%d parts were handled, want those of one to three fan-outs of %d", parts, chain)
	}
	tn.checkSets(t)
	for user, set := range tn.sets(t) {
		if id, _ := strconv.Atoi(user); id < int(firstFan) {
			continue
		}
		if top := set[len(set)-1]; top.Member != celebrity.String() || top.Score != newest {
			t.Fatalf("the newest in the set of fan %s is %v, want %s with %d", user, top, celebrity, newest)
		}
	}
}

// celebrate uploads a photo of the celebrity.
func (tn *town) celebrate(t *testing.T, date uint64) {
	t.Helper()
	_, err := tn.site.Upload(t.Context(), site.Photo{Owner: celebrity, Visibility: contacts.Public, DateUpload: date})
	must(t, err)
}

// gate holds the parts of fan-outs back until it is opened.
type gate struct {
	once    sync.Once
	reached chan struct{} // closed by the first part that is held back
	open    chan struct{} // to be closed by the test
}

func newGate() *gate { return &gate{reached: make(chan struct{}), open: make(chan struct{})} }

func (g *gate) wrap(handlers map[string]queue.Handler) map[string]queue.Handler {
	handlers[tasks.FanOut] = &gatedHandler{handlers[tasks.FanOut], g}
	return handlers
}

type gatedHandler struct {
	queue.Handler
	gate *gate
}

func (h *gatedHandler) Handle(ctx context.Context, batch []queue.Task) []queue.Outcome {
	h.gate.once.Do(func() { close(h.gate.reached) })
	select {
	case <-h.gate.open:
	case <-ctx.Done():
	}
	return h.Handler.Handle(ctx, batch)
}
