package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/console"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
	"github.com/activityd/activityd/notify"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

func newServe() *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API and work on tasks",
		Long: "Serve the API and work on tasks, on the site's MySQL and a Redis of the index's own.\n\n" +
			"MySQL may come later: requests are answered 503 and tasks wait until it is there. But on tables\n" +
			"that are wrong (activityd schema --check) it does not start, or ends.\n" +
			"Redis may be away: reads are answered from MySQL and tasks wait.\n" +
			"SIGTERM stops: /readyz is 503 for ACTIVITYD_DRAIN, then requests have --grace, and then tasks.\n" +
			"A second one stops at once.\n\n" +
			"Some settings have no flag, such as those of push: set them in the environment or in the file of\n" +
			"--config. The page settings.md of the documentation has all.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			s, err := openService(c, newLogger(c, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return s.serve(cmd.Context())
		},
	}
	c.serveFlags(cmd.Flags())
	return cmd
}

// store is what a service needs of the database.
type store interface {
	push.Followers
	recent.Store
	tasks.Store
	siteStore
}

// siteStore is what the audit needs of the database.
type siteStore interface {
	Newest(ctx context.Context, ids []member.ID) (map[member.ID]contacts.Newest, error)
}

var _ store = (*contacts.MySQL)(nil)

// taskQueue is what a service needs of the queue.
type taskQueue interface {
	queue.Store
	tasks.Enqueuer
	api.Enqueuer
	check.Tasks
	Paused(ctx context.Context) ([]string, error)
	Pause(ctx context.Context, queue string) (changed bool, err error)
	Resume(ctx context.Context, queue string) (changed bool, err error)
	Discard(ctx context.Context, match queue.Filter, limit int) (int, error)
	health.Queue
	health.Backlog
	Stats(ctx context.Context) (queue.Stats, error)
}

// backend is what a service works on.
type backend struct {
	store store
	db    *sql.DB // of store and queue; nil: there is none whose tables could be wrong
	queue taskQueue
	// ask finds out whether store and queue can be used, on a connection of its own, which no load
	// takes away. Nil: by themselves.
	ask func(context.Context) error
	id  *databaseID // of db
	// requests is the queue, and devices the push, of the API, on connections of their own: no lock
	// for which requests wait holds up reads or tasks. Nil: queue and push.
	requests   api.Enqueuer
	devices    api.Push
	leaser     api.Leaser // likewise; nil: nothing is leased
	requestsDB *sql.DB    // nil: there is no console
	notifier   *notify.Notifier
	wake       *wake.Wake // carries notifications to other processes; nil: there are none
	redis      redis.UniversalClient
	index      *index.Index
	push       *push.MySQL // likewise; nil: nothing is sent
	closers    closers     // of all of these
}

// service answers reads and works on tasks. [service.listen] comes first, then
// [service.run], and [service.close] last.
type service struct {
	backend
	config      *config
	log         *slog.Logger
	credentials *credentials
	health      health.Servers
	load        *health.Load // of the queue
	reader      *recent.Reader
	audited     noted // reader, whose reads the audit may check
	hints       *tasks.Hints
	pool        *queue.Pool
	deliveries  *push.Deliveries // nil: there are none
	api         *api.Server
	// fronts make work for the rest, such as the listener, whose requests enqueue tasks.
	fronts []actor
	// background works on it, and watches the servers.
	background    []actor
	checkedSchema bool            // nothing is wrong in it
	notReady      error           // why MySQL could not be used at the start; nil: it could
	metricsServer *metrics.Server // nil: there is no listener for metrics
}

