package demo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/console"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/contactstest"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

// backend is activityd on servers of the demo's own, or on their stand-ins.
type backend struct {
	log   *slog.Logger
	knows func(host string) bool // see [httpserver.Server.Knows]

	redis     *redis.Client
	site      site.Site
	reader    *recent.Reader
	plain     []site.Plain
	plainName string
	engine    string
	work      []func(context.Context) error // to be run until the end
	closers   []func() error

	// Nil without a MySQL.
	mysql   *Switch
	phones  *Phones
	console http.Handler
}

// close closes the servers and connections, the last first.
func (b *backend) close() error {
	var errs []error
	for _, closer := range slices.Backward(b.closers) {
		errs = append(errs, closer())
	}
	return errors.Join(errs...)
}

const (
	// databaseName is the database in the private server.
	databaseName = "demo"
	// connections bounds the connections to MySQL.
	connections = 24
	// poll replaces notifications: the site inserts its tasks by plain SQL.
	poll = 100 * time.Millisecond
)

// openServers starts private servers and makes the tables.
func openServers(ctx context.Context, b *backend) error {
	redisServer, err := localserver.StartRedis(ctx)
	if err != nil {
		return err
	}
	b.closers = append(b.closers, redisServer.Close)
	mysqlServer, err := localserver.StartMySQL(ctx, "--innodb-flush-log-at-trx-commit=2")
	if err != nil {
		return err
	}
	b.closers = append(b.closers, mysqlServer.Close)
	b.mysql = &Switch{Off: mysqlServer.Kill, On: mysqlServer.Restart}
	b.engine = mysqlServer.Version() + " and Redis, private to this demo"
	if err := mysqlServer.CreateDatabase(ctx, databaseName); err != nil {
		return err
	}
	db, err := mysql.Open(mysqlServer.DSN(databaseName), mysql.WithMaxOpen(connections))
	if err != nil {
		return err
	}
	b.closers = append(b.closers, db.Close)
	if err := errors.Join(schema.Apply(ctx, db), site.AddLastUploadKey(ctx, db)); err != nil {
		return err
	}
	b.site, b.plain, b.plainName = site.NewMySQL(db), site.PlainSQL(db), "Plain SQL"

	store := push.NewMySQL(db)
	if b.phones, err = StartPhones(store); err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { b.phones.Close(); return nil })
	options, err := redis.ParseURL(redisServer.URL())
	if err != nil {
		return err
	}
	notifier := &notify.Notifier{}
	members, q := contacts.NewMySQL(db), queue.NewQueue(db, queue.Options{Kinds: tasks.Kinds(), Notifier: notifier, Owner: "demo"})
	pushed := push.NewHandler(push.HandlerOptions{Store: store, Followers: members, Senders: b.phones.Senders(), Log: b.log})
	if err := b.start(ctx, options, members, q, pushed); err != nil {
		return err
	}
	b.closers = append(b.closers, func() error { pushed.Wait(); return nil })
	b.console = console.New(console.Options{
		Queue: q, Push: store, Kinds: tasks.Kinds().Names(), Knows: b.knows, Log: b.log,
		Explain: func(ctx context.Context, id member.ID) (recent.Explanation, error) {
			a, err := b.reader.Explain(ctx, contacts.Viewer{ID: id}, photosShown)
			if err != nil {
				return recent.Explanation{}, err
			}
			return a.Explanation(id, nil), nil
		},
	})
	return nil
}

// openEmbedded makes a site in memory, and a Redis inside this process.
func openEmbedded(ctx context.Context, b *backend) error {
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		return fmt.Errorf("start miniredis: %w", err)
	}
	mini.Server().SetPreHook(miniredistest.Info())
	b.closers = append(b.closers, func() error { mini.Close(); return nil })
	b.plainName, b.engine = "A plain walk through the tables", "tables in memory and miniredis, both inside this process"
	notifier, members := &notify.Notifier{}, contactstest.NewMemory()
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now)
	b.site = &site.Memory{Store: members, Emit: func(ctx context.Context, e site.Event) error {
		task, err := tasks.Parse(e.Type, e.User, e.Contact)
		if err == nil {
			_, err = q.Enqueue(ctx, []queue.New{task})
		}
		return err
	}}
	b.plain = []site.Plain{{Ask: func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error) {
		walked, err := members.Walk(ctx, v, limit)
		return walked.Album, err
	}}}
	// It runs some hundred scripts a second on a slow machine.
	return b.start(ctx, &redis.Options{Addr: mini.Addr(), ReadTimeout: time.Minute}, members, q, nil)
}

// taskQueue is the part of the queue that activityd needs.
type taskQueue interface {
	queue.Store
	tasks.Enqueuer
}

// memberStore is the part of the members and their photos that activityd needs.
type memberStore interface {
	recent.Store
	tasks.Store
}

// start wires activityd: the index, the read, and the pool that works on tasks.
func (b *backend) start(ctx context.Context, options *redis.Options, members memberStore, q taskQueue, pushed queue.Handler) error {
	redis.SetLogger(silent{}) // errors come back from methods
	options.ContextTimeoutEnabled = true
	b.redis = redis.NewClient(options)
	b.closers = append(b.closers, b.redis.Close)
	settings, err := index.NewSettings(need, headroom, 0)
	if err != nil {
		return err
	}
	sets, hints := index.New(b.redis, index.Options{Settings: settings}), tasks.NewHints(q, b.log)
	if err := sets.Check(ctx); err != nil {
		return err
	}
	sets.Probe(ctx)
	b.reader = recent.NewReader(sets, members, hints, recent.Options{Min: settings.Min})
	handlers := tasks.Handlers(sets, members, q, tasks.HandlerOptions{PartSize: tasks.DefaultPartSize, Push: pushed})
	pool := queue.NewPool(q, handlers, queue.PoolOptions{Workers: tasks.DefaultWorkers(), Poll: poll, Log: b.log})
	b.work = append(b.work, hints.Run, pool.Run, func(ctx context.Context) error {
		return sets.Watch(ctx, func(time.Time, redisnodes.Status) {})
	})
	return nil
}

// need and headroom are the values that activityd's settings have.
const need, headroom = 10, 20

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// traced adds the candidates to each answer, for the page.
type traced struct{ *recent.Reader }

// Read implements [Reader].
func (r traced) Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	a, err := r.Reader.Read(ctx, v, limit)
	a.Trace.Candidates = a.Candidates()
	return a, err
}
