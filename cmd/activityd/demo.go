package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/broadcast"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/demo"
	"github.com/activityd/activityd/internal/demo/world"
	"github.com/activityd/activityd/internal/httpserver"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/localserver"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/internal/testing/site"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/queue"
)

func newDemo() *cobra.Command {
	// One worker targets together what was held, so that a burst is one notification.
	c := &config{mysqlConnections: defaultConnections, workers: map[string]int{push.QueuePush: 1}}
	o := demoOptions{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show the whole thing on a made-up site with live traffic",
		Long: "Show the whole thing: a made-up photo site with live traffic, on a page that updates as one\n" +
			"watches. It says how long activityd and plain SQL take to answer, and why (the SQL, its plan);\n" +
			"shows the fan-outs, the queue and the audit; turns Redis and MySQL off and on again; has the\n" +
			"widget in a homepage, and a phone and a browser that push services inside the demo notify.\n\n" +
			"Where mariadbd (or mysqld) and redis-server are installed, private ones are started in a\n" +
			"temporary folder; elsewhere imitations inside this process stand in for them, and push is off.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			return runDemo(cmd.Context(), c, o, world.Demo(), cmd.OutOrStdout(), newLogger(c, cmd.ErrOrStderr()))
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.embedded, "embedded", false, "use the imitations even where real servers are installed")
	f.Float64Var(&o.rate, "rate", 2, "changes on the made-up site in a second")
	c.listenFlag(f, "`address` for the page; it must be one of this machine alone")
	c.serverFlags(f)
	c.indexFlags(f)
	c.logFlags(f)
	f.Lookup("log-level").DefValue, c.logLevel = "warn", "warn"
	_ = f.MarkHidden("role") // the demo is one process
	return cmd
}

type demoOptions struct {
	embedded bool
	rate     float64
}

// runDemo makes the site, and serves it until ctx ends.
func runDemo(ctx context.Context, c *config, o demoOptions, spec world.Spec, out io.Writer, log *slog.Logger) (err error) {
	web := &http.Server{ReadHeaderTimeout: api.DefaultReadTimeout, IdleTimeout: api.DefaultIdleTimeout}
	page := httpserver.New(web, httpserver.Options{Log: log})
	if err := page.Listen(ctx, c.listen); err != nil {
		return fmt.Errorf("--listen (%s): %w; choose another with --listen 127.0.0.1:0", settings.Variable("listen"), err)
	}
	defer func() { err = errors.Join(err, page.Close()) }()
	if !httpserver.IsLoopback(page.Addr()) { // a name that resolves to another address
		return fmt.Errorf("--listen (%s): %s: %w", settings.Variable("listen"), page.Addr(), errOpenDemo)
	}
	b, err := openDemoBackend(ctx, c, o, out)
	defer func() { err = errors.Join(err, b.closers.close()) }()
	if err != nil {
		return err
	}
	fanOuts := &demo.FanOuts{}
	w := spec.Generate(time.Now())
	sayf(out, "Making a site of %d members, %d contacts and %d photos …", len(w.Members), len(w.Contacts), len(w.Photos))
	if err := w.Load(ctx, b.site); err != nil {
		return fmt.Errorf("make the site: %w", err)
	}
	b.fanOuts = fanOuts
	key, err := auth.NewViewerKey("demo", auth.EdDSA)
	if err != nil {
		return err
	}
	credentials := &credentials{viewers: auth.NewViewers([]auth.ViewerKey{key}, auth.ViewerOptions{})}
	if b.notifies != nil {
		credentials.senders.byPlatform = b.notifies.Receivers.Senders()
	}
	s := newService(c, b.backend, credentials, log)
	b.index.Probe(ctx) // else the audit takes a new Redis for one that lost its data
	d := demo.New(demo.Config{
		World: w, Site: b.site, Reader: s.audited, Plain: b.plain, PlainName: b.plainName, Engine: b.engine,
		Wipe: func(ctx context.Context) error { return b.redis.FlushDB(ctx).Err() },
		Rate: o.rate, Seed: uint64(time.Now().UnixNano()), Log: log,
		DB: b.db, Push: b.notifies, FanOuts: fanOuts, Queue: b.queue.Stats, Audit: auditCounts, Switches: b.switches,
		Token:     func(id member.ID) (string, error) { return key.Sign(id, demoTokenLife, "") },
		Broadcast: b.changeBroadcast(), State: b.broadcastState,
	})
	web.Handler = page.LocalOnly(demoRoutes(s.api, d))
	s.fronts = append(s.fronts, d.Run, serving(page, c.grace))
	sayf(out, "The demo is at http://%s/  (stop it with Ctrl-C)", page.Addr())
	if b.db != nil {
		sayf(out, "Other commands, such as activityd push show, find its servers by\n  export %s='%s' %s='%s'",
			settings.Variable("mysql-dsn"), c.mysqlDSN, settings.Variable("redis-url"), c.redisURL)
	}
	return s.run(ctx)
}

