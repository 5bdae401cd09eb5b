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
	waitSeconds *prometheus.HistogramVec
	runSeconds  *prometheus.HistogramVec
	finished    *prometheus.CounterVec
	takeovers   prometheus.Counter
	leasesLost  prometheus.Counter
	dropped     prometheus.Counter

	*labels
}

// The values of the label outcome.
const (
	outcomeDone      = "done"
	outcomeRetried   = "retried"   // an attempt was used up; it will run again
	outcomePostponed = "postponed" // it runs again, and that was not its fault
	outcomeDied      = "died"
)

// newMetrics returns registered metrics. Queues with the same registerer count together; without a registerer nothing is exported. The
// series of the kinds begin with 0.
func newMetrics(o Options) *metrics {
	registered(o.Registerer, mysql.Connections)
	counter := func(name, help string) prometheus.Counter {
		return registered(o.Registerer, prometheus.NewCounter(prometheus.CounterOpts{Name: "activityd_" + name, Help: help}))
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return registered(o.Registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "activityd_" + name, Help: help}, labels))
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		opts := prometheus.HistogramOpts{Name: "activityd_" + name, Help: help, Buckets: buckets}
		return registered(o.Registerer, prometheus.NewHistogramVec(opts, []string{"queue", "type"}))
	}
	m := &metrics{
		labels:   newLabels(o.Kinds),
		enqueued: counters("tasks_enqueued_total", "Tasks that this process enqueued, with those for which another stands; not those that a site inserts by SQL.", "type"),
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
	for _, k := range o.Kinds {
		queue := cmp.Or(k.Queue, DefaultQueue)
		m.enqueued.WithLabelValues(k.Name)
		m.waitSeconds.WithLabelValues(queue, k.Name)
		m.runSeconds.WithLabelValues(queue, k.Name)
		for _, outcome := range []string{outcomeDone, outcomeRetried, outcomePostponed, outcomeDied} {
			m.finished.WithLabelValues(queue, k.Name, outcome)
		}
	}
	return m
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

// labels bounds the kinds that are labels: rows may name any.
type labels struct {
	mu   sync.Mutex
	seen map[string]bool
	most int
}

// newLabels returns labels for the known kinds and the first hundred unknown kinds.
func newLabels(kinds Kinds) *labels {
	l := &labels{seen: make(map[string]bool), most: len(kinds) + 100}
	for _, k := range kinds {
		l.seen[k.Name] = true
	}
	return l
}

// label returns a kind, or "other" if it came too late.
func (l *labels) label(kind string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.seen[kind] && len(l.seen) >= l.most {
		return "other"
	}
	l.seen[kind] = true
	return kind
}