func newService(c *config, b backend, auth *credentials, log *slog.Logger) *service {
	if b.ask == nil {
		b.ask = asking(b.store, b.queue)
	}
	if b.requests == nil {
		b.requests = b.queue
	}
	s := &service{backend: b, config: c, log: log, credentials: auth}
	s.health = health.NewServers(b.ask, health.NewRedis(b.redis, b.index, log), log)
	s.hints = tasks.NewHints(b.queue, log)
	reads := c.readerOptions(b.index.Settings())
	s.reader = recent.NewReader(b.index, b.store, s.hints, reads)
	pool := c.poolOptions()
	pool.MySQL, pool.Needs = s.health.MySQL.Log, map[string]queue.Dependency{tasks.NeedsSets: s.health.Redis}
	limit := maxWaiting
	if c.role == roleWorkers {
		limit = 0
	}
	s.load = health.NewLoad(b.queue, tasks.ChangingSets(), b.queue, limit, s.health.MySQL.Log, log)
	s.background = []actor{s.hints.Run, s.watchRedis, s.work, s.load.Run}
	patrol := s.newPatrol()
	handlers := tasks.HandlerOptions{
		PartSize: c.fanOutPart, ActiveOnly: c.materialize == materializeActive, BroadcastAt: c.broadcastAt,
		Read: readOf(s.uncounted()), Log: log,
	}
	if c.auditSweepRate > 0 {
		handlers.Check = patrol
	}
	if b.push != nil {
		s.deliveries = push.NewDeliveries(push.DeliveryOptions{Store: b.push, Senders: auth.senders.byPlatform, MustShow: c.push.mustShow(), Log: log})
		handlers.Targeting = push.NewTargeting(push.TargetingOptions{Store: b.push, Followers: b.store, MustShow: c.push.mustShow()})
		handlers.Deliveries = s.deliveries
		if auth.senders.changed != nil { // before any file is read again
			*auth.senders.changed = s.deliveries.KeysChanged
		}
		if c.role != roleAPI {
			s.background = append(s.background, func(ctx context.Context) error {
				b.push.Run(ctx, log)
				return nil
			})
		}
	}
	pool.Log, pool.Notifier, pool.Registerer = log, b.notifier, prometheus.DefaultRegisterer
	s.pool = queue.NewPool(b.queue, tasks.Handlers(b.index, b.store, b.queue, handlers), pool)
	s.closers = append(s.closers, auth.senders.closers...)
	s.audited = noted{s.reader, patrol.Note}
	s.fronts = append(s.fronts, patrol.Run)
	front := api.Config{
		Reader: s.audited, Limiter: c.limiter(), Enqueuer: b.requests, Overloaded: s.load.Overloaded, Checker: s.health.Check, Behind: s.load.Behind, Logger: log,
		TLS: auth.tls, AllowOrigins: c.viewers.allowOrigins,
		Leaser: b.leaser, OwnQueues: c.ownQueues(), Notifier: b.notifier,
	}
	if auth.viewers != nil {
		front.Viewers = auth.viewers
	}
	if auth.tokens != nil { // a nil pointer in an interface would not be nil
		front.Auth = auth.tokens
	}
	c.push.offer(&front, b)
	s.api = api.New(front)
	return s
}

// offer has the API serve push, if there is any.
func (p *pushConfig) offer(front *api.Config, b backend) {
	if b.push != nil {
		front.Push, front.Platforms, front.CheckAddress = b.devices, p.platforms(), p.checkAddress
	}
}

// openService opens MySQL and Redis without connecting to them.
func openService(c *config, log *slog.Logger) (*service, error) {
	auth, err := loadCredentials(c, log)
	if err != nil {
		return nil, err
	}
	b, err := openBackend(c, log)
	if err != nil {
		return nil, err
	}
	return newService(c, b, auth, log), nil
}

func openBackend(c *config, log *slog.Logger) (b backend, err error) {
	options, err := c.indexOptions()
	if err != nil {
		return b, err
	}
	if b.redis, err = openRedis(c.redisURL); err != nil {
		return b, err
	}
	b.closers = closers{b.redis.Close}
	pool := func(connections int) (db *sql.DB) {
		if err == nil {
			db, err = openMySQL(c, connections)
		}
		if err == nil {
			b.closers.push(db.Close)
		}
		return db
	}
	_, own := c.shares()
	b.db = pool(c.mysqlConnections - own)
	requests, check := pool(own), pool(1)
	if err != nil {
		return b, errors.Join(err, b.closers.close())
	}
	b.ask = asking(contacts.NewMySQL(check), queue.NewQueue(check, queue.Options{Kinds: tasks.Kinds()}))
	b.id = &databaseID{db: check}
	options.Database = b.id.get
	b.index = index.New(b.redis, options)
	b.closers.push(b.index.Close)
	b.requestsDB = requests
	b.store, b.notifier = contacts.NewMySQL(b.db), &notify.Notifier{}
	b.wake = wake.New(b.redis, b.notifier, log)
	b.push, b.devices = push.NewMySQL(b.db), push.NewMySQL(requests)
	o := queue.Options{Kinds: tasks.Kinds(), Registerer: prometheus.DefaultRegisterer, Notifier: b.notifier, Owner: processName(), Queues: slices.Collect(maps.Keys(c.workers))}
	leaser := queue.NewQueue(requests, o)
	b.queue, b.requests, b.leaser = queue.NewQueue(b.db, o), leaser, leaser
	return b, nil
}

