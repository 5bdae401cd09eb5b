package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/site"
	"github.com/activityd/activityd/internal/tasks"
)

// ground is what the demo stands on: real private servers, or imitations.
type ground struct {
	parts
	site      demoSite
	plain     demo.Plain
	plainName string
	engine    string
	wipe      func(context.Context) error
	// start begins the emission of tasks, once the site is loaded.
	start   func()
	closers []io.Closer
}

type demoSite interface {
	demo.Site
	world.Loader
}

func openGround(ctx context.Context, c *config, o demoOptions, out io.Writer) (*ground, error) {
	_, hasMySQL := localserver.FindMySQL()
	_, hasRedis := localserver.FindRedis()
	if o.embedded || !hasMySQL || !hasRedis {
		if !o.embedded {
			sayf(out, "mariadbd and redis-server are not both installed: imitations inside this process stand in for them.")
		}
		return openImitations(c)
	}
	sayf(out, "Starting a private MySQL or MariaDB and a private Redis in a temporary folder …")
	return openPrivateServers(ctx, c)
}

// openImitations makes the in-memory site and miniredis.
func openImitations(c *config) (*ground, error) {
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		return nil, fmt.Errorf("start miniredis: %w", err)
	}
	// The imitation runs some hundred scripts a second on a slow machine.
	client := redis.NewClient(&redis.Options{Addr: mini.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	ix, err := newIndex(c, client)
	if err != nil {
		return nil, err
	}
	db, notifier := contacts.NewMemory(), &queue.Notifier{}
	q := queuetest.NewMemory(queue.Options{Notifier: notifier}, time.Now)
	where := &site.Memory{Store: db}
	return &ground{
		parts:     parts{store: db, queue: q, notifier: notifier, index: ix},
		site:      where,
		plain:     plainWalk(db),
		plainName: "a plain walk",
		engine:    "tables in memory and miniredis, both inside this process",
		wipe:      func(ctx context.Context) error { return client.FlushDB(ctx).Err() },
		start:     func() { where.Emit = emitTo(q) },
		closers:   []io.Closer{closer(func() error { mini.Close(); return nil }), client},
	}, nil
}

func plainWalk(db *contacts.Memory) demo.Plain {
	return func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error) {
		walked, err := db.Walk(ctx, v, limit)
		return walked.Album, err
	}
}

// emitTo turns the events of the in-memory site into tasks.
func emitTo(q tasks.Enqueuer) func(context.Context, site.Event) error {
	return func(ctx context.Context, e site.Event) error {
		task, err := tasks.Parse(e.Type, e.User, e.Contact)
		if err != nil {
			return err
		}
		_, err = q.Enqueue(ctx, []queue.New{task})
		return err
	}
}

type closer func() error

func (c closer) Close() error { return c() }

// demoDatabase is the name of the demo's database in its private server.
const demoDatabase = "demo"

// demoPoll stands in for the notifier: the demo's site inserts its tasks by plain SQL
// and tells nobody.
const demoPoll = 100 * time.Millisecond

// openPrivateServers starts servers of the demo's own and makes its tables.
func openPrivateServers(ctx context.Context, c *config) (g *ground, err error) {
	g = &ground{engine: "a private Redis", plainName: "plain SQL", start: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, closeAll(g.closers))
		}
	}()
	redisServer, err := localserver.StartRedis(ctx)
	if err != nil {
		return g, err
	}
	g.closers = append(g.closers, redisServer)
	mysqlServer, err := localserver.StartMySQL(ctx, localserver.WithFlushLog(2))
	if err != nil {
		return g, err
	}
	g.closers = append(g.closers, mysqlServer)
	g.engine = mysqlServer.Version() + " and Redis, private to this demo"
	err = g.connect(ctx, c, mysqlServer, redisServer)
	return g, err
}

func (g *ground) connect(ctx context.Context, c *config, mysqlServer *localserver.MySQL, redisServer *localserver.Redis) error {
	if err := mysqlServer.CreateDatabase(ctx, demoDatabase); err != nil {
		return err
	}
	db, err := mysql.Open(mysqlServer.DSN(demoDatabase))
	if err != nil {
		return err
	}
	g.closers = append(g.closers, db)
	if err := schema.Apply(ctx, db); err != nil {
		return err
	}
	client, err := openRedis(redisServer.URL())
	if err != nil {
		return err
	}
	g.closers = append(g.closers, client)
	ix, err := newIndex(c, client)
	if err != nil {
		return err
	}
	notifier := &queue.Notifier{}
	c.poll = demoPoll
	g.parts = parts{store: contacts.NewMySQL(db), queue: queue.NewMySQLQueue(db, queue.Options{Notifier: notifier, Owner: processName()}), notifier: notifier, index: ix}
	g.site, g.plain = site.NewMySQL(db), demo.PlainSQL(db)
	g.wipe = func(ctx context.Context) error { return client.FlushDB(ctx).Err() }
	return nil
}
