package queue

import (
	"cmp"
	"errors"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
)

// metrics are shared by the queues and pools of a registerer.
type metrics struct {
	enqueued    *prometheus.CounterVec
	deduped     *prometheus.CounterVec
	waitSeconds *prometheus.HistogramVec
	runSeconds  *prometheus.HistogramVec
	finished    *prometheus.CounterVec
	takeovers   prometheus.Counter
	leasesLost  prometheus.Counter
	dropped     prometheus.Counter

	labels *labels
}

// newMetrics returns registered metrics. Queues with the same registerer count together; without a registerer nothing is exported.
func newMetrics(to prometheus.Registerer) *metrics {
	registered(to, mysql.Connections)
	counter := func(name, help string) prometheus.Counter {
		return registered(to, prometheus.NewCounter(prometheus.CounterOpts{Name: "activityd_" + name, Help: help}))
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered(to, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "activityd_" + name, Help: help}, labels))
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		return registered(to, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "activityd_" + name, Help: help, Buckets: buckets}, []string{"queue", "type"}))
	}
	return &metrics{
		labels:   &labels{seen: make(map[string]bool)},
		enqueued: counters("tasks_enqueued_total", "Tasks that this process enqueued, with those for which another stands; not those that a site inserts by SQL.", "type"),
		deduped:  counters("tasks_deduped_total", "Tasks that this process enqueued and that an equal waiting one stands for.", "type"),
		// From the milliseconds of a notification over the 15 s of a change that should be visible, to a long outage.
		waitSeconds: histogram("task_wait_seconds", "Time from when a task was enqueued, or became due, to its start.",
			0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 300, 1800),
		// Up to DefaultLimit.
		runSeconds: histogram("task_run_seconds", "Time that a task's handler took; each task of a batch counts the time of the whole batch.",
			0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
		finished: counters("tasks_finished_total", "Runs of tasks; retried: an attempt was used up, postponed: not the fault of the task, such as a server that is away,"+
			" died: not tried again.", "queue", "type", "outcome"),
		takeovers:  counter("lease_takeovers_total", "Tasks freed or buried because the lease of their worker ran out."),
		leasesLost: counter("leases_lost_total", "Tasks that this process worked on after it had lost their lease; the results were refused."),
		dropped:    counter("tasks_dropped_total", "Tasks that expired before they were started."),
	}
}

// registered registers a collector and returns it, or the collector that is registered in its place.
func registered[C prometheus.Collector](to prometheus.Registerer, c C) C {
	if to == nil {
		return c
	}
	err := to.Register(c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if same, ok := there.ExistingCollector.(C); ok {
			return same
		}
	}
	if err != nil {
		panic(err)
	}
	return c
}

// The values of the label outcome.
const (
	outcomeDone      = "done"
	outcomeRetried   = "retried"   // an attempt was used up; it will run again
	outcomePostponed = "postponed" // it runs again, and that was not its fault
	outcomeDied      = "died"
)

// begin makes the series of the kinds begin with 0.
func (m *metrics) begin(kinds Kinds) {
	for _, k := range kinds {
		k.Queue = cmp.Or(k.Queue, DefaultQueue)
		m.enqueued.WithLabelValues(k.Name)
		m.deduped.WithLabelValues(k.Name)
		m.waitSeconds.WithLabelValues(k.Queue, k.Name)
		m.runSeconds.WithLabelValues(k.Queue, k.Name)
		for _, o := range []string{outcomeDone, outcomeRetried, outcomePostponed, outcomeDied} {
			m.finished.WithLabelValues(k.Queue, k.Name, o)
		}
	}
}

// otherKinds stands in metrics for kinds that the queue does not know and that came after the first hundred.
const otherKinds = "other"

// labels bounds the values of a label: rows may name any kind.
type labels struct {
	mu   sync.Mutex
	seen map[string]bool
}

// label returns a kind as a label of metrics.
func (m *metrics) label(kinds Kinds, kind string) string { return m.labels.of(kinds, kind) }

func (l *labels) of(kinds Kinds, kind string) string {
	if _, known := kinds.of(kind); known {
		return kind
	}
	const most = 100
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen[kind] && len(l.seen) == most {
		return otherKinds
	}
	l.seen[kind] = true
	return kind
}
