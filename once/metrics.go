package once

import (
	"context"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/promreg"
)

// metrics are the metrics of all Onces that share a registerer.
type metrics struct {
	operations *prometheus.CounterVec
	attempts   *prometheus.CounterVec
	exhausted  prometheus.Counter
}

// newMetrics returns metrics whose series begin with 0. Without a registerer they are not exported.
func newMetrics(to prometheus.Registerer) *metrics {
	m := &metrics{
		operations: promreg.Share(to, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "activityd_once_operations_total", Help: "Operations on names by action and outcome; lost: the caller does not hold the name, error: the store failed.",
		}, []string{"action", "outcome"})),
		attempts: promreg.Share(to, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "activityd_once_attempts_total", Help: "Attempts of this process that ended; released: handed back, lost: the end was not recorded, as the lease was lost or the store away.",
		}, []string{"outcome"})),
		exhausted: promreg.Share(to, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "activityd_once_exhausted_total", Help: "Names whose last attempt failed, as this process noticed first.",
		})),
	}
	for _, a := range []Action{Acquire, Extend, Finish, Fail, Release} {
		for _, outcome := range []string{string(OK), string(Lost), "error"} {
			m.operations.WithLabelValues(string(a), outcome)
		}
	}
	for _, outcome := range []Outcome{Busy, AlreadyDone, OutOfAttempts} {
		m.operations.WithLabelValues(string(Acquire), string(outcome))
	}
	for _, outcome := range outcomes {
		m.attempts.WithLabelValues(outcome)
	}
	m.attempts.WithLabelValues(outcomeLost)
	return m
}

// The values of the label outcome of attempts, by the action that ends an attempt.
var outcomes = map[Action]string{
	Finish:  "done",
	Fail:    "failed",
	Release: "released", // handed back: the process was stopped, or it was a Hold
}

// outcomeLost is that of an attempt whose end was not recorded, because the lease was
// lost, or the store was away. Its work may be done again, even if it was done.
const outcomeLost = "lost"

// countOperation counts an operation that was sent once.
func (m *metrics) countOperation(a Action, outcome string) {
	m.operations.WithLabelValues(string(a), outcome).Inc()
}

// countAttempt counts an attempt that an action ended, if that was recorded.
func (m *metrics) countAttempt(a Action, recorded bool) {
	outcome := outcomes[a]
	if !recorded {
		outcome = outcomeLost
	}
	m.attempts.WithLabelValues(outcome).Inc()
}

// ExhaustedNames returns a gauge of the number that count returns, as [MySQL.Exhausted] does. It
// asks during a scrape, for a second at most. While it gets no answer it shows the last number,
// and NaN before the first.
func ExhaustedNames(count func(context.Context) (int, error)) prometheus.Collector {
	var last atomic.Uint64
	last.Store(math.Float64bits(math.NaN()))
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "activityd_once_exhausted_names", Help: "Names in MySQL whose attempts all failed, counted up to 1,000; while MySQL is away, as it answered last.",
	}, func() float64 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if n, err := count(ctx); err == nil {
			last.Store(math.Float64bits(float64(n)))
		}
		return math.Float64frombits(last.Load())
	})
}
