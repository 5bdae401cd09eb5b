package bulk_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/bulk"
)

// Where one batch more gets no more done, it is not let in, although all servers answer as usual. When it would, it is in a
// while.
func TestNoMoreBatchesThanGetMoreDone(t *testing.T) {
	t.Parallel()
	const parallel = 6
	paced(t, bulk.PacerOptions{Parallel: parallel}, func(t *testing.T, p *bulk.Pacer, _, _ *fake) {
		t.Helper()
		var capacity, inside atomic.Int64 // capacity: of batches at once that get more done
		capacity.Store(2)
		ctx, stop := context.WithCancel(t.Context())
		var working sync.WaitGroup
		for range parallel {
			working.Go(func() {
				for {
					leave, err := p.Enter(ctx, 100)
					if err != nil {
						return
					}
					n := inside.Add(1)
					pass(40 * time.Millisecond * time.Duration(max(n, capacity.Load())) / time.Duration(capacity.Load()))
					inside.Add(-1)
					leave()
				}
			})
		}
		pass(20 * round)
		tooMany := 0
		for range 600 {
			pass(round)
			if n := p.Pace().Batches; n == 3 {
				tooMany++
			} else if n != 2 {
				t.Fatalf("%d batches at once, where two do all that can be done", n)
			}
		}
		if s := p.Pace(); !s.Enough || !strings.Contains(s.String(), "batches at once: 2, as more would get no more done") {
			t.Errorf("said %q", s)
		}
		if tooMany == 0 || tooMany > 40 {
			t.Errorf("three batches at once for %d of 600 s, to see whether they do more", tooMany)
		}
		capacity.Store(parallel)
		pass(240 * round)
		if n := p.Pace().Batches; n != parallel {
			t.Errorf("%d batches at once when %d do more, of which none did for long", n, parallel)
		}
		capacity.Store(1)
		pass(60 * round)
		if n := p.Pace().Batches; n > 2 {
			t.Errorf("%d batches at once, where one does all that can be done", n)
		}
		stop()
		working.Wait()
	})
}
