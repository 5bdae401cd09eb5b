// Package admit bounds the reads under way, so that the reads that are let in end soon, however many come. The rest is refused
// before anything is asked of Redis or MySQL.
//
// A read has a place until it is answered. How many places there are, the adaptive limiter of failsafe-go learns from the
// times of proven reads, as all do about the same: it finds the number that keeps the servers busy without a queue in
// front of them. A read without a place waits for a moment; how many may wait depends on the limit. Beyond it reads
// are refused as they come.
//
// A walk costs many times as much as a proven read, and after the loss of Redis all reads want to walk. So walks have at most a fixed
// share of the places that there are, and a read that turns out to need a walk beyond it is refused.
package admit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// ErrBusy says that more is asked than can be answered soon. A retry in a second or so may succeed.
var ErrBusy = errors.New("too much is asked at once")

var (
	limitNow = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_reads_limit", Help: "Reads that may be under way at once: as many as the servers can take.",
	})
	refused = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_reads_refused_total", Help: "Reads that were refused before anything was asked, as too many came.",
	})
)

const (
	minReads = 4                     // the limit does not fall below it, if there are so many places
	maxWait  = 50 * time.Millisecond // how long a read waits for a place
)

// Limiter bounds the reads of a process. It is safe for concurrent use. A nil Limiter lets all reads in.
type Limiter struct {
	reads adaptivelimiter.AdaptiveLimiter[any]
	walks atomic.Int64 // under way
}

// New returns a Limiter with at most so many places.
//
// It begins with few places, and its baseline is nearly the time of a read that has the servers for itself: an average over
// a thousand windows, of which an overload of seconds changes little. A window has 50 reads, and takes 0.1 to 1 s. Twelve to
// sixteen reads may wait for each place: about as many as get a place within maxWait.
func New(most int) *Limiter {
	least := uint(min(minReads, most))
	l := &Limiter{}
	l.reads = adaptivelimiter.NewBuilder[any]().WithLimits(least, uint(most), least).WithBaselineWindow(1000).
		WithRecentWindow(100*time.Millisecond, time.Second, 50).WithRecentQuantile(0.5).WithQueueing(12, 16).
		OnLimitChanged(func(e adaptivelimiter.LimitChangedEvent) { limitNow.Set(float64(e.NewLimit)) }).Build()
	limitNow.Set(float64(l.reads.Limit()))
	return l
}

// Enter returns when a read may begin, within 50 ms. It fails with [ErrBusy], or with the cause of the end of ctx.
func (l *Limiter) Enter(ctx context.Context) (*Place, error) {
	if l == nil {
		return nil, nil //nolint:nilnil // a nil Place bounds nothing
	}
	permit, err := l.reads.AcquirePermitWithMaxWait(ctx, maxWait)
	if ctx.Err() != nil {
		if err == nil {
			permit.Drop()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		refused.Inc()
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return &Place{limiter: l, permit: permit}, nil
}

// Refuses reports whether Enter would refuse a read at once, and counts it if so.
func (l *Limiter) Refuses() bool {
	if l == nil || l.reads.CanAcquirePermit() {
		return false
	}
	refused.Inc()
	return true
}

// Place is the place of a read under way, which alone uses it. A nil Place bounds nothing.
type Place struct {
	limiter *Limiter
	permit  adaptivelimiter.Permit
	walks   bool
}

// Walk reports whether the read may walk: walks have half of the places that there are now, and 1 at least. It does not wait.
func (p *Place) Walk() bool {
	if p == nil || p.walks {
		return true
	}
	if p.limiter.walks.Add(1) > int64(max(1, p.limiter.reads.Limit()/2)) {
		p.limiter.walks.Add(-1)
		return false
	}
	p.walks = true
	return true
}

// Leave gives the place up, once. The time of a proven read counts for the limit.
func (p *Place) Leave(proven bool) {
	if p == nil {
		return
	}
	if p.walks {
		p.limiter.walks.Add(-1)
	}
	if proven {
		p.permit.Record()
	} else {
		p.permit.Drop()
	}
}
