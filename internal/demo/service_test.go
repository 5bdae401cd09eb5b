package demo_test

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// service is the whole of activityd over a made-up site: the queue with its
// workers, the index, the read, and the demo's page on a server of its own. The
// traffic does not run. Push is of [startRealService] alone, and the last three fields are of
// [startService].
type service struct {
	config demo.Config
	demo   *demo.Demo
	url    string
	server *httptest.Server
	store  *contacts.Memory
	site   *site.Memory
	redis  *miniredis.Miniredis
}

// startService starts a small service in memory and miniredis.
func startService(t *testing.T) *service {
	t.Helper()
	s := &service{store: contacts.NewMemory(), redis: miniredis.RunT(t)}
	notifier := &notify.Notifier{}
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now)
	s.site = &site.Memory{Store: s.store}
	s.config = demo.Config{
		World: smallWorld(), Site: s.site, Plain: []site.Plain{{Ask: s.walk}}, PlainName: "A plain walk",
		Engine: "tables in memory and miniredis, both in this process", Rate: 20,
	}
	s.config.Switches = []demo.Switch{{
		Name: "Redis", Off: func() error { s.redis.Close(); return nil },
		On: func(context.Context) error {
			s.redis.FlushAll()
			return s.redis.Restart()
		},
	}}
	load(t, s.config.World, s.site)
	s.site.Emit = func(ctx context.Context, e site.Event) error {
		task, err := tasks.Parse(e.Type, e.User, e.Contact)
		if err != nil {
			return err
		}
		_, err = q.Enqueue(ctx, []queue.New{task})
		return err
	}
	s.start(t, s.store, q, notifier, redis.NewClient(&redis.Options{Addr: s.redis.Addr()}))
	return s
}

// startRealService starts a service on private servers.
func startRealService(t *testing.T, w *world.World) *service {
	t.Helper()
	db := servertest.MySQL(t)
	options, err := redis.ParseURL(servertest.Redis(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	notifier, where := &notify.Notifier{}, site.NewMySQL(db)
	s := &service{config: demo.Config{
		World: w, Site: where, Plain: site.PlainSQL(db), PlainName: "Plain SQL", Engine: "a private MariaDB and a private Redis", Rate: 3, DB: db,
	}}
	load(t, w, where)
	if err := site.AddLastUploadKey(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	receivers, err := demo.StartReceivers()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(receivers.Close)
	s.config.Push = &demo.Push{Store: push.NewMySQL(db), Receivers: receivers, Hold: &demo.Hold{}}
	q := heldQueue{queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Owner: "test"}), s.config.Push.Hold}
	store := contacts.NewMySQL(db)
	admin := &broadcast.Admin{DB: db, Queue: q.Queue, Tasks: tasks.NewBroadcast}
	s.config.Broadcast = func(ctx context.Context, id member.ID, joins bool) (err error) {
		if joins {
			_, err = admin.Add(ctx, id)
		} else {
			_, err = admin.Remove(ctx, id)
		}
		return err
	}
	s.config.State = func(ctx context.Context, id member.ID) (contacts.BroadcastState, error) {
		rows, err := store.Broadcasts(ctx, []member.ID{id})
		return rows[id].State, err
	}
	s.start(t, store, q, notifier, redis.NewClient(options))
	return s
}

// heldQueue is a queue whose deliveries can be held.
type heldQueue struct {
	*queue.Queue

	hold *demo.Hold
}

func (q heldQueue) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	return q.hold.Claim(name, func() ([]queue.Task, error) { return q.Queue.Claim(ctx, name, n, lease) })
}

func load(t *testing.T, w *world.World, into site.Site) {
	t.Helper()
	if err := w.Load(t.Context(), into); err != nil {
		t.Fatal(err)
	}
}

// store is what the handlers and the read need of the database.
type store interface {
	push.Followers
	tasks.Store
	recent.Store
	broadcast.Store
}

// start runs everything between the site and the page until the test ends.
func (s *service) start(t *testing.T, db store, q queuetest.Queue, notifier *notify.Notifier, client *redis.Client) {
	t.Helper()
	t.Cleanup(func() { _ = client.Close() })
	settings, err := index.NewSettings(10, 20, 10)
	if err != nil {
		t.Fatal(err)
	}
	ix := index.New(client, index.Options{Settings: settings})
	log := slog.New(slog.DiscardHandler)
	hints := tasks.NewHints(q, log)
	s.config.FanOuts, s.config.Queue = &demo.FanOuts{}, q.Stats
	handlers := tasks.HandlerOptions{FanOuts: s.config.FanOuts}
	if s.config.Push != nil {
		deliveries := push.NewDeliveries(push.DeliveryOptions{Store: s.config.Push.Store, Senders: s.config.Push.Receivers.Senders(), Log: log})
		t.Cleanup(deliveries.Wait)
		handlers.Push = push.Handler{Targeting: push.NewTargeting(push.TargetingOptions{Store: s.config.Push.Store, Followers: db}), Deliveries: deliveries}
	}
	workers := queue.PoolOptions{Log: log, Notifier: notifier, Kinds: tasks.Kinds(), Workers: tasks.DefaultWorkers(), Poll: 100 * time.Millisecond} // as that of the demo
	for i, w := range workers.Workers {
		if w.Queue == push.QueuePush {
			workers.Workers[i].Count = 1
		}
	}
	workers.Needs = map[string]queue.Dependency{tasks.NeedsSets: health.NewRedis(client, ix, log)}
	run(t, queue.NewPool(q, tasks.Handlers(ix, broadcast.Truth{Store: db}, q, handlers), workers).Run)
	run(t, hints.Run)

	s.config.Reader = recent.NewReader(ix, db, hints, recent.Options{})
	s.config.Wipe = func(ctx context.Context) error { return client.FlushAll(ctx).Err() }
	s.config.Seed, s.config.Log = 7, log
	s.demo = demo.New(s.config)
	s.server = httptest.NewServer(s.demo.Handler())
	t.Cleanup(s.server.Close)
	s.url = s.server.URL
}

// run runs f until the test ends, and waits for its end.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background()) // outlives the cleanups that came later
	var running sync.WaitGroup
	running.Go(func() {
		if err := f(ctx); err != nil {
			t.Errorf("a worker ended with %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

func (s *service) walk(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error) {
	walked, err := s.store.Walk(ctx, v, limit)
	return walked.Album, err
}

// smallWorld is the demo's world at a fiftieth of its size, as of now.
func smallWorld() *world.World {
	spec := world.Demo()
	spec.Members, spec.Photos, spec.Blocks = 410, 2400, 20
	spec.Quiet = 0
	spec.Featured, spec.Celebrities = []int{400, 150, 40, 12, 0}, []int{200, 80}
	return spec.Generate(time.Now())
}

func (s *service) isContact(id member.ID, contact string) bool {
	for _, row := range s.config.World.Contacts {
		if row.User == id && row.Contact.String() == contact {
			return true
		}
	}
	return false
}

func photoID(p contacts.Photo) string { return strconv.FormatUint(p.ID, 10) }

func (s *service) unblockAll(t *testing.T) {
	t.Helper()
	for _, b := range s.config.World.Blocks {
		if err := s.config.Site.Unblock(t.Context(), b.Member, b.Blocked); err != nil {
			t.Fatal(err)
		}
	}
}