// serve works until ctx ends, and closes everything. The service manager is notified when it
// listens, and when it begins to stop.
func (s *service) serve(ctx context.Context) error {
	err := s.listen(ctx)
	if err == nil {
		notifyManager(ctx, s.log, stateReady+statusOf(s.notReady))
		stop := context.AfterFunc(ctx, func() { notifyManager(ctx, s.log, stateStopping) })
		err = s.run(ctx)
		stop()
	}
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	s.log.InfoContext(context.WithoutCancel(ctx), "stopped")
	return nil
}

// listen refuses settings, tables and sets on which the service cannot work, and opens
// the listeners: a taken port is an error at the start.
func (s *service) listen(ctx context.Context) error {
	s.notReady = s.checkServers(ctx)
	// Any other error is that of a MySQL that is waited for.
	if isRefusal(s.notReady) {
		return s.notReady
	}
	if s.config.role != roleWorkers {
		if err := s.api.Listen(ctx, s.config.listen); err != nil {
			return fmt.Errorf("--listen (%s): %w", settings.Variable("listen"), err)
		}
		s.closers.push(s.api.Close)
		if err := s.credentials.checkAddress(ctx, s.api.Addr(), s.log); err != nil {
			return fmt.Errorf("--listen (%s): %w", settings.Variable("listen"), err)
		}
		s.fronts = append(s.fronts, serving(s.api, s.config.grace))
		s.log.InfoContext(ctx, "listening", "address", s.api.Addr().String())
	}
	s.fronts = append(s.fronts, s.credentials.reload)
	if s.config.role != roleAPI {
		s.fronts = append(s.fronts, stream.New(s.redis, s.queue, s.log, s.health.MySQL.Log, s.health.Redis.Stream).Run)
	}
	return s.listenMetrics(ctx)
}

// close closes the listeners and the backend.
func (s *service) close() error { return s.closers.close() }

// asking returns what asks a store and a queue something small.
func asking(s store, q taskQueue) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := s.LastUploads(ctx, []member.ID{1})
		if err == nil {
			_, err = q.Active(ctx, tasks.FanOut, []uint64{1})
		}
		return err
	}
}

// checkServers checks the tables and the sets. The error [isRefusal] where the service cannot work on
// them; another one is that of a MySQL that is away.
func (s *service) checkServers(ctx context.Context) error {
	err := s.checkSchema(ctx)
	if err == nil && s.id != nil {
		err = s.id.read(ctx)
	}
	if isSchemaError(err) {
		return err
	}
	return cmp.Or(s.checkRedis(ctx), err)
}

// isRefusal reports whether an error of [service.checkServers] is one that waiting does not mend.
func isRefusal(err error) bool {
	return isSchemaError(err) || isRedisRefusal(err)
}

// isRedisRefusal reports whether that is due to Redis.
func isRedisRefusal(err error) bool {
	return errors.Is(err, index.ErrSettings) || errors.Is(err, index.ErrNoDatabase) || errors.Is(err, index.ErrHidden)
}

// checkRedis refuses to start over sets of another database, or that were built with other settings,
// or on a database that Redis does not have. A Redis that is away is no reason not to
// start.
func (s *service) checkRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.index.Check(ctx)
	if isRedisRefusal(err) {
		return namedRedis(err)
	}
	return nil // the first probe reports any other
}

