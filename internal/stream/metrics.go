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
		Name: "activityd_stream_entries_total", Help: "Entries of the stream that this process took, by what became of them.",
	}, []string{"outcome"})
	entriesClaimed = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_stream_claimed_total", Help: "Entries of the stream that this process took over from a dead or slow consumer.",
	})
	entriesRepeated = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_stream_repeated_total", Help: "Entries that this process moved and another had taken out of the stream.",
	})
	recoveries = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_stream_recoveries_total", Help: "Times that entries were delivered from the beginning, because the group was lost or had passed some over.",
	})
	streamLength = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_length", Help: "Entries in the stream, when Redis last said so.",
	})
	streamPending = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_pending", Help: "Entries in the stream that consumers hold, when Redis last said so.",
	})
	streamLag = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_stream_lag_seconds", Help: "Age of the oldest entry in the stream, when Redis last said so.",
	})
)

func init() {
	for _, o := range []string{outcomeMoved, outcomeDead, outcomeTrimmed} {
		entriesTotal.WithLabelValues(o)
	}
}
