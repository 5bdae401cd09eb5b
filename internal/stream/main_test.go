package stream_test

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/queue"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // its errors come back from its methods
	if task := os.Getenv(processVariable); task != "" {
		if err := beProcess(context.Background(), task); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	servertest.Main(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

var eventually = servertest.Eventually

// bench is a Redis and a database for one test.
type bench struct {
	testing.TB

	dsn    string
	db     *sql.DB
	queue  *queue.Queue
	client redis.UniversalClient
	log    *logged
}

func newBench(t testing.TB) *bench {
	t.Helper()
	return newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr()}))
}

func newBenchOn(t testing.TB, dsn string, client redis.UniversalClient) *bench {
	t.Helper()
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &bench{TB: t, dsn: dsn, db: db, queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), client: client, log: &logged{}}
}

// newClient returns a client that repeats as seldom as that of activityd; unless o says
// otherwise it is more patient.
func newClient(t testing.TB, o *redis.Options) *redis.Client {
	t.Helper()
	o.ReadTimeout = cmp.Or(o.ReadTimeout, time.Minute)
	o.ContextTimeoutEnabled, o.MaxRetries, o.DialerRetries = true, 1, 1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// mover returns a mover whose turn soon ends when it dies.
func (b *bench) mover(q stream.Enqueuer) *stream.Mover {
	log := slog.New(slog.NewTextHandler(b.log, nil))
	m := stream.New(b.client, q, log, outage.New(log, "MySQL"), outage.New(log, "Redis"))
	m.LeaseTime(50 * time.Millisecond)
	return m
}

// start runs a mover into the queue.
func (b *bench) start() (stop func()) {
	b.Helper()
	return b.run(b.mover(b.queue))
}

// run runs a mover until it is stopped, or the test ends.
func (b *bench) run(m *stream.Mover) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Run(ctx); err != nil {
			b.Errorf("Run: %v", err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	b.Cleanup(stop)
	return stop
}

// add adds an entry with the given fields and values.
func (b *bench) add(fields ...any) (id string) {
	b.Helper()
	id, err := b.client.XAdd(b.Context(), &redis.XAddArgs{Stream: stream.Key, Values: fields}).Result()
	b.must(err)
	return id
}

// upload adds an upload of a member.
func (b *bench) upload(member int) (id string) {
	b.Helper()
	return b.add("task", uploadOf(member))
}

func uploadOf(member int) string { return fmt.Sprintf(`{"type":"upload","user_id":"%d"}`, member) }

// uploads adds uploads of the members first to last.
func (b *bench) uploads(first, last int) {
	b.Helper()
	_, err := b.client.Pipelined(b.Context(), func(p redis.Pipeliner) error {
		for i := first; i <= last; i++ {
			p.XAdd(b.Context(), &redis.XAddArgs{Stream: stream.Key, Values: []any{"task", uploadOf(i)}})
		}
		return nil
	})
	b.must(err)
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// tasks returns the tasks of the queue, as kind:key, in order. While MySQL is away there are
// none.
func (b *bench) tasks() (list []string) {
	rows, err := b.db.QueryContext(context.Background(), "SELECT CONCAT(type, ':', subject) FROM tasks ORDER BY type, subject")
	if err != nil {
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		b.must(rows.Scan(&s))
		list = append(list, s)
	}
	if rows.Err() != nil {
		return nil
	}
	return list
}

// uploaded returns the tasks that uploads of the members first to last are.
func uploaded(first, last int) (list []string) {
	for i := first; i <= last; i++ {
		list = append(list, fmt.Sprintf("upload:%d", i))
	}
	slices.Sort(list)
	return list
}

// queued waits until the stream is empty, and checks that the queue has exactly the tasks in want.
func (b *bench) queued(want []string) {
	b.Helper()
	b.awaitEmpty()
	got := b.tasks()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		b.Fatalf("%d tasks: %v\nwant %d: %v", len(got), got, len(want), want)
	}
}

func (b *bench) awaitEmpty() {
	b.Helper()
	eventually(b.TB, "the stream is empty", func() bool {
		length, err := b.client.XLen(b.Context(), stream.Key).Result()
		return err == nil && length == 0
	})
}

func (b *bench) exec(statement string) {
	b.Helper()
	_, err := b.db.ExecContext(b.Context(), statement)
	b.must(err)
}

// dead returns the entries of the dead.
func (b *bench) dead() []redis.XMessage {
	b.Helper()
	list, err := b.client.XRange(b.Context(), stream.DeadKey, "-", "+").Result()
	b.must(err)
	return list
}

// enqueueFunc is an Enqueuer.
type enqueueFunc func(ctx context.Context, batch []queue.New) ([]uint64, error)

func (f enqueueFunc) Enqueue(ctx context.Context, batch []queue.New) ([]uint64, error) {
	return f(ctx, batch)
}

// logged is a log that can be read while it is written.
type logged struct{ logtest.Log }

// count returns how many lines have a text.
func (l *logged) count(text string) int { return strings.Count(l.String(), text) }
