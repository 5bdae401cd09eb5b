package audit_test

import (
	"context"
	"database/sql"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

// store is all that is asked of the database.
type store interface {
	audit.Truth
	bulk.Store
	recent.Store
	tasks.Store
}

// ground is a site with a real Redis, on which tasks are worked on.
type ground struct {
	*audit.Auditor
	redis    *localserver.Redis
	client   *redis.Client // the test's own look at Redis
	index    *index.Index
	store    store
	site     site.Site
	queue    queuetest.Queue
	notifier *notify.Notifier
	locks    once.Store
	reader   *recent.Reader // as the service has it, with hints
}

// onMySQL stands on a real database.
func onMySQL(t *testing.T) *ground {
	t.Helper()
	g, _ := onMySQLAnd(t)
	return g
}

// onMySQLAnd also returns the database, for what a site should not do.
func onMySQLAnd(t *testing.T) (*ground, *sql.DB) {
	t.Helper()
	db, err := mysql.Open(servertest.MySQLDSN(t), mysql.WithMaxOpen(24))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	notifier := &notify.Notifier{}
	q := queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Owner: "test"})
	return newGround(t, &ground{store: contacts.NewMySQL(db), site: site.NewMySQL(db), queue: q, notifier: notifier, locks: once.NewMySQL(db)}), db
}

// inMemory stands on a database in memory.
func inMemory(t *testing.T) *ground {
	t.Helper()
	notifier := &notify.Notifier{}
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now)
	db := contacts.NewMemory()
	s := &site.Memory{Store: db, Emit: func(ctx context.Context, e site.Event) error {
		n, err := tasks.Parse(e.Type, e.User, e.Contact)
		if err == nil {
			_, err = q.Enqueue(ctx, []queue.New{n})
		}
		return err
	}}
	return newGround(t, &ground{store: db, site: s, queue: q, notifier: notifier, locks: oncetest.NewMemory(time.Now)})
}

func newGround(t *testing.T, g *ground) *ground {
	t.Helper()
	g.redis = servertest.Redis(t)
	g.connect(t)
	return g
}

// connect makes the client and the index of a process that has just started.
func (g *ground) connect(t *testing.T) {
	t.Helper()
	g.client = redis.NewClient(&redis.Options{
		Network: "unix", Addr: g.redis.Addr(), ContextTimeoutEnabled: true, MaxRetries: 1, DialerRetries: 1, ReadTimeout: time.Minute,
	})
	t.Cleanup(func() { _ = g.client.Close() })
	g.index = index.New(g.client, index.Options{Settings: settings(t)})
	hints := tasks.NewHints(g.queue, slog.New(slog.DiscardHandler))
	running(t, hints.Run)
	g.reader = recent.NewReader(g.index, g.store, hints, recent.Options{Min: settings(t).Min})
	g.Auditor = g.auditor(t, 50*time.Millisecond)
}

func (g *ground) auditor(t *testing.T, pause time.Duration) *audit.Auditor {
	t.Helper()
	return audit.New(audit.Options{
		Sets: g.index, Truth: g.store, Tasks: g.queue, Pause: pause,
		Reader: recent.NewReader(g.index, g.store, noHints{}, recent.Options{Min: settings(t).Min}),
	})
}

// watch runs [index.Index.Watch], as each process does.
func (g *ground) watch(t *testing.T) {
	t.Helper()
	running(t, func(ctx context.Context) error { return g.index.Watch(ctx, func(time.Time, redisnodes.Status) {}) })
}

// marks is how often Redis was probed since it lost data.
func (g *ground) marks(t testing.TB) int {
	t.Helper()
	n, _ := g.client.Get(t.Context(), "activityd_mark").Int()
	return n
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
func (g *ground) work(t testing.TB, wraps ...func(queue.Handler) queue.Handler) (stop func()) {
	t.Helper()
	handlers := tasks.Handlers(g.index, g.store, g.queue, tasks.HandlerOptions{PartSize: 7})
	for kind, h := range handlers {
		for _, wrap := range wraps {
			handlers[kind] = wrap(h)
		}
	}
	pool := queue.NewPool(g.queue, handlers, queue.PoolOptions{
		Log: slog.New(slog.DiscardHandler), Notifier: g.notifier, Kinds: tasks.Kinds(),
		Workers: []queue.Workers{
			{Queue: tasks.QueueDefault, Count: 2, Batch: 20},
			{Queue: tasks.QueueFanOut, Count: 1, Batch: 5},
			{Queue: tasks.QueueFanOutSlots, Count: 1, Batch: 5},
			{Queue: tasks.QueueRefill, Count: 1, Batch: 50},
		},
		Poll: 20 * time.Millisecond, Grace: time.Second,
		Needs: map[string]queue.Dependency{tasks.NeedsSets: health.NewRedis(g.client, g.index, slog.New(slog.DiscardHandler))},
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
	var members []site.Member
	var relations []site.Relation
	var photos []site.Photo
	for i, id := range owners {
		members = append(members, site.Member{ID: id, Username: "owner " + id.String()})
		photos = append(photos, site.Photo{Owner: id, Visibility: contacts.Public, DateUpload: 1_000_000 + 10*uint64(i)})
	}
	for i, id := range viewers {
		members = append(members, site.Member{ID: id, Username: "viewer " + id.String()})
		for j := range n {
			relations = append(relations, site.Relation{User: id, Contact: owners[(i+j)%len(owners)]})
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
