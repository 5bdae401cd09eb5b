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

// A [StatsCollector] asks for at most statsTimeout, and answers the scrapes of the next statsInterval with what it got, or of a
// time statsShare times as long as the answer took: however many scrape, the database does little for them.
const (
	statsTimeout  = 2 * time.Second
	statsInterval = 5 * time.Second
	statsShare    = 10
)

// maxWarned bounds the remembered queues without workers: rows may name any.
const maxWarned = 100

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

// StatsCollector shows how full the queues are, and whether MySQL answered. It
// asks during a scrape; while it gets no answer, the queues have no series. The log
// gets a line about tasks that wait in a queue without workers of this process.
type StatsCollector struct {
	kinds  Kinds
	stats  func(context.Context) (Stats, error)
	worked []string // the queues of this process' workers: labels beside the standard queues
	log    *slog.Logger
	labels *labels

	mu      sync.Mutex
	last    Stats
	err     error // why there is nothing
	took    time.Duration
	success time.Time // of the last look that succeeded
	again   time.Time
	warned  map[string]bool // queues without workers that were logged
}

// NewStatsCollector returns a collector of what stats returns, in a process with
// workers on the given queues.
func NewStatsCollector(kinds Kinds, stats func(context.Context) (Stats, error), worked []string, log *slog.Logger) *StatsCollector {
	return &StatsCollector{kinds: kinds, stats: stats, worked: worked, log: log, labels: &labels{seen: make(map[string]bool)}, warned: make(map[string]bool)}
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
	gauge(descMySQLUp, truth(!errors.Is(c.err, ErrUnavailable) && !errors.Is(c.err, context.DeadlineExceeded)))
	if c.err == nil {
		c.collectQueues(c.last, gauge)
	}
}

// collectQueues shows the last answer. The series of the usual tasks are always
// there.
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
		kind := t.Kind
		if _, known := c.kinds.of(kind); !known {
			kind = c.labels.of(kind)
		}
		counts[labels{c.label(t.Queue), kind, string(t.State)}] += t.Count
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

// label returns a queue as a label: rows may be in any.
func (c *StatsCollector) label(queue string) string {
	if slices.Contains(c.kinds.Queues(), queue) || slices.Contains(c.worked, queue) {
		return queue
	}
	return "other"
}

// look asks the queue once. It logs a failure unless the one before it failed, too,
// or MySQL is away, which is logged elsewhere.
func (c *StatsCollector) look() {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	start, before := time.Now(), c.err
	c.last, c.err = c.stats(ctx)
	c.took = time.Since(start)
	c.again = time.Now().Add(max(statsInterval, statsShare*c.took))
	switch {
	case c.err == nil:
		c.success = time.Now()
		c.warnOfUnworked(c.last)
	case before == nil && !errors.Is(c.err, ErrUnavailable):
		c.log.Warn("cannot look at the queues", "error", c.err) // their metrics vanish until it succeeds again
	}
}

// warnOfUnworked logs, once for each queue, tasks that wait where no
// worker of this process looks: a misspelt queue, or one that other processes
// have to serve. A process without workers knows nothing about that.
func (c *StatsCollector) warnOfUnworked(stats Stats) {
	for _, t := range stats.Tasks {
		if len(c.worked) == 0 || t.State != Waiting || slices.Contains(c.worked, t.Queue) || c.warned[t.Queue] || len(c.warned) >= maxWarned {
			continue
		}
		c.warned[t.Queue] = true
		c.log.Warn("tasks wait in a queue without workers", "queue", t.Queue, "waiting", t.Count,
			"do", "add it to --workers, unless another process works on it")
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