// demoRoutes puts the API beside the demo's page, for requests whose Host the page's
// server knows.
func demoRoutes(a *api.Server, d *demo.Demo) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", asLocal(a.Handler()))
	mux.Handle("/{$}", d.Handler())
	mux.Handle("/demo/", d.Handler())
	return mux
}

// asLocal has next accept a Host that the page's server accepted: a server that does not
// listen itself knows fewer names.
func asLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r = r.Clone(r.Context())
		r.Host = "localhost"
		next.ServeHTTP(w, r)
	})
}

// auditCounts returns what the audit of this process has looked at, and what was wrong.
func auditCounts() (wrong, looked int) {
	families, _ := prometheus.DefaultGatherer.Gather() // with an error all that could be gathered
	for _, family := range families {
		sum := 0
		for _, m := range family.GetMetric() {
			sum += int(m.GetCounter().GetValue())
		}
		switch family.GetName() {
		case "activityd_audit_checked_total", "activityd_audit_answers_checked_total":
			looked += sum
		case "activityd_audit_erroneous_total", "activityd_audit_answers_erroneous_total":
			wrong += sum
		}
	}
	return wrong, looked
}

// sayf prints a line of progress, and ignores a failed write.
func sayf(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }

// demoBackend is a made-up site and its servers: private ones, or imitations.
type demoBackend struct {
	backend
	site              site.Site
	switches          []demo.Switch
	notifies          *demo.Push // nil: there is no database that push could work with
	plain             []site.Plain
	plainName, engine string
}

// openDemoBackend returns what it opened, to be closed, even with an error.
func openDemoBackend(ctx context.Context, c *config, o demoOptions, out io.Writer) (*demoBackend, error) {
	_, hasMySQL := localserver.FindMySQL()
	_, hasRedis := localserver.FindRedis()
	if hasMySQL && hasRedis && !o.embedded {
		sayf(out, "Starting a private MySQL or MariaDB and a private Redis in a temporary folder …")
		return openPrivateServers(ctx, c)
	}
	if !o.embedded {
		sayf(out, "mariadbd and redis-server are not both installed: imitations inside this process stand in for them.")
	}
	return openImitations(c)
}

// changeBroadcast returns what makes a member a broadcast member, or has it cease to be one; nil: there is no database.
func (b *demoBackend) changeBroadcast() func(context.Context, member.ID, bool) error {
	if b.db == nil {
		return nil
	}
	admin := &broadcast.Admin{DB: b.db, Queue: queue.NewQueue(b.db, queue.Options{Kinds: tasks.Kinds(), Notifier: b.notifier}), Tasks: tasks.NewBroadcast}
	return func(ctx context.Context, id member.ID, joins bool) (err error) {
		if joins {
			_, err = admin.Add(ctx, id)
		} else {
			_, err = admin.Remove(ctx, id)
		}
		return err
	}
}

// broadcastState returns what a member is about to be; it fails where that cannot be changed.
func (b *demoBackend) broadcastState(ctx context.Context, id member.ID) (contacts.BroadcastState, error) {
	if b.db == nil {
		return "", errors.ErrUnsupported
	}
	rows, err := b.store.Broadcasts(ctx, []member.ID{id})
	return rows[id].State, err
}

