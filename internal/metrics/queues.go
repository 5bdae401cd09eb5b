package metrics

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/queue"
)

// queueGauges shows how full the queues were when somebody last looked, and
// nothing once that is too long ago.
type queueGauges struct {
	queues labels
	life   time.Duration // how long a look is good for
	last   atomic.Pointer[looked]

	tasks, oldest, due, paused, capped *prometheus.Desc
}

// looked is what one look found, by labels.
type looked struct {
	at     time.Time
	tasks  map[taskLabels]int
	queues map[string]queue.QueueStats
}

type taskLabels struct{ queue, typ, state string }

func newQueueGauges(queues labels, life time.Duration) *queueGauges {
	desc := func(name, help string, by ...string) *prometheus.Desc {
		return prometheus.NewDesc(namespace+"_"+name, help, by, nil)
	}
	return &queueGauges{
		queues: queues, life: life,
		tasks:  desc("tasks", "Tasks in the database by queue, type and state.", "queue", "type", "state"),
		oldest: desc("oldest_waiting_seconds", "How long ago the oldest waiting task of a queue was enqueued; 0: none waits.", "queue"),
		due: desc("oldest_due_seconds",
			"How long ago the oldest task of a queue became due that is not done: it waits, runs, or was postponed or failed; 0: none.", "queue"),
		paused: desc("queue_paused", "1 if the queue is paused.", "queue"),
		capped: desc("counts_capped", "1 if a state of the queue has more tasks than are counted.", "queue"),
	}
}

// set makes the series of a look. Those of the usual tasks are always there.
func (g *queueGauges) set(stats queue.Stats) {
	l := &looked{at: time.Now(), tasks: make(map[taskLabels]int), queues: make(map[string]queue.QueueStats)}
	for name, list := range usual {
		l.queues[name] = queue.QueueStats{}
		for _, typ := range list {
			for _, state := range queue.States() {
				l.tasks[taskLabels{name, typ, string(state)}] = 0
			}
		}
	}
	for _, t := range stats.Tasks {
		l.tasks[taskLabels{g.queues.of(t.Queue), types.of(t.Kind), stateLabel(t.State)}] += t.Count
	}
	for _, q := range stats.Queues {
		name := g.queues.of(q.Queue)
		sum := l.queues[name]
		sum.Due = max(sum.Due, q.Due)
		sum.Oldest, sum.Paused, sum.Capped = max(sum.Oldest, q.Oldest), sum.Paused || q.Paused, sum.Capped || q.Capped
		l.queues[name] = sum
	}
	g.last.Store(l)
}

func stateLabel(s queue.State) string {
	if slices.Contains(queue.States(), s) {
		return string(s)
	}
	return other
}

// Describe implements [prometheus.Collector].
func (g *queueGauges) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{g.tasks, g.oldest, g.due, g.paused, g.capped} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. It asks nobody.
func (g *queueGauges) Collect(out chan<- prometheus.Metric) {
	l := g.last.Load()
	if l == nil || time.Since(l.at) > g.life {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, by ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, by...)
	}
	for by, n := range l.tasks {
		gauge(g.tasks, float64(n), by.queue, by.typ, by.state)
	}
	for queue, q := range l.queues {
		gauge(g.oldest, q.Oldest.Seconds(), queue)
		gauge(g.due, q.Due.Seconds(), queue)
		gauge(g.paused, truth(q.Paused), queue)
		gauge(g.capped, truth(q.Capped), queue)
	}
}
