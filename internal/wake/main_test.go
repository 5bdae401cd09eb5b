package wake_test

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/localserver/servertest"
	"github.com/activityd/activityd/internal/wake"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // its errors come back from its methods
	servertest.Main(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// notifier is one that remembers how it was rung.
type notifier struct {
	mu   sync.Mutex
	tell func([]string)
	here []string // the queues that were rung for
	all  int
}

func (b *notifier) Forward(tell func([]string)) (cancel func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell = tell
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.tell = nil
	}
}

// Notify is what somebody in this process does.
func (b *notifier) Notify(queues ...string) {
	b.mu.Lock()
	tell := b.tell
	b.mu.Unlock()
	tell(queues)
}

func (b *notifier) NotifyLocal(queues ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.here = append(b.here, queues...)
}

func (b *notifier) NotifyAllLocal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all++
}

func (b *notifier) rung() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.here)
}

// rungForAll is how often it was rung for all queues.
func (b *notifier) rungForAll() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all
}

func (b *notifier) awaits(t *testing.T, queue string) {
	t.Helper()
	eventually(t, "the notifier is rung for "+queue, func() bool { return slices.Contains(b.rung(), queue) })
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

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.String()
}

// start runs a Wake over a client of its own, and returns when it is subscribed.
func start(t *testing.T, o *redis.Options) (*notifier, *logged) {
	t.Helper()
	b, log := &notifier{}, &logged{}
	run(t, wake.New(open(t, o), b, slog.New(slog.NewTextHandler(log, nil))))
	eventually(t, "it is subscribed", func() bool { return b.rungForAll() > 0 })
	return b, log
}

// run runs a Wake until it is stopped, or t ends.
func run(t *testing.T, w *wake.Wake) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
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

// open returns a client that gives up as soon as that of activityd.
func open(t *testing.T, o *redis.Options) *redis.Client {
	t.Helper()
	mine := *o
	mine.ContextTimeoutEnabled, mine.MaxRetries, mine.DialerRetries = true, 1, 1
	client := redis.NewClient(&mine)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

var eventually = servertest.Eventually
