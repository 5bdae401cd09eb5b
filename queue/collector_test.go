package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/queue"
)

// asked is a queue whose Stats a test makes up.
type asked struct {
	stats queue.Stats
	err   error
	takes time.Duration
	looks int
}

func (q *asked) Stats(ctx context.Context) (queue.Stats, error) {
	q.looks++
	if q.err != nil {
		return queue.Stats{}, q.err
	}
	return q.stats, sleepFor(ctx, q.takes)
}

// has compares some samples.
func has(t *testing.T, got, want metricstest.Samples) {
	t.Helper()
	for series, value := range want {
		if n, ok := got[series]; !ok || n != value {
			t.Errorf("%s is %v (there: %v), want %v", series, n, ok, value)
		}
	}
}

var queueMetrics = []string{"activityd_tasks", "activityd_oldest_waiting_seconds", "activityd_oldest_due_seconds", "activityd_queue_paused", "activityd_counts_capped"}

func TestTheQueuesAreShown(t *testing.T) {
	t.Parallel()
	q := &asked{stats: queue.Stats{
		Tasks: []queue.TaskStats{
			{Queue: tasks.QueueDefault, Kind: tasks.Upload, State: queue.Waiting, Count: 4},
			{Queue: tasks.QueueRefill, Kind: tasks.Refill, State: queue.Dead, Count: 2},
			{Queue: "mine", Kind: tasks.Refill, State: queue.Dead, Count: 1},
			{Queue: "a", Kind: "x", State: queue.Dead, Count: 2},
			{Queue: "b", Kind: "y", State: queue.Dead, Count: 3},
		},
		Queues: []queue.Summary{
			{Queue: tasks.QueueDefault, Oldest: 90 * time.Second},
			{Queue: tasks.QueueFanOut, Paused: true},
			{Queue: "a", Oldest: time.Second, Due: time.Hour, Capped: true},
			{Queue: "b", Oldest: time.Minute, Due: time.Minute},
		},
	}}
	c := queue.NewStatsCollector(tasks.Kinds(), q.Stats, []string{"mine"}, new(logtest.Log).Logger())
	has(t, metricstest.Gather(t, c), metricstest.Samples{
		`activityd_tasks{queue="default",state="waiting",type="upload"}`:      4,
		`activityd_tasks{queue="refill",state="dead",type="refill"}`:          2,
		`activityd_tasks{queue="mine",state="dead",type="refill"}`:            1,
		`activityd_tasks{queue="other",state="dead",type="x"}`:                2,
		`activityd_tasks{queue="other",state="dead",type="y"}`:                3,
		`activityd_tasks{queue="default",state="running",type="add_contact"}`: 0,
		`activityd_oldest_waiting_seconds{queue="default"}`:                   90,
		`activityd_oldest_waiting_seconds{queue="refill"}`:                    0,
		`activityd_oldest_waiting_seconds{queue="other"}`:                     60,
		`activityd_oldest_due_seconds{queue="other"}`:                         3600,
		`activityd_oldest_due_seconds{queue="refill"}`:                        0,
		`activityd_queue_paused{queue="fan_out"}`:                             1,
		`activityd_queue_paused{queue="default"}`:                             0,
		`activityd_counts_capped{queue="other"}`:                              1,
		`activityd_counts_capped{queue="default"}`:                            0,
		`activityd_stats_success`:                                             1,
		`activityd_mysql_up`:                                                  1,
	})
}

// An old number that looks new would hide an outage.
func TestTheQueuesVanishWhenTheyCannotBeAsked(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		err     error
		mysqlUp float64
		lines   int
	}{
		"away":  {mysql.ErrUnavailable, 0, 0}, // logged elsewhere
		"wrong": {errors.New("Error 1054: unknown column"), 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q, log := &asked{}, &logtest.Log{}
				c := queue.NewStatsCollector(tasks.Kinds(), q.Stats, nil, log.Logger())
				first := metricstest.Gather(t, c)
				has(t, first, metricstest.Samples{"activityd_stats_success": 1, "activityd_mysql_up": 1})
				q.err = test.err
				for range 3 {
					pass(time.Minute)
					got := metricstest.Gather(t, c)
					has(t, got, metricstest.Samples{"activityd_stats_success": 0, "activityd_mysql_up": test.mysqlUp})
					if queues := got.Named(queueMetrics...); len(queues) > 0 {
						t.Errorf("still shown: %v", queues)
					}
				}
				q.err = nil
				pass(time.Minute)
				if diff := cmp.Diff(first.Named(queueMetrics...), metricstest.Gather(t, c).Named(queueMetrics...)); diff != "" {
					t.Errorf("afterwards (-first +now):\n%s", diff)
				}
				if n := strings.Count(log.String(), "cannot look at the queues"); n != test.lines {
					t.Errorf("told %d times, want %d: %s", n, test.lines, log)
				}
			})
		})
	}
}

// However many scrape, the database has little to do: it is not asked again at
// once, and the more seldom the longer it takes. It is given up after 2 s.
func TestScrapesCostTheDatabaseLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &asked{}
		c := queue.NewStatsCollector(tasks.Kinds(), q.Stats, nil, new(logtest.Log).Logger())
		for range 60 {
			metricstest.Gather(t, c)
			pass(time.Second)
		}
		if q.looks != 10 {
			t.Errorf("%d looks in a minute, want one each 5 to 6 s", q.looks)
		}
		q.takes = time.Hour
		for range 60 {
			metricstest.Gather(t, c)
			pass(time.Second)
		}
		if q.looks != 13 { // each of them takes 2 s, and is good for 20 s
			t.Errorf("%d looks, want 13", q.looks)
		}
		has(t, metricstest.Gather(t, c), metricstest.Samples{"activityd_stats_success": 0, "activityd_mysql_up": 0})
	})
}
