package wake_test

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// worker is what an activityd process has of MySQL and Redis.
type worker struct {
	db       *sql.DB
	notifier *notify.Notifier
	queue    *queue.Queue
}

func newWorker(t *testing.T, dsn string, server *localserver.Redis) worker {
	t.Helper()
	db, err := mysql.Open(dsn)
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	p := worker{db: db, notifier: &notify.Notifier{}}
	p.queue = queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: p.notifier, Owner: t.Name()[:10]})
	run(t, wake.New(open(t, onSocket(server.Addr())), p.notifier, quiet()))
	return p
}

// telling is a handler that tells when it begins with a task.
type telling chan member.ID

func (h telling) Handle(_ context.Context, batch []queue.Task) []queue.Outcome {
	for _, t := range batch {
		h <- member.ID(t.Key)
	}
	return make([]queue.Outcome, len(batch))
}

// work starts workers that would look by themselves once an hour.
func (p worker) work(t *testing.T) (begun telling) {
	t.Helper()
	begun = make(telling, 100)
	pool := queue.NewPool(p.queue, map[string]queue.Handler{tasks.Upload: begun, tasks.FanOut: begun}, queue.PoolOptions{Log: quiet(), Notifier: p.notifier, Kinds: tasks.Kinds(), Workers: tasks.DefaultWorkers(), Poll: time.Hour, Sweep: time.Hour})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := pool.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return begun
}

func (p worker) enqueue(t *testing.T, batch ...queue.New) {
	t.Helper()
	_, err := p.queue.Enqueue(t.Context(), batch)
	must(t, err)
}

func (h telling) await(t *testing.T, want member.ID) {
	t.Helper()
	select {
	case got := <-h:
		if got != want {
			t.Fatalf("task %s begins, want %s", got, want)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("task %s does not begin", want)
	}
}

// What one process enqueues another begins at once, though it polls once an hour.
func TestOneProcessWakesAnother(t *testing.T) {
	t.Parallel()
	dsn, server := servertest.MySQLDSN(t), servertest.Redis(t)
	worker, other := newWorker(t, dsn, server), newWorker(t, dsn, server)
	begun := worker.work(t)
	other.enqueue(t, tasks.NewUpload(1)) // whenever the workers are ready
	begun.await(t, 1)

	var took []time.Duration
	for i := member.ID(2); i < 52; i++ {
		begin := time.Now()
		n := tasks.NewUpload(i)
		if i%2 == 0 {
			n = tasks.NewFanOut(i, 1)
		}
		other.enqueue(t, n)
		begun.await(t, i)
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	t.Logf("from before the enqueuing to the start: median %v, most %v", took[len(took)/2], took[len(took)-1])

	// A site that inserts by itself may publish, too.
	_, err := other.db.ExecContext(t.Context(), "INSERT INTO tasks (type, subject) VALUES ('upload', 99)")
	must(t, err)
	must(t, open(t, onSocket(server.Addr())).Publish(t.Context(), wake.Channel, "default").Err())
	begun.await(t, 99)
}

// What is enqueued while Redis is away is begun when it is back.
func TestARedisThatReturnsWakes(t *testing.T) {
	t.Parallel()
	dsn, server := servertest.MySQLDSN(t), servertest.Redis(t)
	worker, other := newWorker(t, dsn, server), newWorker(t, dsn, server)
	begun := worker.work(t)
	other.enqueue(t, tasks.NewUpload(1))
	begun.await(t, 1)
	must(t, server.Kill())
	other.enqueue(t, tasks.NewUpload(2))
	_, err := other.db.ExecContext(t.Context(), "INSERT INTO tasks (type, subject, queue) VALUES ('upload', 3, 'fan_out')") // and nobody publishes
	must(t, err)
	must(t, server.Restart(t.Context()))
	var both []member.ID
	for range 2 {
		select {
		case id := <-begun:
			both = append(both, id)
		case <-time.After(20 * time.Second):
			t.Fatalf("only %v begin", both)
		}
	}
	slices.Sort(both)
	if !slices.Equal(both, []member.ID{2, 3}) {
		t.Errorf("%v begin", both)
	}
}
