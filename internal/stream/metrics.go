package stream

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// The values of the label outcome.
const (
	outcomeMoved   = "moved"   // into the queue
	outcomeDead    = "dead"    // it made no sense
	outcomeTrimmed = "trimmed" // by someone else, after it was read and before it was moved
)

var (
	entriesTotal = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_stream_entries_total", Help: "Entries of the stream that this process took; moved: into the queue, dead: set aside, as they make no sense, trimmed: lost, as another program removed them.",
	}, []string{"outcome"})
	entriesClaimed = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_stream_claimed_total", Help: "Entries of the stream that this process took over from one that died, was stopped, or did nothing for 5 s.",
	})
	entriesRepeated = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_stream_repeated_total", Help: "Entries that this process moved and that were gone when it wanted to take them out of the stream.",
	})
	streamLength = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_length", Help: "Entries in the stream.",
	})
	streamPending = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_pending", Help: "Entries in the stream that processes hold, at most 256 each.",
	})
	streamLag = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_lag_seconds", Help: "Age of the oldest entry in the stream; 0: there is none.",
	})
)

func init() {
	for _, o := range []string{outcomeMoved, outcomeDead, outcomeTrimmed} {
		entriesTotal.WithLabelValues(o)
	}
}
