package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/notify"
	"github.com/activityd/activityd/internal/once"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/schema"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
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
			"SIGTERM stops: requests have --grace, and then tasks; a second one stops at once.\n\n" +
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
	bulk.Store
	audit.Truth
}

var (
	_ store = (*contacts.MySQL)(nil)
	_ store = (*contacts.Memory)(nil)
)

// taskQueue is what a service needs of the queue.
type taskQueue interface {
	queue.Store
	tasks.Enqueuer
	api.Enqueuer
	audit.Tasks
	Full(ctx context.Context, limit int) (full, stale bool, err error)
	CountWaiting(ctx context.Context, limit int) error
	Stats(ctx context.Context) (queue.Stats, error)
	Due(ctx context.Context) (map[string]time.Duration, error)
}

// backend is what a service works on: real servers, or those of the demo.
type backend struct {
	store   store
	db      *sql.DB // of store; nil: there is none whose tables could be wrong
	queueDB *sql.DB // of queue; db, unless it has one of its own
	queue   taskQueue
	// siteCheck and queueCheck are asked whether store and queue can be used, on connections of
	// their own, which no load takes away. Nil: store and queue.
	siteCheck interface {
		LastUploads(ctx context.Context, users []member.ID) (map[member.ID]uint64, error)
	}
	queueCheck interface {
		Active(ctx context.Context, kind string, keys []uint64) (map[uint64]bool, error)
	}
	notifier *notify.Notifier
	wake     *wake.Wake // carries notifications to other processes; nil: there are none
	redis    redis.UniversalClient
	index    *index.Index
	ledger   *index.Ledger // beside the sets of index
	once     *once.Once    // in the tables of db; nil: there are none, and nothing sweeps
	push     *push.MySQL   // likewise; nil: nothing is sent
	fanOuts  tasks.FanOuts // nil: none
	closers  closers       // of all of these
}

// service answers reads and works on tasks. [service.listen] comes first, then
// [service.run], and [service.close] last.
type service struct {
	backend
	config      *config
	log         *slog.Logger
	credentials *credentials
	mysqlOutage *queue.Outage // counts all calls but those of requests
	queueOutage *queue.Outage // likewise, of the queue's database; mysqlOutage, unless it has one of its own
	mysqlUp     atomic.Bool   // the site's database answered the last check of watchMySQL
	nodes       *nodes        // of Redis
	reader      *recent.Reader
	audited     noted // reader, whose reads the audit may check
	hints       *tasks.Hints
	pool        *queue.Pool
	deliveries  *push.Deliveries // nil: there are none
	backlog     *queue.Backlog   // reports when too many tasks wait
	lag         *queue.Lag       // of the queues
	api         *api.Server
	// fronts make work for the rest, such as the listener, whose requests enqueue tasks.
	fronts        []actor
	checkedSchema bool            // nothing is wrong in it
	notReady      error           // why MySQL could not be used at the start; nil: it could
	metricsServer *metrics.Server // nil: there is no listener for metrics
}

