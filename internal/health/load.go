package health

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
)

// Queue tells a [Load] how long tasks have been due; see [queue.Queue].
type Queue interface {
	Due(ctx context.Context, kinds ...string) (map[string]time.Duration, error)
}

// Backlog counts the waiting tasks; see [queue.Queue].
type Backlog interface {
	CountWaiting(ctx context.Context, limit int) (int, error)
}

// Load knows how far behind the sets may be, and whether too many tasks wait, so that the API can
// refuse more. Rows that a site inserts, and tasks that activityd enqueues for itself, are never
// refused. It is safe for concurrent use.
type Load struct {
	queue Queue
	kinds []string // that may change sets
	waits Backlog
	limit int
	mysql *outage.Log
	count *outage.Log // of the counts
	log   *slog.Logger
	full  bool // as of the last count
	again time.Time
	due   atomic.Pointer[dueSeen]

	mu   sync.Mutex
	room int // how many tasks may still be enqueued before the next count
}

// dueSeen is the result of the last look that succeeded.
type dueSeen struct {
	at time.Time
	api.Behind
}

const (
	// loadLook is how often a Load looks, and how long each look may take.
	loadLook = 2 * time.Second
	// loadCount is how long a count may take. After a count there is none for countShare times its duration.
	loadCount  = 10 * time.Second
	countShare = 10
	// loadRetry is when a refused client may ask again: after a look.
	loadRetry = 5 * time.Second
	// dueKept is how long the last look counts while looks fail: longer than loadCount.
	dueKept = 12 * time.Second
)

// NewLoad returns a Load that is full when at least limit tasks wait, and never when limit is 0.
// Before [Load.Run] it takes an empty queue for granted. The sets are behind by the tasks of kinds. The log of MySQL
// gets the result of looks.
func NewLoad(queue Queue, kinds []string, waits Backlog, limit int, mysql *outage.Log, log *slog.Logger) *Load {
	count := outage.Of(log, "waiting tasks cannot be counted", "waiting tasks can be counted again")
	return &Load{queue: queue, kinds: kinds, waits: waits, limit: limit, mysql: mysql, count: count, log: log, room: limit}
}

// Run looks at once and then every two seconds, until ctx ends; it returns nil. The limit holds while counts
// fail: all tasks that [Load.Overloaded] allowed since the last count wait still, as far as is known.
func (l *Load) Run(ctx context.Context) error {
	tick := time.NewTicker(loadLook)
	defer tick.Stop()
	for {
		_ = l.look(ctx, func(ctx context.Context) error { // if it fails, the last look holds for a while
			due, err := l.queue.Due(ctx, l.kinds...)
			if err == nil {
				l.due.Store(&dueSeen{time.Now(), api.NewBehind(due)})
			}
			return err
		})
		if l.limit > 0 {
			l.watch(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
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

// Overloaded reports whether n more tasks would be too many, and when to ask again. If they are not,
// they count from then on; with n = 0 it asks about a single task. It costs nothing.
func (l *Load) Overloaded(n int) (retryAfter time.Duration, overloaded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limit > 0 && l.room < max(n, 1) {
		return loadRetry, true
	}
	l.room -= n
	return loadRetry, false
}

// watch counts the waiting tasks, up to the limit. Counts take a tenth of the time at most. Tasks that are enqueued
// during a count may be missing until the next.
func (l *Load) watch(ctx context.Context) {
	began := time.Now()
	if began.Before(l.again) {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, loadCount)
	n, err := l.waits.CountWaiting(bounded, l.limit)
	cancel()
	l.again = time.Now().Add(countShare * time.Since(began))
	if err == nil {
		l.counted(ctx, n)
	}
	if ctx.Err() == nil && !errors.Is(err, mysql.ErrUnavailable) { // else the log has the outage
		l.count.Report(ctx, began, err)
	}
}

// counted notes that n tasks wait.
func (l *Load) counted(ctx context.Context, n int) {
	l.mu.Lock()
	l.room = l.limit - n
	l.mu.Unlock()
	before := l.full
	l.full = n >= l.limit
	switch {
	case l.full == before:
	case l.full:
		l.log.WarnContext(ctx, "too many tasks wait; the API refuses tasks", "limit", l.limit)
	default:
		l.log.InfoContext(ctx, "fewer tasks wait; the API accepts tasks again", "limit", l.limit)
	}
}

// look makes a call for a limited time, and reports its result if that is about the server.
func (l *Load) look(ctx context.Context, call func(context.Context) error) error {
	began := time.Now()
	bounded, cancel := context.WithTimeout(ctx, loadLook)
	defer cancel()
	err := call(bounded)
	if ctx.Err() == nil && (err == nil || errors.Is(err, mysql.ErrUnavailable)) {
		l.mysql.Report(ctx, began, err)
	}
	return err
}
