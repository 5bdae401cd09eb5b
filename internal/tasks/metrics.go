package tasks

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	guardConflicts = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_guard_conflicts_total", Help: "Updates of a set that conflicted with another one and began again.",
	})
	refills = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_refills_total", Help: "Sets that were read again from MySQL.",
	})
	backfilled = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_backfill_members_total", Help: "Members that ranges of a backfill did; skipped: the set is there, or is not kept; failed: a refill of its own tries again.",
	}, []string{"result"})
	// The largest fan-outs have hundreds of thousands of followers.
	fanOutFollowers = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "activityd_fan_out_followers", Help: "Followers whose sets a fan-out updated, at its end.",
		Buckets: []float64{0, 1, 10, 30, 100, 300, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6},
	})
	uploadToIndexSeconds = promauto.NewHistogram(prometheus.HistogramOpts{
		Name: "activityd_upload_to_index_seconds", Help: "Time from an upload's task to the update of the last follower's set.",
		Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 300, 1800},
	})
)

func init() { // the known series begin with 0
	for _, result := range []string{"built", "skipped", "failed"} {
		backfilled.WithLabelValues(result)
	}
}
