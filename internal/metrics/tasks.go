package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/queue"
)

// Tasks is the [queue.Observer] that counts.
type Tasks struct {
	queues labels

	enqueued, absorbed *prometheus.CounterVec
	wait, run          *prometheus.HistogramVec
	finished           *prometheus.CounterVec

	takeovers, leasesLost, dropped, uploadsAbsorbed, conflicts, refills prometheus.Counter

	followers, lag prometheus.Histogram
}

var _ queue.Observer = (*Tasks)(nil)

// waitBuckets reach from a wake-up, which should take some milliseconds, over
// the 15 s within which a change should be visible, to a long outage.
var waitBuckets = []float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 300, 1800}

// runBuckets end with the minute after which work is cut off by default.
var runBuckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60}

// followerBuckets are for fan-outs, the largest of which tell hundreds of
// thousands.
var followerBuckets = []float64{0, 1, 10, 30, 100, 300, 1e3, 3e3, 1e4, 3e4, 1e5, 3e5, 1e6}

func newTasks(f promauto.Factory, queues labels) *Tasks {
	byTask := []string{"queue", "type"}
	t := &Tasks{
		queues:   queues,
		enqueued: f.NewCounterVec(counterOpts("tasks_enqueued_total", "Tasks that this process enqueued, absorbed ones included."), []string{"type"}),
		absorbed: f.NewCounterVec(counterOpts("tasks_absorbed_total", "Tasks that this process enqueued and that an equal waiting one stands for."), []string{"type"}),
		wait: f.NewHistogramVec(histogramOpts("task_wait_seconds",
			"Time from when a task was enqueued, or became due, to its start.", waitBuckets...), byTask),
		run: f.NewHistogramVec(histogramOpts("task_run_seconds",
			"Time that a task's handler took; tasks of one batch are handled together.", runBuckets...), byTask),
		finished: f.NewCounterVec(counterOpts("tasks_finished_total", "Runs of tasks by their outcome."), []string{"queue", "type", "outcome"}),

		takeovers:       f.NewCounter(counterOpts("lease_takeovers_total", "Tasks freed or buried because the lease of their worker ran out.")),
		leasesLost:      f.NewCounter(counterOpts("leases_lost_total", "Tasks that this process worked on and whose lease it had lost.")),
		dropped:         f.NewCounter(counterOpts("tasks_dropped_total", "Tasks that expired before they were started.")),
		uploadsAbsorbed: f.NewCounter(counterOpts("uploads_absorbed_total", "Uploads that another upload of the same member stood for when it began.")),
		conflicts:       f.NewCounter(counterOpts("guard_conflicts_total", "Guarded updates of a set that conflicted and began again.")),
		refills:         f.NewCounter(counterOpts("refills_total", "Sets that were read anew from MySQL.")),

		followers: f.NewHistogram(histogramOpts("fan_out_followers", "Followers that a fan-out told, at its end.", followerBuckets...)),
		lag:       f.NewHistogram(histogramOpts("upload_to_index_seconds", "Time from an upload's task to the last follower told.", waitBuckets...)),
	}
	t.begin()
	return t
}

// begin makes the series of the usual tasks, with 0.
func (t *Tasks) begin() {
	for queue, list := range usual {
		for _, typ := range list {
			t.enqueued.WithLabelValues(string(typ))
			t.absorbed.WithLabelValues(string(typ))
			t.wait.WithLabelValues(queue, string(typ))
			t.run.WithLabelValues(queue, string(typ))
			for _, outcome := range outcomes {
				t.finished.WithLabelValues(queue, string(typ), outcome)
			}
		}
	}
}

// Enqueued implements [queue.Observer].
func (t *Tasks) Enqueued(typ string, n, absorbed int) {
	t.enqueued.WithLabelValues(types.of(string(typ))).Add(float64(n))
	t.absorbed.WithLabelValues(types.of(string(typ))).Add(float64(absorbed))
}

// Started implements [queue.Observer].
func (t *Tasks) Started(queue string, typ string, waited time.Duration) {
	t.wait.WithLabelValues(t.queues.of(queue), types.of(string(typ))).Observe(seconds(waited))
}

// Finished implements [queue.Observer].
func (t *Tasks) Finished(queue string, typ string, outcome queue.Outcome, took time.Duration) {
	queue, kind := t.queues.of(queue), types.of(string(typ))
	t.run.WithLabelValues(queue, kind).Observe(seconds(took))
	t.finished.WithLabelValues(queue, kind, outcomes.of(string(outcome))).Inc()
}

// TookOver implements [queue.Observer].
func (t *Tasks) TookOver(n int) { t.takeovers.Add(float64(n)) }

// LeasesLost implements [queue.Observer].
func (t *Tasks) LeasesLost(n int) { t.leasesLost.Add(float64(n)) }

// Dropped implements [queue.Observer].
func (t *Tasks) Dropped(n int) { t.dropped.Add(float64(n)) }

// UploadAbsorbed implements [queue.Observer].
func (t *Tasks) UploadAbsorbed(n int) { t.uploadsAbsorbed.Add(float64(n)) }

// FannedOut implements [queue.Observer].
func (t *Tasks) FannedOut(followers int, lag time.Duration) {
	t.followers.Observe(float64(followers))
	t.lag.Observe(seconds(lag))
}

// Conflicted implements [queue.Observer].
func (t *Tasks) Conflicted(n int) { t.conflicts.Add(float64(n)) }

// Refilled implements [queue.Observer].
func (t *Tasks) Refilled(n int) { t.refills.Add(float64(n)) }

// seconds of a duration. Two clocks may disagree; nothing lasts less than 0.
func seconds(d time.Duration) float64 { return max(d, 0).Seconds() }
