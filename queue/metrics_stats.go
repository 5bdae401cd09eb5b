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
	descLooked  = statsDesc("stats_last_success_timestamp_seconds", "Unix time of the last look at the queues that succeeded; 0: none yet.")
	descTook    = statsDesc("stats_duration_seconds", "Time that the last look at the queues took.")
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
	labels *labels

	mu      sync.Mutex
	last    Stats
	err     error // of the last look
	took    time.Duration
	success time.Time // of the last look that succeeded
	again   time.Time
}

// NewStatsCollector returns a collector of the answers of stats, as [Queue.Stats]. The queues of the kinds and the worked queues are
// labels of metrics; further queues count as "other".
func NewStatsCollector(kinds Kinds, stats func(context.Context) (Stats, error), worked []string, log *slog.Logger) *StatsCollector {
	return &StatsCollector{
		kinds: kinds, stats: stats, queues: slices.Concat(kinds.Queues(), worked), log: log, labels: &labels{seen: make(map[string]bool)},
	}
}

// Describe implements [prometheus.Collector].
func (c *StatsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descTasks, descOldest, descDue, descPaused, descCapped, descSuccess, descLooked, descTook, descMySQLUp} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *StatsCollector) Collect(out chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().After(c.again) {
		c.look()
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	at := 0.0
	if !c.success.IsZero() {
		at = float64(c.success.UnixMilli()) / 1000
	}
	gauge(descSuccess, truth(c.err == nil))
	gauge(descLooked, at)
	gauge(descTook, c.took.Seconds())
	gauge(descMySQLUp, truth(!isAway(c.err)))
	if c.err == nil {
		c.collectQueues(c.last, gauge)
	}
}

// collectQueues exports the last answer. The series of the known kinds and queues are always there.
func (c *StatsCollector) collectQueues(stats Stats, gauge func(d *prometheus.Desc, value float64, labels ...string)) {
	type labels struct{ queue, kind, state string }
	counts, queues := make(map[labels]int), make(map[string]Summary)
	for _, queue := range c.kinds.Queues() {
		queues[queue] = Summary{}
	}
	for _, k := range c.kinds {
		for _, state := range States() {
			counts[labels{cmp.Or(k.Queue, DefaultQueue), k.Name, string(state)}] = 0
		}
	}
	for _, t := range stats.Tasks {
		counts[labels{c.label(t.Queue), c.labels.of(c.kinds, t.Kind), string(t.State)}] += t.Count
	}
	for _, q := range stats.Queues {
		sum := queues[c.label(q.Queue)]
		sum.Oldest, sum.Due = max(sum.Oldest, q.Oldest), max(sum.Due, q.Due)
		sum.Paused, sum.Capped = sum.Paused || q.Paused, sum.Capped || q.Capped
		queues[c.label(q.Queue)] = sum
	}
	for l, n := range counts {
		gauge(descTasks, float64(n), l.queue, l.kind, l.state)
	}
	for queue, q := range queues {
		gauge(descOldest, q.Oldest.Seconds(), queue)
		gauge(descDue, q.Due.Seconds(), queue)
		gauge(descPaused, truth(q.Paused), queue)
		gauge(descCapped, truth(q.Capped), queue)
	}
}

// label returns a queue as a label: rows may name any.
func (c *StatsCollector) label(queue string) string {
	if slices.Contains(c.queues, queue) {
		return queue
	}
	return "other"
}

// look asks for the stats. It logs the first of several failures, unless the database is away, as the program logs that elsewhere.
func (c *StatsCollector) look() {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	start, before := time.Now(), c.err
	c.last, c.err = c.stats(ctx)
	c.took = time.Since(start)
	c.again = time.Now().Add(max(statsInterval, statsShare*c.took))
	if c.err == nil {
		c.success = time.Now()
	} else if before == nil && !errors.Is(c.err, ErrUnavailable) {
		c.log.Warn("cannot look at the queues", "error", c.err)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
