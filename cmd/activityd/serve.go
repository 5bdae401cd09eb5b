package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/api"
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

// backend holds the servers and stores of a service.
type backend struct {
	store    *contacts.MySQL
	db       *sql.DB // of store and queue
	queue    *queue.Queue
	id       *databaseID // of db
	notifier *notify.Notifier
	wake     *wake.Wake // carries notifications to other processes
	redis    redis.UniversalClient
	index    *index.Index
	push     *push.MySQL
	// requests is for the API's tasks and devices, and for the console: no lock for which they wait holds up reads or tasks.
	requests *sql.DB
	// ask finds out whether MySQL can be used, on a connection of its own, which no load takes away.
	ask     func(context.Context) error
	closers closers
}

// openBackend opens MySQL and Redis without connecting to them.
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
	_, requests := c.shares()
	b.db, b.requests = pool(c.mysqlConnections-requests), pool(requests)
	probe := pool(1)
	if err != nil {
		return b, errors.Join(err, b.closers.close())
	}
	b.id = &databaseID{db: probe}
	options.Database = b.id.get
	b.index = index.New(b.redis, options)
	b.closers.push(b.index.Close)
	b.store, b.push, b.notifier = contacts.NewMySQL(b.db), push.NewMySQL(b.db), &notify.Notifier{}
	b.wake = wake.New(b.redis, b.notifier, log)
	b.queue = b.queueOn(b.db)
	store, q := contacts.NewMySQL(probe), queue.NewQueue(probe, queue.Options{Kinds: tasks.Kinds()})
	b.ask = func(ctx context.Context) error {
		_, err := store.LastUploads(ctx, []member.ID{1})
		if err == nil {
			_, err = q.Active(ctx, tasks.FanOut, []uint64{1})
		}
		return err
	}
	return b, nil
}

// queueOn returns the queue on connections to its database.
func (b *backend) queueOn(db *sql.DB) *queue.Queue {
	return queue.NewQueue(db, queue.Options{
		Kinds: tasks.Kinds(), Registerer: prometheus.DefaultRegisterer, Notifier: b.notifier, Owner: processName(),
	})
}

// service answers reads and works on tasks. [service.listen] comes first, then [service.run], and [service.close] last.
type service struct {
	backend
	config        *config
	log           *slog.Logger
	credentials   *credentials
	health        health.Servers
	load          *health.Load   // of the queue
	limiter       *admit.Limiter // of reader
	reader        *recent.Reader
	pool          *queue.Pool
	pushed        *push.Handler
	api           *api.Server
	metricsServer *metrics.Server // nil: there is no listener for metrics
	fronts        []actor         // make work for the rest, as the listener does, whose requests enqueue tasks
	background    []actor         // work on it, and watch the servers
	checkedSchema bool            // nothing is wrong in it
	notReady      error           // why MySQL could not be used at the start; nil: it could
}

// openService makes the parts of a service. They do not connect yet.
func openService(c *config, log *slog.Logger) (*service, error) {
	auth, err := loadCredentials(c, log)
	if err != nil {
		return nil, err
	}
	b, err := openBackend(c, log)
	if err != nil {
		return nil, err
	}
	s := &service{backend: b, config: c, log: log, credentials: auth}
	s.closers = append(s.closers, auth.senders.closers...)
	s.health = health.NewServers(b.ask, health.NewRedis(b.redis, log), log)
	limit := maxWaiting
	if c.role == roleWorkers {
		limit = 0
	}
	s.load = health.NewLoad(b.queue, tasks.ChangingSets(), limit, s.health.MySQL.Log, log)
	hints := tasks.NewHints(b.queue, log)
	reads, _ := c.shares()
	s.limiter = admit.New(reads)
	options := c.readerOptions(b.index.Settings())
	options.Limiter = s.limiter
	s.reader = recent.NewReader(b.index, b.store, hints, options)
	patrol := s.newPatrol()
	s.fronts = []actor{patrol.Run}
	s.background = []actor{hints.Run, s.health.MySQL.Run, s.watchRedis, s.work, s.load.Run}
	handlers := tasks.HandlerOptions{
		PartSize: c.fanOutPart, ActiveOnly: c.materialize == materializeActive, BroadcastAt: broadcastAt, Read: readOf(s.uncounted()), Log: log,
	}
	if c.auditSweepRate > 0 {
		handlers.Check = patrol
	}
	s.addPush(&handlers)
	pool := c.poolOptions()
	pool.Log, pool.Report, pool.Away = log, s.health.MySQL.Report, health.Waits
	s.pool = queue.NewPool(b.queue, tasks.Handlers(b.index, b.store, b.queue, handlers), pool)
	s.api = s.newAPI(noted{s.reader, patrol.Note})
	return s, nil
}

// serve works until ctx ends, and closes everything. It notifies the service manager when it listens, and when it begins to stop.
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

// listen refuses settings, tables and sets on which the service cannot work, and opens the listeners: a taken port is an error at
// the start.
func (s *service) listen(ctx context.Context) error {
	s.notReady = s.checkServers(ctx)
	if isRefusal(s.notReady) { // for any other error, the service waits for MySQL
		return s.notReady
	}
	_ = s.health.MySQL.Ask(ctx) // so that the first /readyz knows
	if s.config.role != roleWorkers {
		err := s.api.Listen(ctx, s.config.listen)
		if err == nil {
			s.closers.push(s.api.Close)
			err = s.credentials.checkAddress(ctx, s.api.Addr(), s.log)
		}
		if err != nil {
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

// checkServers checks the tables and the sets. The error [isRefusal] where the service cannot work on them; any other
// error means that MySQL is away.
func (s *service) checkServers(ctx context.Context) error {
	err := s.checkSchema(ctx)
	if err == nil {
		err = s.id.read(ctx)
	}
	if isSchemaError(err) {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if refused := s.index.Check(bounded); isRedisRefusal(refused) { // the first probe reports any other error
		return namedRedis(refused)
	}
	return err
}

// isRefusal reports whether waiting does not mend an error of [service.checkServers].
func isRefusal(err error) bool {
	return isSchemaError(err) || isRedisRefusal(err)
}

// checkSchema checks the tables until a check succeeds, and logs warnings. The error is a *[schemaError] if the service
// cannot work on them; any other error means a server that is away, and is reported.
func (s *service) checkSchema(ctx context.Context) error {
	if s.checkedSchema {
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

// closingTime is for how long before the listener ends connections are told to close. A client that sends a request on
// an idle connection at the very end loses it.
const closingTime = time.Second

// drain returns an actor that, when ctx has ended, has /readyz say so, and goes on for as long as load balancers need
// to notice. A process without an API, or with a failed API, stops at once.
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

// run works until ctx ends or something fails, and returns when all has stopped. The drain stops first; then the
// fronts; then the workers; then the notifier, so that it notifies other processes of the tasks that the workers handed
// back. The metrics stop last, and show the stop.
func (s *service) run(ctx context.Context) error {
	var metrics []actor
	if s.metricsServer != nil {
		metrics = []actor{serving(s.metricsServer, metricsGrace)}
	}
	s.log.InfoContext(ctx, "started", "role", s.config.role, "settings", s.index.Settings().String())
	if s.notReady != nil {
		s.log.WarnContext(ctx, "not ready", "error", s.notReady)
	}
	return runStages(ctx, []actor{s.drain(ctx)}, s.fronts, s.background, []actor{s.wake.Run}, metrics)
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
	s.pushed.Wait()
	return err
}
