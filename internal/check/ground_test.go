package check

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	sites "github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// ground is a site on real servers, with workers.
type ground struct {
	*Checker
	client   *redis.Client // the test's own look at Redis
	index    *index.Index
	store    *contacts.MySQL
	db       *sql.DB
	site     sites.Site
	queue    *queue.Queue
	notifier *notify.Notifier
	reader   *recent.Reader // as the service has it, with hints
}

func onServers(t *testing.T) *ground {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t), mysql.WithMaxOpen(24))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	g := &ground{store: contacts.NewMySQL(db), db: db, site: sites.NewMySQL(db), notifier: &notify.Notifier{}}
	g.queue = queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: g.notifier, Owner: "test"})
	g.client = redis.NewClient(&redis.Options{
		Network: "unix", Addr: servertest.Redis(t).Addr(), ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = g.client.Close() })
	g.index = index.New(g.client, index.Options{Settings: settings(t)})
	t.Cleanup(func() { _ = g.index.Close() })
	must(t, g.index.Probe(t.Context()).Err())
	running(t, func(ctx context.Context) error { return g.index.Watch(ctx, func(time.Time, redisnodes.Status) {}) })
	hints := tasks.NewHints(g.queue, slog.New(slog.DiscardHandler))
	running(t, hints.Run)
	g.reader = recent.NewReader(g.index, g.store, hints, recent.Options{Min: settings(t).Min})
	g.Checker = g.checker(t, 50*time.Millisecond)
	return g
}

func (g *ground) checker(t *testing.T, pause time.Duration) *Checker {
	t.Helper()
	reads := recent.NewReader(g.index, g.store, noHints{}, recent.Options{Min: settings(t).Min})
	return &Checker{Sets: g.index, Truth: g.store, Tasks: g.queue, Read: reads.Read, pause: pause}
}

// running runs something until t ends, or until stop is called.
func running(t testing.TB, run func(context.Context) error) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(stop)
	return stop
}

// work starts workers, whose handlers a test may wrap.
func (g *ground) work(t testing.TB, check queue.Handler, wraps ...func(queue.Handler) queue.Handler) (stop func()) {
	t.Helper()
	handlers := tasks.Handlers(g.index, g.store, g.queue, tasks.HandlerOptions{PartSize: 7, Check: check})
	for kind, h := range handlers {
		for _, wrap := range wraps {
			handlers[kind] = wrap(h)
		}
	}
	pool := queue.NewPool(g.queue, handlers, queue.PoolOptions{
		Log: slog.New(slog.DiscardHandler),
		Workers: []queue.Workers{
			{Queue: tasks.QueueDefault, Count: 2, Batch: 20},
			{Queue: tasks.QueueFanOut, Count: 1, Batch: 5},
			{Queue: tasks.QueueFanOutAgain, Count: 1, Batch: 5},
			{Queue: tasks.QueueRefill, Count: 1, Batch: 50},
			{Queue: tasks.QueueBackfill, Count: 2},
			{Queue: tasks.QueueCheck, Count: 1},
		},
		Poll: 20 * time.Millisecond, Grace: time.Second,
		Away: health.Waits,
	})
	return running(t, pool.Run)
}

// quiet waits until no task is open.
func (g *ground) quiet(t testing.TB) {
	t.Helper()
	eventually(t, "no task is open", func() bool {
		c, err := queuetest.Count(t.Context(), g.queue)
		must(t, err)
		return c.Open() == 0
	})
}

// settle members: viewers call each of the next n owners, counted from firstOwner
// and around, a contact; every owner uploaded once. Sets are built by refills.
func (g *ground) settle(t testing.TB, viewers, owners []member.ID, n int) {
	t.Helper()
	var members []sites.Member
	var relations []sites.Relation
	var photos []sites.Photo
	for i, id := range owners {
		members = append(members, sites.Member{ID: id, Username: "owner " + id.String()})
		photos = append(photos, sites.Photo{Owner: id, Visibility: contacts.Public, DateUpload: 1_000_000 + 10*uint64(i)})
	}
	for i, id := range viewers {
		members = append(members, sites.Member{ID: id, Username: "viewer " + id.String()})
		for j := range n {
			relations = append(relations, sites.Relation{User: id, Contact: owners[(i+j)%len(owners)]})
		}
	}
	ctx := t.Context()
	must(t, g.site.LoadMembers(ctx, members))
	must(t, g.site.LoadContacts(ctx, relations))
	must(t, g.site.LoadPhotos(ctx, photos))
	h := &tasks.RefillHandler{Index: g.index, Store: g.store}
	batch := make([]queue.Task, len(viewers))
	for i, id := range viewers {
		batch[i] = queue.Task{Kind: tasks.Refill, Key: uint64(id)}
	}
	for _, err := range queuetest.Errors(h.Handle(ctx, batch)) {
		must(t, err)
	}
}

// from returns n ids from first.
func from(first member.ID, n int) []member.ID {
	ids := make([]member.ID, n)
	for i := range ids {
		ids[i] = first + member.ID(i)
	}
	return ids
}