// checkSchema checks the tables until that has succeeded once, and logs warnings. The
// error is a *[schemaError] if the service cannot work on them; others, of servers that
// are away, are reported.
func (s *service) checkSchema(ctx context.Context) error {
	if s.checkedSchema || s.db == nil {
		return nil
	}
	findings, err := checkSchema(ctx, s.db, s.health.MySQL.Log)
	if err != nil {
		return err
	}
	s.checkedSchema = true
	for _, f := range findings {
		s.log.WarnContext(ctx, "schema warning", "table", f.Table, "finding", f.What, "do", f.Do)
	}
	return nil
}

// metricsGrace is how long scrapes under way may take to finish at the stop.
const metricsGrace = time.Second

// actor runs until its context ends, and then stops what it does.
type actor func(ctx context.Context) error

// closingTime is for how long before the listener ends connections are told to close. A client that sends
// a request on an idle one at the very end loses it.
const closingTime = time.Second

// drain returns an actor that, when ctx has ended, has /readyz say so, and goes on for as long as load balancers need to
// notice. A process without an API, or one that failed, stops at once.
func (s *service) drain(ctx context.Context) actor {
	return func(running context.Context) error {
		<-running.Done()
		s.api.Stopping()
		if ctx.Err() == nil || s.config.role == roleWorkers {
			return nil
		}
		closing := min(closingTime, s.config.drain)
		<-time.After(s.config.drain - closing)
		s.api.CloseConnections()
		<-time.After(closing)
		return nil
	}
}

// run works until ctx ends or something fails, and returns when all has stopped: first
// the drain; then the fronts; then the workers; then the notifier, which notifies other processes of the
// tasks that the workers handed back; and last the metrics, which show the stop.
func (s *service) run(ctx context.Context) error {
	var notifier, metrics []actor
	if s.wake != nil {
		notifier = []actor{s.wake.Run}
	}
	if s.metricsServer != nil {
		metrics = []actor{serving(s.metricsServer, metricsGrace)}
	}
	s.log.InfoContext(ctx, "started", "role", s.config.role, "settings", s.index.Settings().String())
	if s.notReady != nil {
		s.log.WarnContext(ctx, "not ready", "error", s.notReady)
	}
	return runStages(ctx, []actor{s.drain(ctx)}, s.fronts, s.background, notifier, metrics)
}

// runStages runs all actors until ctx ends or one of them fails. Then it stops one
// stage after the other: the actors of a stage go on until all of the stage before
// have returned.
func runStages(ctx context.Context, stages ...[]actor) error {
	group, ended := errgroup.WithContext(ctx)
	before := ended.Done()
	for _, actors := range stages {
		running, stop := context.WithCancel(context.WithoutCancel(ctx))
		var stage sync.WaitGroup
		for _, run := range actors {
			stage.Add(1)
			group.Go(func() error {
				defer stage.Done()
				return run(running)
			})
		}
		previous, stopped := before, make(chan struct{})
		group.Go(func() error {
			<-previous
			stop()
			stage.Wait()
			close(stopped)
			return nil
		})
		before = stopped
	}
	return group.Wait()
}

func (s *service) watchRedis(ctx context.Context) error {
	return s.index.Watch(ctx, func(began time.Time, status redisnodes.Status) {
		s.health.Redis.Report(ctx, began, status)
	})
}

// work waits until MySQL can be used, and works on tasks if that is the role.
func (s *service) work(ctx context.Context) error {
	err := s.health.Await(ctx, s.checkServers, isRefusal)
	if err != nil || ctx.Err() != nil {
		return err
	}
	if s.notReady != nil {
		s.log.InfoContext(ctx, "ready")
		notifyManager(ctx, s.log, stateOnceReady)
	}
	if s.config.role == roleAPI {
		return nil
	}
	err = s.pool.Run(ctx)
	if s.deliveries != nil {
		s.deliveries.Wait()
	}
	return err
}

