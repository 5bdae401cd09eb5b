package stream_test

import (
	"bytes"
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
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
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
	*testing.T

	dsn    string
	db     *sql.DB
	queue  *queue.Queue
	client redis.UniversalClient
	log    *logged
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchOn(t, servertest.MySQLDSN(t), newClient(t, &redis.Options{Network: "unix", Addr: servertest.Redis(t).Addr()}))
}

func newBenchOn(t *testing.T, dsn string, client redis.UniversalClient) *bench {
	t.Helper()
	db, err := mysql.Open(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &bench{T: t, dsn: dsn, db: db, queue: queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds()}), client: client, log: &logged{}}
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

// consumer returns a consumer that claims soon.
func (b *bench) consumer(name string, q stream.Enqueuer) *stream.Consumer {
	c := stream.New(b.client, q, slog.New(slog.NewTextHandler(b.log, nil)), stream.Options{Name: name})
	c.ClaimAfter(50 * time.Millisecond)
	return c
}

// start runs a consumer of the queue that claims soon.
func (b *bench) start(name string) (stop func()) {
	b.Helper()
	return b.run(b.consumer(name, b.queue))
}

// run runs a consumer until it is stopped, or the test ends.
func (b *bench) run(c *stream.Consumer) (stop func()) {
	b.Helper()
	return run(b.T, c)
}

func run(t testing.TB, c *stream.Consumer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.Run(ctx); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
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

// queued waits until the stream is empty and nothing is held, and checks that the queue has
// exactly these tasks.
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
	eventually(b.T, "the stream is empty, and nothing is held", func() bool {
		length, err1 := b.client.XLen(b.Context(), stream.Key).Result()
		pending, err2 := b.client.XPending(b.Context(), stream.Key, stream.Group).Result()
		return err1 == nil && err2 == nil && length == 0 && pending.Count == 0
	})
}

// awaitHeld waits until consumers hold n entries.
func (b *bench) awaitHeld(n int64) {
	b.Helper()
	eventually(b.T, fmt.Sprintf("%d entries are held", n), func() bool {
		pending, err := b.client.XPending(b.Context(), stream.Key, stream.Group).Result()
		return err == nil && pending.Count == n
	})
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
type logged struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

// count returns how many lines have a text.
func (l *logged) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.out.String(), text)
}
