package admit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	limitNow = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_reads_limit", Help: "Reads that may be under way at once: as many as the servers can take.",
	})
	refused = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_reads_refused_total", Help: "Reads that were refused before anything was asked, as too many came.",
	})
	late = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_late_seconds_total", Help: "For how long the process wanted to run and did not.",
	})
)
