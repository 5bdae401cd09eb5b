package stream

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label outcome.
const (
	outcomeMoved = "moved" // into the queue
	outcomeDead  = "dead"  // it made no sense
)

var (
	entriesTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_stream_entries_total",
		Help: "Entries of the stream that this process took; moved: into the queue, dead: set aside, as they make no sense.",
	}, []string{"outcome"})
	entriesRepeated = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_stream_repeated_total",
		Help: "Entries that were gone when this process wanted to take them out of the stream, as another one had moved them, too.",
	})
	streamLength = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_length", Help: "Entries in the stream.",
	})
	streamLag = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_lag_seconds", Help: "Age of the oldest entry in the stream; 0: there is none.",
	})
)

func init() {
	entriesTotal.WithLabelValues(outcomeMoved)
	entriesTotal.WithLabelValues(outcomeDead)
}