func newService(c *config, b backend, auth *credentials, log *slog.Logger) *service {
	s := &service{
		backend: b, config: c, log: log, credentials: auth,
		mysqlOutage: queue.NewOutage(log, "MySQL"), nodes: newNodes(b.redis, log),
	}
	if s.siteCheck == nil {
		s.siteCheck, s.queueCheck = b.store, b.queue
	}
	s.queueOutage = s.mysqlOutage
	handlersOutage := s.mysqlOutage
	if s.apart() {
		s.queueOutage = queue.NewOutage(log, "MySQL of the queue")
		// The error of a task does not say which of the two it waits for: watchMySQL and the
		// pool's own calls find out.
		handlersOutage = queue.NewOutage(slog.New(slog.DiscardHandler), "MySQL")
	}
	s.hints = tasks.NewHints(b.queue, log)
	s.hints.MySQL = s.queueOutage
	reads := c.readerOptions(b.index.Settings())
	reads.Stale = func(ctx context.Context, viewer member.ID) bool {
		return s.nodes.isLagging(ctx, viewer) || b.index.Refuses(ctx, viewer) != nil
	}
	s.reader = recent.NewReader(b.index, b.store, s.hints, reads)
	pool := c.poolOptions()
	pool.MySQL, pool.Handlers, pool.Waits, pool.Partly = s.queueOutage, handlersOutage, s.nodes.tasksWait, s.nodes.partly
	pool.Ready = s.nodes.ready
	handlers := tasks.HandlerOptions{PartSize: c.fanOutPart, ActiveOnly: c.materialize == materializeActive, FanOuts: b.fanOuts}
	if b.push != nil {
		s.deliveries = push.NewDeliveries(push.DeliveryOptions{Store: b.push, Senders: auth.senders.byPlatform, Log: log})
		handlers.Deliver = s.deliveries
		if auth.senders.changed != nil { // before any file is read again
			*auth.senders.changed = s.deliveries.KeysChanged
		}
		handlers.Notify = push.NewTargeting(push.TargetingOptions{Store: b.push, Followers: b.store})
	}
	s.pool = queue.NewPool(b.queue, b.notifier, tasks.Handlers(b.index, b.store, b.queue, handlers), log, pool)
	s.nodes.back = s.pool.Back
	s.closers = append(s.closers, auth.senders.closers...)
	s.backlog = queue.NewBacklog(b.queue, maxWaiting, log)
	s.backlog.MySQL = s.queueOutage
	s.lag = queue.NewLag(b.queue.Due)
	s.audited = noted{s.reader, s.audit().Note}
	front := api.Config{
		Reader: s.audited, Enqueuer: b.queue, Overloaded: s.backlog.Overloaded, Checker: s.check, Due: s.lag.Due, Logger: log,
		TLS: auth.tls, AllowOrigins: c.viewers.allowOrigins,
	}
	if auth.viewers != nil {
		front.Viewers = auth.viewers
	}
	if auth.tokens != nil { // a nil pointer in an interface would not be nil
		front.Auth = auth.tokens
	}
	if b.push != nil {
		front.Push, front.CheckAddress = b.push, c.push.checkAddress()
	}
	s.api = api.New(front)
	return s
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
	if b.db, b.queueDB, err = openMySQL(c); err != nil {
		return b, errors.Join(err, b.redis.Close())
	}
	b.closers = closers{b.redis.Close, b.db.Close, b.queueDB.Close}
	single := *c
	single.mysqlConnections = 1
	site, ofQueue, err := openMySQL(&single)
	if err != nil {
		return b, errors.Join(err, b.closers.close())
	}
	b.closers = append(b.closers, site.Close, ofQueue.Close)
	b.siteCheck, b.queueCheck = contacts.NewMySQL(site), queue.NewMySQLQueue(ofQueue, queue.Options{})
	b.index, b.ledger = index.New(b.redis, options), index.NewLedger(b.redis)
	b.store, b.notifier = contacts.NewMySQL(b.db), &notify.Notifier{}
	b.wake = wake.New(b.redis, b.notifier, log)
	b.once = once.New(once.NewMySQL(b.db), once.Options{Notifier: b.notifier})
	b.push = push.NewMySQL(b.db)
	b.push.Queue = b.queueDB
	b.queue = queue.NewMySQLQueue(b.queueDB, queue.Options{
		Notifier: b.notifier, Owner: processName(), Queues: slices.Collect(maps.Keys(c.workers)), Keep: c.keepTasks,
	})
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
	if err := s.checkRedis(ctx); err != nil {
		return err
	}
	s.notReady = s.checkSchema(ctx)
	// Any other error is that of a MySQL that is waited for.
	if err, wrong := errors.AsType[*schemaError](s.notReady); wrong {
		return err
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
		s.fronts = append(s.fronts, s.newConsumer().Run)
	}
	return s.listenMetrics(ctx)
}

// newConsumer returns what moves the entries of the stream into the queue.
func (s *service) newConsumer() *stream.Consumer {
	return stream.New(s.redis, s.queue, s.log, stream.Options{Name: processName(), MySQL: s.queueOutage, Redis: s.nodes.stream})
}

