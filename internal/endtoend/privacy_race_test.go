package endtoend_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/recent"
)

// TestPrivacyUnderWay: readers race with changes of privacy and with the tasks of the changes. A read that
// starts after the commit of the hiding change has returned never shows the photo, not even by sharing an
// earlier walk of another reader.
func TestPrivacyUnderWay(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"made private", "contact removed", "blocked", "family no more", "photo deleted",
		"made private, by a broadcast member", "blocked, by a broadcast member", "photo deleted, by a broadcast member",
	} {
		h := allHidings()[name]
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGround(t, 4)
			h.setUp(t, g)
			g.started(t, "worker")
			race := &race{}
			stop := race.read(t, g.readersBySource(t))
			race.run(t, g, h)
			stop()
			g.awaitIdle(t)
		})
	}
}

// race is the state that the readers share with the hider.
type race struct {
	phase  atomic.Int64 // odd: the photo is hidden, and stays so at least until the next phase
	shown  atomic.Int64 // reads that showed the photo, as they may
	hidden atomic.Int64 // reads within an odd phase that did not show it
}

// run hides the pearl and shows it again, a few times, and lets the readers read
// in between.
func (r *race) run(t *testing.T, g *ground, h hiding) {
	t.Helper()
	for range 4 {
		r.awaitReads(t, &r.shown)
		must(t, h.hide(t.Context(), g.site))
		r.phase.Add(1)
		r.awaitReads(t, &r.hidden)
		r.phase.Add(1)
		must(t, h.show(t.Context(), g.site))
	}
}

// awaitReads waits for a few more reads of a kind.
func (r *race) awaitReads(t *testing.T, kind *atomic.Int64) {
	t.Helper()
	enough := kind.Load() + 8
	eventually(t, "the readers go on", func() bool { return kind.Load() >= enough || t.Failed() })
}

// read lets a few goroutines read from each source until they are stopped. They
// hesitate before each read, or all would share each walk from its beginning.
func (r *race) read(t *testing.T, readers map[recent.Source]*recent.Reader) (stop func()) {
	t.Helper()
	var stopped atomic.Bool
	var reading sync.WaitGroup
	for _, reader := range readers {
		for range 4 {
			reading.Go(func() {
				for !stopped.Load() && t.Context().Err() == nil {
					hesitate(t.Context())
					r.readOnce(t, reader)
				}
			})
		}
	}
	stop = func() {
		stopped.Store(true)
		reading.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func (r *race) readOnce(t *testing.T, reader *recent.Reader) {
	t.Helper()
	before := r.phase.Load()
	answer, err := reader.Read(t.Context(), contacts.Viewer{ID: viewer}, 10)
	after := r.phase.Load()
	wasHidden := before == after && before%2 == 1
	switch {
	case t.Context().Err() != nil:
	case err != nil:
		t.Errorf("a read failed: %v", err)
	case showsPearl(answer) && wasHidden:
		t.Errorf("a read from %s, begun after the photo was hidden, shows it: %+v", answer.Source, answer.Trace)
	case showsPearl(answer):
		r.shown.Add(1)
	case wasHidden:
		r.hidden.Add(1)
	}
}

// hesitate waits up to 30 ms, or until ctx ends.
func hesitate(ctx context.Context) {
	timer := time.NewTimer(rand.N(30 * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
