package audit

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/activityd/activityd/internal/member"
)

// Samples wait in memory, so many at most; so many make a batch at most; and a
// batch waits so long for more.
const (
	samplesWaiting = 256
	samplesAtOnce  = 50
	samplesPause   = time.Second
)

// sampler takes note of some of the reads.
type sampler struct {
	share   float64 // of the reads
	waiting chan member.ID
}

func newSampler(share float64) *sampler {
	return &sampler{share: share, waiting: make(chan member.ID, samplesWaiting)}
}

// note returns at once, be there room or not.
func (s *sampler) note(viewer member.ID) {
	if s.share <= 0 || s.share < 1 && rand.Float64() >= s.share {
		return
	}
	select {
	case s.waiting <- viewer:
	default:
		samplesDropped.Inc()
	}
}

// gather waits for a sample and then a little for more. It returns none when ctx
// ends.
func (s *sampler) gather(ctx context.Context) []member.ID {
	var batch []member.ID
	select {
	case <-ctx.Done():
		return nil
	case first := <-s.waiting:
		batch = append(batch, first)
	}
	timer := time.NewTimer(samplesPause)
	defer timer.Stop()
	for len(batch) < samplesAtOnce {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			return batch
		case next := <-s.waiting:
			batch = append(batch, next)
		}
	}
	return batch
}
