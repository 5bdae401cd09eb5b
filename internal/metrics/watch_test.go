package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
)

// watched runs a test while the queue is watched, in a bubble of time.
func watched(t *testing.T, o metrics.Options, q *fakeQueue, test func(t *testing.T, m *metrics.Metrics)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		m := metrics.New(o)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Watch(ctx, q) }()
		synctest.Wait()
		test(t, m)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// after lets time pass in the bubble.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestTheQueuesAreShown(t *testing.T) {
	t.Parallel()
	q := &fakeQueue{stats: tasks.Stats{
		Tasks: []tasks.TaskStats{
			{Queue: tasks.QueueDefault, Type: tasks.Upload, State: tasks.Waiting, Count: 4},
			{Queue: tasks.QueueRefill, Type: tasks.Refill, State: tasks.Dead, Count: 2},
			{Queue: "a", Type: "x", State: tasks.Dead, Count: 2},
			{Queue: "b", Type: "y", State: tasks.Dead, Count: 3},
		},
		Queues: []tasks.QueueStats{
			{Queue: tasks.QueueDefault, Oldest: 90 * time.Second},
			{Queue: tasks.QueueFanOut, Paused: true},
			{Queue: "a", Oldest: time.Second, Due: time.Hour, Capped: true},
			{Queue: "b", Oldest: time.Minute, Due: time.Minute},
		},
	}}
	watched(t, metrics.Options{}, q, func(t *testing.T, m *metrics.Metrics) {
		got := gather(t, m)
		got.has(t, samples{
			`activityd_tasks{queue="default",state="waiting",type="upload"}`:      4,
			`activityd_tasks{queue="refill",state="dead",type="refill"}`:          2,
			`activityd_tasks{queue="other",state="dead",type="other"}`:            5,
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
			`activityd_stats_last_success_timestamp_seconds`:                      float64(time.Now().Unix()),
			`activityd_mysql_up`:                                                  1,
		})
	})
}

// An old number must not look like a new one.
func TestWithoutAnAnswerTheQueuesVanish(t *testing.T) {
	t.Parallel()
	var failure atomic.Pointer[error]
	q := &fakeQueue{ask: func(context.Context) (tasks.Stats, error) {
		if err := failure.Load(); err != nil {
			return tasks.Stats{}, *err
		}
		return tasks.Stats{}, nil
	}}
	log := &lines{}
	const told = "cannot look at the queues"
	watched(t, metrics.Options{Log: log.logger()}, q, func(t *testing.T, m *metrics.Metrics) {
		away := fmt.Errorf("stats: %w", mysql.ErrUnavailable)
		failure.Store(&away)
		after(metrics.DefaultInterval)
		got := gather(t, m)
		got.has(t, samples{`activityd_stats_success`: 0, `activityd_mysql_up`: 0})
		if len(got.named("activityd_tasks")) == 0 {
			t.Error("the queues vanished at the first failure")
		}
		after(3 * metrics.DefaultInterval)
		for _, name := range []string{"activityd_tasks", "activityd_oldest_waiting_seconds", "activityd_oldest_due_seconds", "activityd_queue_paused", "activityd_counts_capped"} {
			if left := gather(t, m).named(name); len(left) != 0 {
				t.Errorf("still there: %v", left)
			}
		}
		if n := log.count(told); n != 0 { // the queue's callers tell of it
			t.Errorf("the log was told %d times of an outage", n)
		}
		broken := errors.New("no such table")
		failure.Store(&broken)
		after(metrics.DefaultInterval)
		gather(t, m).has(t, samples{`activityd_stats_success`: 0, `activityd_mysql_up`: 1}) // it answers
		failure.Store(nil)
		after(metrics.DefaultInterval)
		got = gather(t, m)
		got.has(t, samples{`activityd_stats_success`: 1, `activityd_mysql_up`: 1, `activityd_queue_paused{queue="default"}`: 0})
		failure.Store(&broken)
		after(3 * metrics.DefaultInterval)
		if n := log.count(told); n != 2 {
			t.Errorf("the log was told %d times of two failures", n)
		}
	})
}

// A scrape costs the database nothing, and a slow database is asked less often.
func TestLooksAreFewAndBounded(t *testing.T) {
	t.Parallel()
	var looks, atOnce atomic.Int64
	q := &fakeQueue{ask: func(ctx context.Context) (tasks.Stats, error) {
		looks.Add(1)
		if atOnce.Add(1) > 1 {
			t.Error("two looks at once")
		}
		defer atOnce.Add(-1)
		<-ctx.Done()
		return tasks.Stats{}, ctx.Err()
	}}
	log := &lines{}
	watched(t, metrics.Options{Log: log.logger()}, q, func(t *testing.T, m *metrics.Metrics) {
		for range 100 {
			gather(t, m)
		}
		if n := looks.Load(); n != 1 {
			t.Errorf("%d looks, want 1", n)
		}
		after(5 * time.Second) // it is given up
		gather(t, m).has(t, samples{`activityd_stats_success`: 0, `activityd_mysql_up`: 0, `activityd_stats_duration_seconds`: 5})
		after(40 * time.Second) // less than nine tenths of ten times that
		if n := looks.Load(); n != 1 {
			t.Errorf("%d looks, want 1", n)
		}
		after(10 * time.Second)
		if n := looks.Load(); n != 2 {
			t.Errorf("%d looks, want 2", n)
		}
	})
}

// The end of the process says nothing about MySQL.
func TestAnInterruptedLookIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		m := metrics.New(metrics.Options{Log: log.logger()})
		ctx, cancel := context.WithCancel(t.Context())
		q := &fakeQueue{ask: func(ctx context.Context) (tasks.Stats, error) {
			cancel()
			return tasks.Stats{}, ctx.Err()
		}}
		if err := m.Watch(ctx, q); err != nil {
			t.Error(err)
		}
		if up := gather(t, m).named("activityd_mysql_up"); len(up) != 0 || log.count("WARN") != 0 {
			t.Errorf("%v, log: %s", up, log.buf.String())
		}
	})
}

func TestTasksThatNobodyWorksOnAreToldOnce(t *testing.T) {
	t.Parallel()
	q := &fakeQueue{stats: tasks.Stats{Tasks: []tasks.TaskStats{
		{Queue: "deflaut", Type: tasks.Upload, State: tasks.Waiting, Count: 7},
		{Queue: "dead", Type: tasks.Upload, State: tasks.Dead, Count: 7},
		{Queue: tasks.QueueDefault, Type: tasks.Upload, State: tasks.Waiting, Count: 7},
	}}}
	for _, c := range []struct {
		queues []string
		want   int
	}{
		{[]string{tasks.QueueDefault, tasks.QueueFanOut}, 1},
		{[]string{tasks.QueueFanOut}, 2},
		{nil, 0}, // it has no workers: others have
	} {
		log := &lines{}
		watched(t, metrics.Options{Queues: c.queues, Log: log.logger()}, q, func(t *testing.T, _ *metrics.Metrics) {
			after(10 * metrics.DefaultInterval)
			if n := log.count("no worker of this process"); n != c.want {
				t.Errorf("working on %v: told %d times, want %d", c.queues, n, c.want)
			}
			if c.want > 0 && log.count("queue=deflaut waiting=7") != 1 {
				t.Errorf("the log does not name the queue: %s", log.buf.String())
			}
		})
	}
}
