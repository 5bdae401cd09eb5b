package admit

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	limitNow = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_reads_limit", Help: "Reads that may be under way at once, by their weight: as many as the servers can take.",
	})
	readsRefused = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_reads_refused_total", Help: "Reads that were refused as too many came; read: before anything was asked, walk: when they were found to need a walk.",
	}, []string{"class"})
	refused = map[Class]prometheus.Counter{
		Proven: readsRefused.WithLabelValues("read"), Compared: readsRefused.WithLabelValues("read"), Walk: readsRefused.WithLabelValues("walk"),
	}
	late = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_late_seconds", Help: "By how much the process itself was late at worst, of what it wanted to do at a time in the last seconds.",
	})
)
