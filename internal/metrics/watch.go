package metrics

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
)

// Queue is what the watch asks.
type Queue interface {
	Stats(ctx context.Context) (tasks.Stats, error)
}

// watchTimeout bounds one look at the queues.
const watchTimeout = 5 * time.Second

// watchShare bounds what looking costs the database: after a look that took t,
// the next one waits at least watchShare times t.
const watchShare = 10

// watch looks at the queues now and then.
type watch struct {
	queues  *queueGauges
	worked  []string // the queues on which this process works
	options Options

	success, looked, took prometheus.Gauge
	mysqlUp               *prometheus.GaugeVec // has no series until something is known

	failing bool            // the last look failed: the log was told
	warned  map[string]bool // queues that nobody works on: the log was told
}

// maxWarned bounds the memory of strange queues, whose names are anybody's.
const maxWarned = 100

func newWatch(r prometheus.Registerer, f promauto.Factory, queues labels, o Options) *watch {
	w := &watch{
		queues: newQueueGauges(queues, 3*o.Interval), worked: o.Queues, options: o,
		success: f.NewGauge(gaugeOpts("stats_success", "1 if the last look at the queues succeeded, 0 if not.")),
		looked: f.NewGauge(gaugeOpts("stats_last_success_timestamp_seconds",
			"Unix time of the last look at the queues that succeeded; 0: none yet.")),
		took:    f.NewGauge(gaugeOpts("stats_duration_seconds", "Time that the last look at the queues took.")),
		mysqlUp: f.NewGaugeVec(gaugeOpts("mysql_up", "1 if MySQL answered the last look at the queues, 0 if not."), nil),
		warned:  make(map[string]bool),
	}
	r.MustRegister(w.queues)
	return w
}

// Watch looks at the queues every Options.Interval, until ctx ends, whose end is
// no error: one look at a time, each bounded in time, and more seldom when they
// take long. Call Watch once.
func (m *Metrics) Watch(ctx context.Context, queue Queue) error {
	for ctx.Err() == nil {
		took := m.watch.look(ctx, queue)
		d := max(m.watch.options.Interval, watchShare*took)
		// Less a random tenth, so that the processes of a site do not all look at once.
		_ = retry.Sleep(ctx, d-rand.N(d/10+1))
	}
	return nil
}

// look asks the queue once.
func (w *watch) look(ctx context.Context, queue Queue) (took time.Duration) {
	bounded, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	start := time.Now()
	stats, err := queue.Stats(bounded)
	took = time.Since(start)
	if ctx.Err() != nil {
		return took // the process stops, which says nothing about MySQL
	}
	w.took.Set(took.Seconds())
	w.success.Set(truth(err == nil))
	away := errors.Is(err, mysql.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
	w.mysqlUp.WithLabelValues().Set(truth(!away))
	if errors.Is(err, mysql.ErrUnavailable) {
		return took // the queue's callers log outages of MySQL
	}
	if err != nil {
		w.failed(ctx, err)
		return took
	}
	w.failing = false
	w.looked.SetToCurrentTime()
	w.queues.set(stats)
	w.warnOfUnworked(ctx, stats)
	return took
}

// failed tells the log once until a look succeeds.
func (w *watch) failed(ctx context.Context, err error) {
	if !w.failing {
		w.options.Log.WarnContext(ctx, "cannot look at the queues: their metrics vanish until it succeeds again", "error", err)
	}
	w.failing = true
}

// warnOfUnworked tells the log, once for each queue, of tasks that wait where no
// worker of this process looks: a misspelt queue, or one that other processes
// have to serve. A process without workers knows nothing about that.
func (w *watch) warnOfUnworked(ctx context.Context, stats tasks.Stats) {
	if len(w.worked) == 0 {
		return
	}
	for _, t := range stats.Tasks {
		idle := t.State == tasks.Waiting && labels(w.worked).of(t.Queue) == other
		if !idle || w.warned[t.Queue] || len(w.warned) >= maxWarned {
			continue
		}
		w.warned[t.Queue] = true
		w.options.Log.LogAttrs(ctx, slog.LevelWarn,
			"tasks wait in a queue on which no worker of this process works; if no other process does, add it to --workers",
			slog.String("queue", t.Queue), slog.Int("waiting", t.Count))
	}
}
