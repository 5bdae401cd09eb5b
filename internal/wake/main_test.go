package wake_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/testing/logtest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
)

func TestMain(m *testing.M) {
	redis.SetLogger(silent{}) // its errors come back from its methods
	servertest.Main(m)
}

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// process is a process with its notifications.
type process struct {
	notify.Notifier

	others   <-chan struct{} // of a name that no process notifies, but with all
	allNames int             // how often it was notified under all names
}

func newProcess() *process {
	p := &process{}
	p.others, _ = p.Subscribe("a name that no process notifies")
	return p
}

// notifiedOfAll is how often it was notified under all names.
func (p *process) notifiedOfAll() int {
	select {
	case <-p.others:
		p.allNames++
	default:
	}
	return p.allNames
}

// expect subscribes to a name. The channel is empty.
func (p *process) expect(t *testing.T, name string) <-chan struct{} {
	t.Helper()
	c, cancel := p.Subscribe(name)
	t.Cleanup(cancel)
	return c
}

// await waits for a notification.
func await(t *testing.T, notified <-chan struct{}) {
	t.Helper()
	select {
	case <-notified:
	case <-time.After(20 * time.Second):
		t.Fatal("no notification within 20 s")
	}
}

// start runs a Wake over a client of its own, and returns when it is subscribed.
func start(t *testing.T, o *redis.Options) (*process, *logtest.Log) {
	t.Helper()
	p, log := newProcess(), &logtest.Log{}
	run(t, wake.New(open(t, o), &p.Notifier, log.Logger()))
	eventually(t, "it is subscribed", func() bool { return p.notifiedOfAll() > 0 })
	return p, log
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