// close closes the listeners and the backend.
func (s *service) close() error { return s.closers.close() }

// apart reports whether the queue has a database of its own.
func (s *service) apart() bool { return s.queueDB != s.db }

// busyFor is how long after its last answer a MySQL that is late, or has no connection to
// spare, is taken to be busy, and not away.
const busyFor = 5 * time.Second

// check returns the health of all servers. Details of a failure go to the log and not
// to the client.
func (s *service) check(ctx context.Context) api.Health {
	usable := func(err error, server *queue.Outage) api.Component {
		late := ctx.Err() != nil || errors.Is(err, mysql.ErrBusy)
		switch {
		case err == nil:
			return api.Component{Usable: true}
		case late && time.Since(server.Answered()) < busyFor:
			return api.Component{Usable: true, Detail: "busy: requests may be late, or fail"}
		case late, errors.Is(err, mysql.ErrUnavailable):
			return api.Component{Detail: "cannot be reached"}
		case mysql.Refusal(err) != "":
			return api.Component{Detail: mysql.Refusal(err) + ": see the log"}
		}
		return api.Component{Detail: "cannot be used: see the log"}
	}
	site, queueErr := s.checkMySQL(ctx)
	health := api.Health{MySQL: usable(site, s.mysqlOutage)}
	if s.apart() {
		own := usable(queueErr, s.queueOutage)
		if !own.Usable {
			own.Detail += ": reads are answered, tasks are not accepted and wait"
		}
		if !health.MySQL.Usable && own.Usable {
			health.MySQL.Detail += ": tasks are accepted and wait, reads fail"
		}
		health.Queue = &own
	}
	status, fresh := s.nodes.fresh()
	if !fresh {
		status = s.index.Probe(ctx)
	}
	health.Redis = healthOf(status)
	return health
}

// checkMySQL reads the site's tables and those of the queue. If these have a database of
// their own, there is an error for each.
func (s *service) checkMySQL(ctx context.Context) (site, queueErr error) {
	readQueue := func() error {
		_, err := s.queueCheck.Active(ctx, tasks.FanOut, []uint64{1})
		return err
	}
	if !s.apart() {
		site = asked(ctx, s.mysqlOutage, func() error {
			if _, err := s.siteCheck.LastUploads(ctx, []member.ID{1}); err != nil {
				return err
			}
			return readQueue()
		})
		return site, site
	}
	var both sync.WaitGroup
	both.Go(func() { queueErr = asked(ctx, s.queueOutage, readQueue) })
	site = s.checkSite(ctx)
	both.Wait()
	return site, queueErr
}

// checkSite reads the site's tables.
func (s *service) checkSite(ctx context.Context) error {
	return asked(ctx, s.mysqlOutage, func() error {
		_, err := s.siteCheck.LastUploads(ctx, []member.ID{1})
		return err
	})
}

// asked makes a call and reports its result.
func asked(ctx context.Context, to *queue.Outage, call func() error) error {
	began := time.Now()
	err := call()
	if !errors.Is(ctx.Err(), context.Canceled) { // else it says nothing about the server
		to.Report(ctx, began, err)
	}
	return err
}

// watchMySQL checks the site's database once a second. It is not needed where the queue is in
// the same database: the calls of the queue show whether that can be used.
func (s *service) watchMySQL(ctx context.Context) error {
	for ctx.Err() == nil {
		bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
		s.mysqlUp.Store(s.checkSite(bounded) == nil)
		cancel()
		_ = retry.Sleep(ctx, retry.Jitter(time.Second))
	}
	return nil
}

// stats returns the statistics of the queues, and reports an outage.
func (s *service) stats(ctx context.Context) (queue.Stats, error) {
	began := time.Now()
	stats, err := s.queue.Stats(ctx)
	if err == nil || errors.Is(err, mysql.ErrUnavailable) && ctx.Err() == nil {
		s.queueOutage.Report(ctx, began, err)
	}
	return stats, err
}