// serving returns an actor that serves until its context ends, and then finishes the
// requests under way.
func serving(server interface {
	Serve() error
	Shutdown(ctx context.Context) error
}, grace time.Duration,
) actor {
	return func(ctx context.Context) error {
		stopped := make(chan error, 1)
		stop := context.AfterFunc(ctx, func() {
			bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			stopped <- server.Shutdown(bounded)
		})
		err := server.Serve()
		if stop() { // it ended by itself
			return err
		}
		return errors.Join(err, <-stopped)
	}
}

// newChecker returns a checker of the sets of the service.
func (s *service) newChecker() *check.Checker {
	return check.New(check.Options{
		Sets: s.index, Truth: s.store, Tasks: s.queue, Reader: s.uncounted(), ActiveOnly: s.config.materialize == materializeActive,
	})
}

// uncounted returns a reader that reads as the service does, and leaves no trace.
func (s *service) uncounted() *recent.Reader {
	reads := s.config.readerOptions(s.index.Settings())
	reads.Uncounted = true
	return recent.NewReader(s.index, s.store, noHints{}, reads)
}

// noHints is for reads that change nothing.
type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// newPatrol returns the audit. Reads are sampled where they are answered; the sweep belongs to the processes with
// workers.
func (s *service) newPatrol() *check.Patrol {
	o := check.PatrolOptions{Checker: s.newChecker(), Members: s.store, Tasks: s.queue, Log: s.log}
	if s.config.role != roleWorkers {
		o.Share = s.config.auditShare
	}
	if s.config.role != roleAPI {
		o.Rate, o.LostAt = s.config.auditSweepRate, s.index.LostAt
		o.Build = o.Rate > 0 && s.config.materialize == materializeAll
	}
	return check.NewPatrol(o)
}

// noted is a reader that calls note after each read.
type noted struct {
	api.Reader
	note func(viewer member.ID)
}

// Read implements [api.Reader].
func (n noted) Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	a, err := n.Reader.Read(ctx, v, limit)
	if err == nil {
		n.note(v.ID)
	}
	return a, err
}

// listenMetrics opens the listener for metrics, unless there is to be none.
func (s *service) listenMetrics(ctx context.Context) error {
	if s.config.metricsListen == "" {
		return nil
	}
	var worked []string
	if s.config.role != roleAPI {
		worked = s.pool.Queues()
	}
	collectors := []prometheus.Collector{s.load, queue.NewStatsCollector(tasks.Kinds(), s.queue.Stats, worked, s.log)}
	if s.db != nil {
		collectors = append(collectors, once.ExhaustedNames(once.NewMySQL(s.db).Exhausted))
	}
	server := metrics.NewServer(metrics.Options{
		Version: versionNumber(), Role: s.config.role, Probes: s.api.Handler(), Log: s.log, Collectors: collectors,
		Profiles: s.config.pprof, Console: s.console(),
	})
	if err := server.Listen(ctx, s.config.metricsListen); err != nil {
		return fmt.Errorf("--metrics-listen (%s): %w; choose another, or none with --metrics-listen=", settings.Variable("metrics-listen"), err)
	}
	s.metricsServer = server
	s.log.InfoContext(ctx, "listening for metrics", "address", server.Addr().String())
	return nil
}

// console returns what makes the page for operators; nil: there is none.
func (s *service) console() func(knows func(string) bool) http.Handler {
	if s.requestsDB == nil {
		return nil
	}
	o := console.Options{
		Queue: queue.NewQueue(s.requestsDB, queue.Options{Kinds: tasks.Kinds(), Notifier: s.notifier, Queues: slices.Collect(maps.Keys(s.config.workers))}),
		Push:  push.NewMySQL(s.requestsDB), Names: once.NewMySQL(s.requestsDB).ListFirst, Log: s.log,
		Kinds: tasks.Kinds().Names(),
		Explain: func(ctx context.Context, id member.ID) (recent.Explanation, error) {
			a, answer, err := s.explain(ctx, id, defaultExplained)
			if err != nil {
				return recent.Explanation{}, err
			}
			return a.Explanation(id, answer.Behind), nil
		},
	}
	if s.credentials.tokens != nil { // a nil pointer in an interface would not be nil
		o.Tokens = s.credentials.tokens
	}
	return func(knows func(string) bool) http.Handler {
		o.Knows = knows
		return console.New(o)
	}
}
