package metrics

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// namespace begins the name of every metric of our own.
const namespace = "activityd"

// DefaultInterval is the default of Options.Interval.
const DefaultInterval = 5 * time.Second

// Options say what is measured. The zero value is fine.
type Options struct {
	// Version of the program, for activityd_build_info.
	Version string
	// Role of the process, for activityd_build_info: all, api or workers. Default: all.
	Role string
	// Queues are those on which this process works; none for one that has no
	// workers. They become labels, and where tasks wait in another queue, the
	// log says so.
	Queues []string
	// Interval is the time between two looks at the queues; see [Metrics.Watch].
	Interval time.Duration
	// Now is the clock of the windows of the audit; default time.Now.
	Now func() time.Time
	// Log is told when the look at the queues fails. Default: slog.Default().
	Log *slog.Logger
}

// Metrics are all metrics of a process, in a registry of their own. All of it is
// safe for concurrent use.
type Metrics struct {
	Tasks  *Tasks
	Index  *Index
	Reads  *Reads
	HTTP   *HTTP
	Access *Access
	Audit  *Audit

	registry *prometheus.Registry
	watch    *watch
}

// New returns metrics that nobody has told anything yet.
func New(o Options) *Metrics {
	o.Interval = cmp.Or(o.Interval, DefaultInterval)
	o.Version, o.Role = cmp.Or(o.Version, "unknown"), cmp.Or(o.Role, "all")
	if o.Log == nil {
		o.Log = slog.Default()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	factory := promauto.With(registry)
	factory.NewGaugeVec(gaugeOpts("build_info", "1, with the version of the program and of Go, and the role of the process."), []string{"version", "go_version", "role"}).
		WithLabelValues(o.Version, runtime.Version(), o.Role).Set(1)
	queues, access := queueLabels(o.Queues), newAccess(factory)
	return &Metrics{
		Tasks:    newTasks(factory, queues),
		Index:    newIndex(factory),
		Reads:    newReads(factory),
		HTTP:     newHTTP(factory, access),
		Access:   access,
		Audit:    newAudit(registry, factory, o.Now),
		registry: registry,
		watch:    newWatch(registry, factory, queues, o),
	}
}

// Gatherer gives what a scrape would show.
func (m *Metrics) Gatherer() prometheus.Gatherer { return m.registry }

// handler answers a scrape, in OpenMetrics where that is asked for.
func (m *Metrics) handler(log *slog.Logger) http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorLog:            slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		ErrorHandling:       promhttp.ContinueOnError, // part of the truth is better than none
		EnableOpenMetrics:   true,
		MaxRequestsInFlight: 4,
	})
}

func counterOpts(name, help string) prometheus.CounterOpts {
	return prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help}
}

func gaugeOpts(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: namespace, Name: name, Help: help}
}

func histogramOpts(name, help string, buckets ...float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Namespace: namespace, Name: name, Help: help, Buckets: buckets}
}