// checkRedis refuses to start over sets that were built with other settings, or on
// a database that Redis does not have. A Redis that is away is no reason not to
// start.
func (s *service) checkRedis(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.index.Check(ctx)
	if errors.Is(err, index.ErrSettings) || errors.Is(err, index.ErrNoDatabase) {
		return namedRedis(err)
	}
	if err != nil {
		return nil // the first probe reports it
	}
	if err := s.ledger.StoreMaterialize(ctx, s.config.materialize); err != nil {
		s.log.WarnContext(ctx, "--materialize was not stored", "error", err)
	}
	return nil
}

// checkSchema checks the tables until that has succeeded once, and logs warnings. The
// error is a *[schemaError] if the service cannot work on them; others, of servers that
// are away, are reported.
func (s *service) checkSchema(ctx context.Context) error {
	if s.checkedSchema || s.db == nil {
		return nil
	}
	list := databases(s.db, s.queueDB)
	list[0].outage, list[len(list)-1].outage = s.mysqlOutage, s.queueOutage
	findings, err := checkSchema(ctx, list)
	if err == nil && s.apart() {
		err = s.keepTaskIDs(ctx)
	}
	if err != nil {
		return err
	}
	s.checkedSchema = true
	for _, f := range findings {
		s.log.WarnContext(ctx, "schema warning", "table", f.Table, "finding", f.What, "do", f.Do)
	}
	return nil
}

// keepTaskIDs raises the ids of tasks, in case the queue's server lost rows in a failover. It
// returns an error only if a server is away, and logs any other.
func (s *service) keepTaskIDs(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	err := schema.KeepTaskIDs(bounded, s.db, s.queueDB)
	if err == nil || errors.Is(err, mysql.ErrUnavailable) || bounded.Err() != nil {
		return err
	}
	s.log.WarnContext(ctx, "task ids not compared", "error", err)
	return nil
}

// awaitMySQL returns when MySQL can be used, when ctx ends, or with a *[schemaError].
func (s *service) awaitMySQL(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := s.checkSchema(ctx)
		if err == nil {
			bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
			site, queueErr := s.checkMySQL(bounded)
			err = cmp.Or(site, queueErr)
			cancel()
		}
		if _, wrong := errors.AsType[*schemaError](err); wrong {
			return err
		}
		if err == nil {
			if s.notReady != nil {
				s.log.InfoContext(ctx, "ready")
				notifyManager(ctx, s.log, stateOnceReady)
			}
			return nil
		}
		_ = retry.Sleep(ctx, retry.Backoff(failures, 250*time.Millisecond, 2*time.Second))
	}
	return nil
}

// metricsGrace is how long scrapes under way may take to finish at the stop.
const metricsGrace = time.Second

// actor runs until its context ends, and then stops what it does.
type actor func(ctx context.Context) error

// run works until ctx ends or something fails, and returns when all has stopped: first
// the fronts; then the workers; then the notifier, which notifies other processes of the
// tasks that the workers handed back; and last the metrics, which show the stop.
func (s *service) run(ctx context.Context) error {
	work := []actor{s.hints.Run, s.watchRedis, s.work, s.lag.Run}
	if s.push != nil && s.config.role != roleAPI {
		work = append(work, func(ctx context.Context) error {
			s.push.Run(ctx, s.log)
			return nil
		})
	}
	if s.config.role != roleWorkers {
		work = append(work, s.backlog.Run)
	}
	if s.apart() {
		work = append(work, s.watchMySQL)
	}
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
	return runStages(ctx, s.fronts, work, notifier, metrics)
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
	return s.index.Watch(ctx, func(began time.Time, status index.Status) {
		s.nodes.report(ctx, began, status)
		if status.Err() == nil {
			_ = s.ledger.KeepMaterialize(ctx, s.config.materialize) // or after the next probe
		}
	})
}

