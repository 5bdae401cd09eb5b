package metrics

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
)

// Reads is the [recent.Observer] that counts.
type Reads struct {
	took    *prometheus.HistogramVec
	results *prometheus.CounterVec
	reasons *prometheus.CounterVec
	walks   prometheus.Gauge
	refused prometheus.Counter
}

var _ recent.Observer = (*Reads)(nil)

// readBuckets are fine where a read by the index should be, below 10 ms, and go
// on to where a walk is cut off.
var readBuckets = []float64{0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// fromNowhere is the source of a read that failed.
const fromNowhere = "none"

// The results of a read.
const (
	resultPhotos      = "photos"
	resultNothing     = "nothing" // a right answer: there is nothing to show
	resultNoMember    = "no_member"
	resultBusy        = "busy"
	resultUnavailable = "unavailable"
	resultTimeout     = "timeout"
	resultCancelled   = "cancelled"
)

// walkReasons makes a label of what a trace says for people.
var walkReasons = map[string]string{
	recent.SetMissing:       "set_missing",
	recent.SetMalformed:     "set_malformed",
	recent.OtherSettings:    "other_settings",
	recent.RedisUnavailable: "redis_unavailable",
	recent.WritesRefused:    "writes_refused",
	recent.NothingVisible:   "nothing_visible",
	recent.BestTooOld:       "best_too_old",
	recent.PhotosChanged:    "photos_changed",
}

func newReads(f promauto.Factory) *Reads {
	r := &Reads{
		took: f.NewHistogramVec(histogramOpts("read_seconds",
			"Time of a read by the source of its answer; none: it failed.", readBuckets...), []string{"source"}),
		results: f.NewCounterVec(counterOpts("reads_total", "Reads by the source and the kind of their answer."), []string{"source", "result"}),
		reasons: f.NewCounterVec(counterOpts("read_walks_total", "Reads answered by a walk through the database, by the reason for it."), []string{"reason"}),
		walks:   f.NewGauge(gaugeOpts("walks_in_flight", "Walks through the database under way.")),
		refused: f.NewCounter(counterOpts("walks_refused_total", "Walks that did not get their turn in time.")),
	}
	for _, source := range []recent.Source{recent.FromIndex, recent.FromDatabase} {
		r.took.WithLabelValues(string(source))
		r.results.WithLabelValues(string(source), resultPhotos)
		r.results.WithLabelValues(string(source), resultNothing)
	}
	r.took.WithLabelValues(fromNowhere)
	for _, result := range []string{resultNoMember, resultBusy, resultUnavailable, resultTimeout, resultCancelled, other} {
		r.results.WithLabelValues(fromNowhere, result)
	}
	for _, reason := range walkReasons {
		r.reasons.WithLabelValues(reason)
	}
	return r
}

// Answered implements [recent.Observer].
func (r *Reads) Answered(a recent.Answer, err error, took time.Duration) {
	source := fromNowhere
	if err == nil {
		source = string(a.Source)
	}
	r.took.WithLabelValues(source).Observe(seconds(took))
	r.results.WithLabelValues(source, resultOf(a, err)).Inc()
	if err == nil && a.Source == recent.FromDatabase {
		r.reasons.WithLabelValues(reasonOf(a)).Inc()
	}
}

func resultOf(a recent.Answer, err error) string {
	switch {
	case err == nil && a.Contact != nil:
		return resultPhotos
	case err == nil:
		return resultNothing
	case errors.Is(err, contacts.ErrNoMember):
		return resultNoMember
	case errors.Is(err, recent.ErrBusy):
		return resultBusy
	case errors.Is(err, mysql.ErrUnavailable):
		return resultUnavailable
	case errors.Is(err, context.DeadlineExceeded):
		return resultTimeout
	case errors.Is(err, context.Canceled):
		return resultCancelled
	}
	return other
}

func reasonOf(a recent.Answer) string {
	if reason, ok := walkReasons[a.Trace.WalkReason]; ok {
		return reason
	}
	return other
}

// WalkBegan implements [recent.Observer].
func (r *Reads) WalkBegan() { r.walks.Inc() }

// WalkEnded implements [recent.Observer].
func (r *Reads) WalkEnded() { r.walks.Dec() }

// WalkRefused implements [recent.Observer].
func (r *Reads) WalkRefused() { r.refused.Inc() }
