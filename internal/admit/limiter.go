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
	"sync"
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
	minReads = 8                     // the limit does not fall below it, if there are so many places
	maxWait  = 50 * time.Millisecond // how long a read waits for a place
	busyFor  = 200 * time.Millisecond
)

// Limiter bounds the reads of a process. It is safe for concurrent use. A nil Limiter lets all reads in.
type Limiter struct {
	reads     adaptivelimiter.AdaptiveLimiter[any]
	walks     atomic.Int64 // under way
	refusedAt atomic.Int64 // the last refusal, unix nanoseconds
}

// New returns a Limiter with at most so many places.
func New(most int) *Limiter {
	least := min(minReads, most)
	l := &Limiter{}
	// The windows are shorter than the library's, to follow a load of seconds.
	l.reads = adaptivelimiter.NewBuilder[any]().WithLimits(uint(least), uint(most), uint(max(least, most*2/3))).
		WithRecentWindow(100*time.Millisecond, time.Second, 50).WithQueueing(2, 3).
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
		l.refuse()
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return &Place{limiter: l, permit: permit}, nil
}

// Refuses reports whether Enter would refuse a read at once, and counts it if so.
func (l *Limiter) Refuses() bool {
	if l == nil || l.reads.CanAcquirePermit() {
		return false
	}
	l.refuse()
	return true
}

func (l *Limiter) refuse() {
	refused.Inc()
	l.refusedAt.Store(time.Now().UnixNano())
}

// Busy reports whether a read was refused in the last 200 ms.
func (l *Limiter) Busy() bool {
	return l != nil && time.Since(time.Unix(0, l.refusedAt.Load())) < busyFor
}

// Place is the place of a read under way. It is safe for concurrent use. A nil Place bounds nothing.
type Place struct {
	limiter *Limiter
	permit  adaptivelimiter.Permit

	mu    sync.Mutex
	walks bool
	left  bool
}

// Walk reports whether the read may walk: walks have half of the places that there are now, and 1 at least. It does not wait.
func (p *Place) Walk() bool {
	if p == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.walks && !p.left {
		if p.limiter.walks.Add(1) > int64(max(1, p.limiter.reads.Limit()/2)) {
			p.limiter.walks.Add(-1)
			return false
		}
		p.walks = true
	}
	return p.walks
}

// Leave gives the place up. Only the first call counts. The time of a proven read counts for the limit.
func (p *Place) Leave(proven bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	if p.walks {
		p.limiter.walks.Add(-1)
	}
	if proven {
		p.permit.Record()
	} else {
		p.permit.Drop()
	}
}

type placeKey struct{}

// WithPlace returns a context with the place of a request.
func WithPlace(ctx context.Context, p *Place) context.Context {
	return context.WithValue(ctx, placeKey{}, p)
}

// PlaceOf returns the place that [WithPlace] gave to a context, or nil.
func PlaceOf(ctx context.Context) *Place {
	p, _ := ctx.Value(placeKey{}).(*Place)
	return p
}
