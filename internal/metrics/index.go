package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/index"
)

// Index is the [index.Observer] that counts. It also learns from each call
// whether Redis is there.
type Index struct {
	calls  *prometheus.HistogramVec
	errors *prometheus.CounterVec
	adds   *prometheus.CounterVec
	trims  prometheus.Counter

	// These have no series until something is known.
	up, writable *prometheus.GaugeVec
}

var _ index.Observer = (*Index)(nil)

// callBuckets reach from a round trip to a server nearby to the second for which
// a large Redis stalls when it forks.
var callBuckets = []float64{0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5}

// The reasons of activityd_index_errors_total.
const (
	reasonUnavailable = "unavailable"
	reasonRefused     = "refused"
	reasonTimeout     = "timeout"
	reasonSettings    = "settings"
	reasonMalformed   = "malformed"
)

func newIndex(f promauto.Factory) *Index {
	ix := &Index{
		calls: f.NewHistogramVec(histogramOpts("index_call_seconds",
			"Time of an operation on Redis, which may be a batch of thousands of sets.", callBuckets...), []string{"operation"}),
		errors: f.NewCounterVec(counterOpts("index_errors_total", "Operations on Redis that failed."), []string{"operation", "reason"}),
		adds:   f.NewCounterVec(counterOpts("adds_total", "Additions of a contact to a set by what they did."), []string{"outcome"}),
		trims:  f.NewCounter(counterOpts("trims_total", "Members cut off sets that held too many.")),
		up:     f.NewGaugeVec(gaugeOpts("redis_up", "1 if Redis answered the last operation of this process, 0 if not."), nil),
		writable: f.NewGaugeVec(gaugeOpts("redis_writable",
			"1 if the last probe of this process could write to Redis, and none was refused for some seconds, 0 if not."), nil),
	}
	for _, op := range []index.Operation{index.OpCandidates, index.OpAdd, index.OpBegin, index.OpApply, index.OpCheck, index.OpProbe, index.OpLook} {
		ix.calls.WithLabelValues(string(op))
		for _, reason := range []string{reasonUnavailable, reasonRefused, reasonTimeout} {
			ix.errors.WithLabelValues(string(op), reason)
		}
	}
	for _, outcome := range []index.AddOutcome{index.AddTaken, index.AddUnchanged, index.AddBelow, index.AddTrimmed, index.AddOutside, index.AddMissing} {
		ix.adds.WithLabelValues(string(outcome))
	}
	return ix
}

// Called implements [index.Observer].
func (ix *Index) Called(op index.Operation, took time.Duration, err error) {
	ix.calls.WithLabelValues(string(op)).Observe(seconds(took))
	reason, answered := judge(err)
	if reason != "" {
		ix.errors.WithLabelValues(string(op), reason).Inc()
	}
	if errors.Is(err, context.Canceled) {
		return // says nothing about Redis
	}
	ix.up.WithLabelValues().Set(truth(answered))
	if op == index.OpProbe {
		ix.writable.WithLabelValues().Set(truth(err == nil))
	}
}

// judge says why an operation failed, if it did, and whether Redis answered.
func judge(err error) (reason string, answered bool) {
	switch {
	case err == nil, errors.Is(err, index.ErrMissing): // a set that is missing is an answer
		return "", true
	case errors.Is(err, context.Canceled): // by who asked
		return "", false
	case errors.Is(err, context.DeadlineExceeded):
		return reasonTimeout, false
	case errors.Is(err, index.ErrRefused):
		return reasonRefused, true
	case errors.Is(err, index.ErrUnavailable):
		return reasonUnavailable, false
	case errors.Is(err, index.ErrSettings):
		return reasonSettings, true
	case errors.Is(err, index.ErrMalformed):
		return reasonMalformed, true
	}
	return other, true
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Added implements [index.Observer].
func (ix *Index) Added(outcome index.AddOutcome, n int) {
	ix.adds.WithLabelValues(string(outcome)).Add(float64(n))
}

// Trimmed implements [index.Observer].
func (ix *Index) Trimmed(n int) { ix.trims.Add(float64(n)) }