// openImitations makes the in-memory site and miniredis.
func openImitations(c *config) (*demoBackend, error) {
	c.auditShare = 1
	b := &demoBackend{plainName: "A plain walk through the tables", engine: "tables in memory and miniredis, both inside this process"}
	mini := miniredis.NewMiniRedis()
	if err := mini.Start(); err != nil {
		return b, fmt.Errorf("start miniredis: %w", err)
	}
	b.closers.push(func() error { mini.Close(); return nil })
	b.switches = []demo.Switch{{
		Name: "Redis",
		Off:  func() error { mini.Close(); return nil },
		On: func(context.Context) error { // as a Redis that keeps nothing on disk
			mini.FlushAll()
			return mini.Restart()
		},
	}}
	redis.SetLogger(silent{}) // errors come back from methods
	// The imitation runs some hundred scripts a second on a slow machine.
	b.redis = redis.NewClient(&redis.Options{Addr: mini.Addr(), ContextTimeoutEnabled: true, ReadTimeout: time.Minute})
	b.closers.push(b.redis.Close)
	options, err := c.indexOptions()
	if err != nil {
		return b, err
	}
	db, notifier := contacts.NewMemory(), &notify.Notifier{}
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds(), Notifier: notifier}, time.Now)
	b.store, b.queue, b.waits, b.notifier = db, q, q, notifier
	b.index, b.ledger = index.New(b.redis, options), index.NewLedger(b.redis)
	b.site = &site.Memory{Store: db, Emit: func(ctx context.Context, e site.Event) error {
		task, err := tasks.Parse(e.Type, e.User, e.Contact)
		if err == nil {
			_, err = q.Enqueue(ctx, []queue.New{task})
		}
		return err
	}}
	b.plain = []site.Plain{{Ask: func(ctx context.Context, v contacts.Viewer, limit int) (contacts.Album, error) {
		walked, err := db.Walk(ctx, v, limit)
		return walked.Album, err
	}}}
	return b, nil
}

const (
	// demoDatabase is the database in the demo's private server.
	demoDatabase = "demo"
	// demoPoll replaces notifications: the demo's site inserts its tasks by plain SQL.
	demoPoll = 100 * time.Millisecond
	// demoTokenLife is how long a token of the homepage's widget lives, which renews it.
	demoTokenLife = 10 * time.Minute
	// demoSweepRate has the audit look at all sets of the demo in some minutes.
	demoSweepRate = 100
)

// openPrivateServers starts servers of the demo's own and makes its tables.
func openPrivateServers(ctx context.Context, c *config) (*demoBackend, error) {
	c.auditShare, c.auditSweepRate = 1, demoSweepRate
	b := &demoBackend{plainName: "Plain SQL"}
	redisServer, err := localserver.StartRedis(ctx)
	if err != nil {
		return b, err
	}
	b.closers.push(redisServer.Close)
	mysqlServer, err := localserver.StartMySQL(ctx, "--innodb-flush-log-at-trx-commit=2")
	if err != nil {
		return b, err
	}
	b.closers.push(mysqlServer.Close)
	b.switches = []demo.Switch{
		{Name: "Redis", Off: redisServer.Kill, On: redisServer.Restart},
		{Name: "MySQL", Off: mysqlServer.Kill, On: mysqlServer.Restart},
	}
	b.engine = mysqlServer.Version() + " and Redis, private to this demo"
	if err := mysqlServer.CreateDatabase(ctx, demoDatabase); err != nil {
		return b, err
	}
	c.mysqlDSN, c.mysqlConnections, c.redisURL, c.poll = mysqlServer.DSN(demoDatabase), defaultConnections, redisServer.URL(), demoPoll
	servers, err := openBackend(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return b, err
	}
	servers.closers = append(b.closers, servers.closers...)
	b.backend, b.site, b.plain = servers, site.NewMySQL(servers.db), site.PlainSQL(servers.db)
	receivers, err := demo.StartReceivers() // // they live until they are closed
	if err != nil {
		return b, fmt.Errorf("start the push services: %w", err)
	}
	b.closers.push(func() error { receivers.Close(); return nil })
	b.notifies = &demo.Push{Store: b.push, Receivers: receivers, Hold: &demo.Hold{}}
	b.queue = heldQueue{b.queue, b.notifies.Hold}
	if err := schema.Apply(ctx, b.db); err != nil {
		return b, err
	}
	return b, site.AddLastUploadKey(ctx, b.db)
}

// heldQueue is a queue whose deliveries can be held.
type heldQueue struct {
	taskQueue

	hold *demo.Hold
}

// Claim implements [queue.Store].
func (q heldQueue) Claim(ctx context.Context, name string, n int, lease time.Duration) ([]queue.Task, error) {
	return q.hold.Claim(name, func() ([]queue.Task, error) { return q.taskQueue.Claim(ctx, name, n, lease) })
}
