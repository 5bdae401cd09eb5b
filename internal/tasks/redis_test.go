package tasks_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/metricstest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// waits counts the errors of tasks that wait for Redis.
type waits struct{ count atomic.Int64 }

func (w *waits) Waits(err error) bool {
	is := health.Waits(err)
	if is && errors.Is(err, index.ErrUnavailable) {
		w.count.Add(1)
	}
	return is
}

// A Redis that dies is waited for: no task is dead, no attempt is counted, and
// everything is done soon after it is back.
func TestTasksOutliveARedisThatDies(t *testing.T) {
	t.Parallel()
	server := servertest.Redis(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Network: "unix", ContextTimeoutEnabled: true, MaxRetries: -1, DialerRetries: 1})
	t.Cleanup(func() { _ = client.Close() })
	notifier := &notify.Notifier{}
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Registerer: prometheus.DefaultRegisterer}, time.Now)
	settings, err := index.NewSettings(10, 20, 0)
	if err != nil {
		t.Fatal(err)
	}
	made := &site.Memory{Store: contactstest.NewMemory()}
	b := &bench{T: t, site: made}
	b.ladder(viewer, 5)
	ix := index.New(client, index.Options{Settings: settings})
	handlers := tasks.Handlers(ix, made.Store, q, tasks.HandlerOptions{})
	log, before := &logtest.Log{}, metricstest.Gather(t)
	needs := &waits{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- queue.NewPool(q, handlers, queue.PoolOptions{
			Log:     log.Logger(),
			Workers: tasks.DefaultWorkers(),
			Away:    needs.Waits,
		}).Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})

	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	enqueue(t, q, tasks.NewAddContact(viewer, 1), tasks.NewUpload(2), tasks.NewRefill(viewer))
	eventually(t, "all three were tried in vain", func() bool {
		postponed := 0.0
		for series, n := range metricstest.Gather(t).Since(before).Named("activityd_tasks_finished_total") {
			if strings.Contains(series, `outcome="postponed"`) {
				postponed += n
			}
		}
		return postponed >= 3
	})
	eventually(t, "all three are put off", func() bool {
		c, err := queuetest.Count(t.Context(), q)
		return err == nil && c == queuetest.Counts{Scheduled: 3}
	})
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all tasks are done", func() bool {
		c, err := queuetest.Count(t.Context(), q)
		return err == nil && c == queuetest.Counts{}
	})
	eventually(t, "the set is made", func() bool { return client.ZCard(t.Context(), "user_9001").Val() == 5 })
	if strings.Contains(log.String(), "attempt=2") {
		t.Errorf("attempts were counted: %s", log)
	}
	if needs.count.Load() < 2 || strings.Contains(log.String(), "redis unavailable") { // the log is the dependency's
		t.Errorf("%d tasks waited, the log: %s", needs.count.Load(), log)
	}
}
