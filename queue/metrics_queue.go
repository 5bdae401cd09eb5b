package queue

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/promreg"
)

// metrics are those of the queues and pools that share a registerer.
type metrics struct {
	enqueued    *prometheus.CounterVec
	absorbed    *prometheus.CounterVec
	waitSeconds *prometheus.HistogramVec
	runSeconds  *prometheus.HistogramVec
	finished    *prometheus.CounterVec
	takeovers   prometheus.Counter
	leasesLost  prometheus.Counter
	dropped     prometheus.Counter
}

// newMetrics returns metrics that are registered, which those of another queue may be already: they
// count together. Without a registerer they are not exported.
func newMetrics(to prometheus.Registerer) *metrics {
	promreg.Share(to, mysql.Connections)
	return &metrics{
		enqueued: promreg.Share(to, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "activityd_tasks_enqueued_total", Help: "Tasks that this process enqueued, absorbed ones included; not those that a site inserts by SQL.",
		}, []string{"type"})),
		absorbed: promreg.Share(to, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "activityd_tasks_absorbed_total", Help: "Tasks that this process enqueued and that an equal waiting one stands for.",
		}, []string{"type"})),
		// The buckets reach from a notification, which should take some milliseconds,
		// over the 15 s within which a change should be visible, to a long outage.
		waitSeconds: promreg.Share(to, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "activityd_task_wait_seconds", Help: "Time from when a task was enqueued, or became due, to its start.",
			Buckets: []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 300, 1800},
		}, []string{"queue", "type"})),
		// The buckets end with the minute after which work is cut off by default.
		runSeconds: promreg.Share(to, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "activityd_task_run_seconds", Help: "Time that a task's handler took; each task of a batch counts the time of the whole batch.",
			Buckets: []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"queue", "type"})),
		finished: promreg.Share(to, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "activityd_tasks_finished_total", Help: "Runs of tasks; retried: an attempt was used up, postponed: not the fault of the task, such as a server that is away, died: not tried again.",
		}, []string{"queue", "type", "outcome"})),
		takeovers: promreg.Share(to, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "activityd_lease_takeovers_total", Help: "Tasks freed or buried because the lease of their worker ran out.",
		})),
		leasesLost: promreg.Share(to, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "activityd_leases_lost_total", Help: "Tasks that this process worked on after it had lost their lease; the results were refused.",
		})),
		dropped: promreg.Share(to, prometheus.NewCounter(prometheus.CounterOpts{
			Name: "activityd_tasks_dropped_total", Help: "Tasks that expired before they were started.",
		})),
	}
}

// The values of the label outcome.
const (
	outcomeDone      = "done"
	outcomeRetried   = "retried"   // an attempt was used up; it will run again
	outcomePostponed = "postponed" // it runs again, and that was not its fault
	outcomeDied      = "died"
)

// begin makes the series of the kinds begin with 0. Where a site moves a kind to
// another queue, its series come with its first task.
func (m *metrics) begin(kinds Kinds) {
	for _, k := range kinds {
		k.Queue = cmp.Or(k.Queue, DefaultQueue)
		m.enqueued.WithLabelValues(k.Name)
		m.absorbed.WithLabelValues(k.Name)
		m.waitSeconds.WithLabelValues(k.Queue, k.Name)
		m.runSeconds.WithLabelValues(k.Queue, k.Name)
		for _, o := range []string{outcomeDone, outcomeRetried, outcomePostponed, outcomeDied} {
			m.finished.WithLabelValues(k.Queue, k.Name, o)
		}
	}
}
