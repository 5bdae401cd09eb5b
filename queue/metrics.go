package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/promreg"
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

// newMetrics returns registered metrics. Queues with the same registerer count together; without a registerer nothing is exported. The
// series of the kinds begin with 0.
func newMetrics(o Options) *metrics {
	promreg.Share(o.Registerer, mysql.Connections)
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return promreg.Share(o.Registerer, prometheus.NewCounterVec(prometheus.CounterOpts{Name: "activityd_" + name, Help: help}, labels))
	}
	histogram := func(name, help string, buckets ...float64) *prometheus.HistogramVec {
		opts := prometheus.HistogramOpts{Name: "activityd_" + name, Help: help, Buckets: buckets}
		return promreg.Share(o.Registerer, prometheus.NewHistogramVec(opts, []string{"queue", "type"}))
	}
	m := &metrics{
		labels:   newLabels(o.Kinds),
		enqueued: counters("tasks_enqueued_total", "Tasks that this process enqueued, with those for which another stands; not those that a site inserts by SQL.", "type"),
		// From the milliseconds of a notification over the 15 s of a change that should be visible, to a long outage.
		waitSeconds: histogram("task_wait_seconds", "Time from when a task was enqueued, or became due, to its start.",
			0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 300, 1800),
		// Up to the default of PoolOptions.Limit.
		runSeconds: histogram("task_run_seconds", "Time that a task's handler took; each task of a batch counts the time of the whole batch.",
			0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
		finished: counters("tasks_finished_total", "Runs of tasks; retried: an attempt was used up, postponed: not the fault of the task, such as a server that is away,"+
			" died: not tried again.", "queue", "type", "outcome"),
		takeovers:  counters("lease_takeovers_total", "Tasks freed or buried because the lease of their worker ran out.").WithLabelValues(),
		leasesLost: counters("leases_lost_total", "Tasks that this process worked on after it had lost their lease; the results were refused.").WithLabelValues(),
		dropped:    counters("tasks_dropped_total", "Tasks that expired before they were started.").WithLabelValues(),
	}
	for _, k := range o.Kinds {
		queue := cmp.Or(k.Queue, DefaultQueue)
		m.enqueued.WithLabelValues(k.Name)
		m.waitSeconds.WithLabelValues(queue, k.Name)
		m.runSeconds.WithLabelValues(queue, k.Name)
		for _, outcome := range []string{"done", "retried", "postponed", "died"} {
			m.finished.WithLabelValues(queue, k.Name, outcome)
		}
	}
	return m
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

// A [StatsCollector] asks for at most statsTimeout. Its answer serves the scrapes of the next statsInterval, or of statsShare times as
// long as the question took: however many scrape, the database does little for them.
const (
	statsTimeout  = 2 * time.Second
	statsInterval = 5 * time.Second
	statsShare    = 10
)

// The metrics of a [StatsCollector].
var (
	descTasks   = statsDesc("tasks", "Tasks in the database by queue, type and state; at most 100,000 of each queue and state are counted.", "queue", "type", "state")
	descOldest  = statsDesc("oldest_waiting_seconds", "How long ago the oldest waiting task of a queue was enqueued; 0: none waits.", "queue")
	descDue     = statsDesc("oldest_due_seconds", "How long ago the oldest task of a queue became due that is not done; 0: none.", "queue")
	descPaused  = statsDesc("queue_paused", "1 if the queue is paused.", "queue")
	descCapped  = statsDesc("counts_capped", "1 if a state of the queue has more tasks than are counted.", "queue")
	descSuccess = statsDesc("stats_success", "1 if the last look at the queues succeeded, 0 if not.")
	descMySQLUp = statsDesc("mysql_up", "1 if MySQL answered the last look at the queues, 0 if not.")
)

func statsDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("activityd_"+name, help, labels, nil)
}

// StatsCollector exports [Stats] as metrics, and whether the database answered. It asks during a scrape; while it gets no answer, the
// queues have no series.
type StatsCollector struct {
	kinds  Kinds
	stats  func(context.Context) (Stats, error)
	queues []string // that are labels
	log    *slog.Logger
	*labels

	asking sync.Mutex
	last   Stats
	err    error // of the last look
	again  time.Time
}

// NewStatsCollector returns a collector of the answers of stats, as [Queue.Stats]. The queues of the kinds and the worked queues are
// labels of metrics; further queues count as "other".
func NewStatsCollector(kinds Kinds, stats func(context.Context) (Stats, error), worked []string, log *slog.Logger) *StatsCollector {
	return &StatsCollector{kinds: kinds, stats: stats, queues: slices.Concat(kinds.Queues(), worked), log: log, labels: newLabels(kinds)}
}

// Describe implements [prometheus.Collector].
func (c *StatsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descTasks, descOldest, descDue, descPaused, descCapped, descSuccess, descMySQLUp} {
		out <- d
	}
}

// Collect implements [prometheus.Collector]. The series of the known kinds and queues are always there, unless the last look failed.
func (c *StatsCollector) Collect(out chan<- prometheus.Metric) {
	c.asking.Lock()
	defer c.asking.Unlock()
	if time.Now().After(c.again) {
		c.look()
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(descSuccess, truth(c.err == nil))
	gauge(descMySQLUp, truth(!isAway(c.err)))
	if c.err != nil {
		return
	}
	counts, queues := make(map[[3]string]int), make(map[string]Summary)
	for _, k := range c.kinds {
		for _, state := range States() {
			counts[[3]string{cmp.Or(k.Queue, DefaultQueue), k.Name, string(state)}] = 0
		}
	}
	for _, t := range c.last.Tasks {
		counts[[3]string{spelled(c.queues, t.Queue, "other"), c.label(t.Kind), string(t.State)}] += t.Count
	}
	for _, queue := range c.kinds.Queues() {
		queues[queue] = Summary{}
	}
	for _, q := range c.last.Queues {
		name := spelled(c.queues, q.Queue, "other") // rows may name any
		sum := queues[name]
		queues[name] = Summary{
			Oldest: max(sum.Oldest, q.Oldest), Due: max(sum.Due, q.Due), Paused: sum.Paused || q.Paused, Capped: sum.Capped || q.Capped,
		}
	}
	for labels, n := range counts {
		gauge(descTasks, float64(n), labels[:]...)
	}
	for queue, q := range queues {
		gauge(descOldest, q.Oldest.Seconds(), queue)
		gauge(descDue, q.Due.Seconds(), queue)
		gauge(descPaused, truth(q.Paused), queue)
		gauge(descCapped, truth(q.Capped), queue)
	}
}

// look asks for the stats. It logs the first of several failures, unless the database is away, as the program logs that elsewhere.
func (c *StatsCollector) look() {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	start, before := time.Now(), c.err
	c.last, c.err = c.stats(ctx)
	c.again = time.Now().Add(max(statsInterval, statsShare*time.Since(start)))
	if c.err != nil && before == nil && !errors.Is(c.err, ErrUnavailable) {
		c.log.Warn("cannot look at the queues", "error", c.err)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