// work waits for MySQL, and works on tasks if that is the role.
func (s *service) work(ctx context.Context) error {
	if err := s.awaitMySQL(ctx); err != nil || s.config.role == roleAPI {
		return err
	}
	err := s.pool.Run(ctx)
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

// newAuditor returns an auditor of the sets of the service, which keeps to the pace of
// pacer, if there is one.
func (s *service) newAuditor(pacer *bulk.Pacer) *audit.Auditor {
	reads := s.config.readerOptions(s.index.Settings())
	reads.Walks = 1 // one after the other is soon enough
	reads.Uncounted = true
	return audit.New(audit.Options{
		Sets: s.index, Truth: s.store, Tasks: s.queue,
		Reader:     recent.NewReader(s.index, s.store, noHints{}, reads),
		ActiveOnly: s.config.materialize == materializeActive,
		Pacer:      pacer,
	})
}

// noHints is for reads that change nothing.
type noHints struct{}

func (noHints) Refill(member.ID)               {}
func (noHints) LookAgain(member.ID, member.ID) {}

// audit adds the audit to the fronts. Reads are sampled where they are answered; the
// sweep belongs to the processes with workers.
func (s *service) audit() *audit.Patrol {
	probes := []bulk.Probe{
		{Name: "MySQL", Ask: bulk.ProbeMySQL(s.store)},
		{Name: "Redis", Ask: s.askRedis, Floor: bulk.RedisFloor},
	}
	pacer := bulk.NewPacer(bulk.PacerOptions{Probes: probes, Interval: time.Second, Changed: s.logPace})
	o := audit.PatrolOptions{
		Auditor: s.newAuditor(pacer), Members: s.store, EachStored: s.index.EachStored, Ledger: s.ledger, Once: s.once,
		Repair: true, Log: s.log,
	}
	if s.config.role != roleWorkers {
		o.Share = s.config.auditShare
	}
	if s.config.role != roleAPI {
		o.Rate, o.LostAt, o.LostSince, o.Probes = s.config.auditSweepRate, s.index.LostAt, s.index.LostSince, probes
		if s.config.materialize == materializeAll {
			builder := &bulk.Builder{Index: s.index, Refiller: &tasks.RefillHandler{Index: s.index, Store: s.store}}
			o.Build = builder.Build
		}
	}
	patrol := audit.NewPatrol(o)
	if s.config.auditShare > 0 || s.config.auditSweepRate > 0 {
		s.fronts = append(s.fronts, patrol.Run, func(ctx context.Context) error {
			pacer.Run(ctx)
			return nil
		})
	}
	return patrol
}

// askRedis asks the nodes of Redis something small. It fails if none answers.
func (s *service) askRedis(ctx context.Context) error {
	_, err := s.index.Generation(ctx, index.Generation{})
	return err
}

// logPace logs that the audit stops, slows down or goes on.
func (s *service) logPace(now bulk.Pace) {
	level := slog.LevelInfo
	if now.Mode == bulk.Stopped {
		level = slog.LevelWarn
	}
	s.log.Log(context.Background(), level, "the pace of the audit changed", "now", now.String())
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
		for _, w := range s.config.poolOptions().Workers {
			if w.Count > 0 {
				worked = append(worked, w.Queue)
			}
		}
	}
	stats := queue.NewStatsCollector(s.stats, worked, s.log)
	if s.apart() {
		stats.SiteUp = s.mysqlUp.Load
	}
	collectors := []prometheus.Collector{stats}
	if s.db != nil {
		collectors = append(collectors, once.NewPhasesCollector(once.NewMySQL(s.db).Phases))
	}
	server := metrics.NewServer(metrics.Options{
		Version: versionNumber(), Role: s.config.role, Probes: s.api.Handler(), Log: s.log, Collectors: collectors,
	})
	if err := server.Listen(ctx, s.config.metricsListen); err != nil {
		return fmt.Errorf("--metrics-listen (%s): %w; choose another, or none with --metrics-listen=", settings.Variable("metrics-listen"), err)
	}
	s.metricsServer = server
	s.log.InfoContext(ctx, "listening for metrics", "address", server.Addr().String())
	return nil
}
