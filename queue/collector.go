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
)

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

// Collect implements [prometheus.Collector].
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
	if c.err == nil {
		c.collectQueues(gauge)
	}
}

// collectQueues exports the last answer. The series of the known kinds and queues are always there.
func (c *StatsCollector) collectQueues(gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	counts, queues := make(map[[3]string]int), make(map[string]Summary)
	for _, queue := range c.kinds.Queues() {
		queues[queue] = Summary{}
	}
	for _, k := range c.kinds {
		for _, state := range States() {
			counts[[3]string{cmp.Or(k.Queue, DefaultQueue), k.Name, string(state)}] = 0
		}
	}
	for _, t := range c.last.Tasks {
		counts[[3]string{c.queue(t.Queue), c.label(t.Kind), string(t.State)}] += t.Count
	}
	for _, q := range c.last.Queues {
		name := c.queue(q.Queue)
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

// queue returns a queue as a label: rows may name any.
func (c *StatsCollector) queue(name string) string { return spelled(c.queues, name, "other") }

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
