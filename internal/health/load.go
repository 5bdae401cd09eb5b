package health

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
)

// Queue is the part of [queue.Queue] that a [Load] looks at.
type Queue interface {
	Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error)
	CountWaiting(ctx context.Context, limit int) (int, error)
}

// Load knows how far behind the sets may be, and whether too many tasks wait, so that the API can
// refuse more. Rows that a site inserts, and tasks that activityd enqueues for itself, are never
// refused. It is safe for concurrent use.
type Load struct {
	queue Queue
	kinds []string // that may change sets
	limit int
	mysql *outage.Log
	count *outage.Log // of the counts
	log   *slog.Logger
	full  bool         // as of the last count; used by Run only
	room  atomic.Int64 // how many more tasks may come before the next count
	due   atomic.Pointer[dueSeen]
}

// dueSeen is the result of the last look that succeeded.
type dueSeen struct {
	at time.Time
	api.Behind
}

const (
	loadLook  = 2 * time.Second // between two looks, and how long each may take
	loadCount = 5 * time.Second // how long a count may take, after each tenth look
	// dueKept is how long the last look counts while looks fail: longer than a look and a count.
	dueKept = 12 * time.Second
)

// NewLoad returns a Load that is full when at least limit tasks wait, and never when limit is 0.
// Before [Load.Run] it takes an empty queue for granted. The sets are behind by the tasks of kinds. The log of MySQL
// gets the result of looks.
func NewLoad(queue Queue, kinds []string, limit int, mysql *outage.Log, log *slog.Logger) *Load {
	count := outage.Of(log, "waiting tasks cannot be counted", "waiting tasks can be counted again")
	l := &Load{queue: queue, kinds: kinds, limit: limit, mysql: mysql, count: count, log: log}
	l.room.Store(int64(limit))
	return l
}

// Run looks at once and then every two seconds, until ctx ends; it returns nil. The limit holds while counts
// fail: all tasks that [Load.Overloaded] let in since the last count wait still, as far as is known.
func (l *Load) Run(ctx context.Context) error {
	tick := time.NewTicker(loadLook)
	defer tick.Stop()
	for n := 0; ; n++ {
		l.look(ctx)
		if l.limit > 0 && n%10 == 0 {
			l.countWaiting(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// look notes how long tasks have been due.
func (l *Load) look(ctx context.Context) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, loadLook)
	defer cancel()
	due, err := l.queue.Due(bounded, l.kinds...)
	if err == nil {
		l.due.Store(&dueSeen{time.Now(), api.NewBehind(due)})
	}
	if ctx.Err() == nil && (err == nil || errors.Is(err, mysql.ErrUnavailable)) {
		l.mysql.Report(ctx, began, err)
	}
}

// countWaiting counts the waiting tasks, up to the limit. Tasks that are enqueued during a count may be missing until
// the next.
func (l *Load) countWaiting(ctx context.Context) {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, loadCount)
	defer cancel()
	n, err := l.queue.CountWaiting(bounded, l.limit)
	if ctx.Err() == nil && !errors.Is(err, mysql.ErrUnavailable) { // else the log has the outage
		l.count.Report(ctx, began, err)
	}
	if err != nil {
		return
	}
	l.room.Store(int64(l.limit - n))
	full := n >= l.limit
	switch {
	case full == l.full:
	case full:
		l.log.WarnContext(ctx, "too many tasks wait; the API refuses tasks", "limit", l.limit)
	default:
		l.log.InfoContext(ctx, "fewer tasks wait; the API accepts tasks again", "limit", l.limit)
	}
	l.full = full
}

// Overloaded reports whether n more tasks would be too many; for 0, whether a single task would. If not, the n tasks
// count until the next count. It costs a look in memory.
func (l *Load) Overloaded(n int) bool {
	for l.limit > 0 {
		room := l.room.Load()
		if room < int64(max(n, 1)) {
			return true
		}
		if l.room.CompareAndSwap(room, room-int64(n)) {
			break
		}
	}
	return false
}

// Behind returns how far behind the sets may be, as of some seconds ago; nil when that is not known. It costs a look in memory.
func (l *Load) Behind() *api.Behind {
	seen := l.due.Load()
	if seen == nil || time.Since(seen.at) > dueKept {
		return nil
	}
	return &seen.Behind
}

var descBehind = prometheus.NewDesc("activityd_behind_seconds", "How long ago the oldest task became due that may change a set and is not done; 0: none. A fact of the database.", nil, nil)

// Describe implements [prometheus.Collector].
func (l *Load) Describe(out chan<- *prometheus.Desc) { out <- descBehind }

// Collect implements [prometheus.Collector]. There is no series while nothing is known.
func (l *Load) Collect(out chan<- prometheus.Metric) {
	if b := l.Behind(); b != nil {
		out <- prometheus.MustNewConstMetric(descBehind, prometheus.GaugeValue, b.Longest.Seconds())
	}
}
