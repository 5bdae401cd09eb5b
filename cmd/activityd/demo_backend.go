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
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/localserver"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/queue/queuetest"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/site"
	"github.com/activityd/activityd/internal/tasks"
)

// demoBackend is a made-up site and its servers: private ones, or imitations.
type demoBackend struct {
	backend
	site      site.Site
	plain     demo.Plain
	plainName string
	engine    string
	wipe      func(context.Context) error
	// start begins the emission of tasks, once the site is loaded.
	start func()
}

func openDemoBackend(ctx context.Context, c *config, o demoOptions, out io.Writer) (*demoBackend, error) {
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
func openImitations(c *config) (*demoBackend, error) {
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
	return &demoBackend{
		backend: backend{
			store: db, queue: q, notifier: notifier, index: ix, ledger: index.NewLedger(client),
			closers: closers{func() error { mini.Close(); return nil }, client.Close},
		},
		site:      where,
		plain:     plainWalk(db),
		plainName: "a plain walk",
		engine:    "tables in memory and miniredis, both inside this process",
		wipe:      func(ctx context.Context) error { return client.FlushDB(ctx).Err() },
		start:     func() { where.Emit = emitTo(q) },
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

// demoDatabase is the name of the demo's database in its private server.
const demoDatabase = "demo"

// demoPoll stands in for notifications: the demo's site inserts its tasks by plain
// SQL alone.
const demoPoll = 100 * time.Millisecond

// openPrivateServers starts servers of the demo's own and makes its tables.
func openPrivateServers(ctx context.Context, c *config) (g *demoBackend, err error) {
	g = &demoBackend{engine: "a private Redis", plainName: "plain SQL", start: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, g.closers.close())
		}
	}()
	redisServer, err := localserver.StartRedis(ctx)
	if err != nil {
		return g, err
	}
	g.closers.push(redisServer.Close)
	mysqlServer, err := localserver.StartMySQL(ctx, "--innodb-flush-log-at-trx-commit=2")
	if err != nil {
		return g, err
	}
	g.closers.push(mysqlServer.Close)
	g.engine = mysqlServer.Version() + " and Redis, private to this demo"
	err = g.connect(ctx, c, mysqlServer, redisServer)
	return g, err
}

func (g *demoBackend) connect(ctx context.Context, c *config, mysqlServer *localserver.MySQL, redisServer *localserver.Redis) error {
	if err := mysqlServer.CreateDatabase(ctx, demoDatabase); err != nil {
		return err
	}
	db, err := mysql.Open(mysqlServer.DSN(demoDatabase))
	if err != nil {
		return err
	}
	g.closers.push(db.Close)
	if err := schema.Apply(ctx, db); err != nil {
		return err
	}
	client, err := openRedis(redisServer.URL())
	if err != nil {
		return err
	}
	g.closers.push(client.Close)
	ix, err := newIndex(c, client)
	if err != nil {
		return err
	}
	notifier := &queue.Notifier{}
	c.poll = demoPoll
	g.store, g.notifier, g.index, g.ledger = contacts.NewMySQL(db), notifier, ix, index.NewLedger(client)
	g.queue = queue.NewMySQLQueue(db, queue.Options{Notifier: notifier, Owner: processName()})
	g.site, g.plain = site.NewMySQL(db), demo.PlainSQL(db)
	g.wipe = func(ctx context.Context) error { return client.FlushDB(ctx).Err() }
	return nil
}
