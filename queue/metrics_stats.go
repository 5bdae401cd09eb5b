package queue

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/newest"

	"github.com/prometheus/client_golang/prometheus"
)

// A [StatsCollector] asks for at most statsTimeout, and answers the scrapes of the
// next statsInterval with what it got, or of a time statsShare times as long as the
// answer took: however many scrape, the database does little for them. A scrape waits for
// statsWait, and then shows the answer before.
const (
	statsWait     = 50 * time.Millisecond
	statsTimeout  = 5 * time.Second
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

	looked *newest.Answer[looked]
	before looked          // the look before, of which one is under way at a time
	warned map[string]bool // queues without workers that were logged
}

// looked is what a look at the queues found.
type looked struct {
	Stats
	err     error // why there is nothing
	took    time.Duration
	success time.Time // of the last look that succeeded
}

// NewStatsCollector returns a collector of what stats returns, in a process with
// workers on the given queues.
func NewStatsCollector(kinds Kinds, stats func(context.Context) (Stats, error), worked []string, log *slog.Logger) *StatsCollector {
	c := &StatsCollector{kinds: kinds, stats: stats, worked: worked, log: log, warned: make(map[string]bool)}
	c.looked = newest.New(c.look)
	return c
}

// Describe implements [prometheus.Collector].
func (c *StatsCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{descTasks, descOldest, descDue, descPaused, descCapped, descSuccess, descLooked, descTook, descMySQLUp} {
		out <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *StatsCollector) Collect(out chan<- prometheus.Metric) {
	last, known := c.looked.Get(statsWait)
	if !known { // the first look is under way
		last.err = context.DeadlineExceeded
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	at := 0.0
	if !last.success.IsZero() {
		at = float64(last.success.UnixMilli()) / 1000
	}
	gauge(descSuccess, truth(last.err == nil))
	gauge(descLooked, at)
	gauge(descTook, last.took.Seconds())
	gauge(descMySQLUp, truth(!errors.Is(last.err, mysql.ErrUnavailable) && !errors.Is(last.err, context.DeadlineExceeded)))
	if last.err == nil {
		c.collectQueues(last.Stats, gauge)
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
		counts[labels{c.label(t.Queue), c.kinds.label(t.Kind), string(t.State)}] += t.Count
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
func (c *StatsCollector) look() (is looked, keep time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), statsTimeout)
	defer cancel()
	start := time.Now()
	is.Stats, is.err = c.stats(ctx)
	is.took, is.success = time.Since(start), c.before.success
	switch {
	case is.err == nil:
		is.success = time.Now()
		c.warnOfUnworked(is.Stats)
	case c.before.err == nil && !errors.Is(is.err, mysql.ErrUnavailable):
		c.log.Warn("cannot look at the queues", "error", is.err) // their metrics vanish until it succeeds again
	}
	c.before = is
	return is, max(statsInterval, statsShare*is.took)
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
