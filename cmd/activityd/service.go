package main

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/wake"
)

// store is all that is asked of the database.
type store interface {
	recent.Store
	tasks.Store
	bulk.Store
	audit.Truth
}

// taskQueue is what a service needs of the queue.
type taskQueue interface {
	queue.Store
	tasks.Enqueuer
	api.Enqueuer
	audit.Tasks
	Full(ctx context.Context, limit int) (bool, error)
	Stats(ctx context.Context) (queue.Stats, error)
}

// backend is what a service works on: real servers, or those of the demo.
type backend struct {
	store store
	// db is the database of store; nil: there is none whose tables could be wrong.
	db       *sql.DB
	queue    taskQueue
	notifier *queue.Notifier
	wake     *wake.Wake // carries notifications to other processes; nil: there are none
	index    *index.Index
	ledger   *index.Ledger // beside the sets of index
	// closers close all of these.
	closers closers
}

// service is the running whole: reads, tasks, and the HTTP in front of them.
type service struct {
	backend
	config *config
	log    *slog.Logger
	gate   *gate         // what callers of the API must pass
	mysql  *queue.Outage // is told of all calls but those of requests
	redis  *queue.Outage // is told of the probes of the index and of tasks that wait
	reader *recent.Reader
	hints  *tasks.Hints
	pool   *queue.Pool
	// backlog reports when too much waits.
	backlog *queue.Backlog
	// patrol compares sets and answers with MySQL, as fast as pacer lets it.
	patrol *audit.Patrol
	pacer  *bulk.Pacer
	api    *api.Server
	// checked: the tables were looked at, and nothing is wrong with them.
	checked bool

	metricsServer *metrics.Server // nil: there is no listener for metrics
}

func newService(c *config, b backend, g *gate, log *slog.Logger) *service {
	s := &service{
		backend: b, config: c, log: log, gate: g,
		mysql: queue.NewOutage(log, "MySQL"), redis: queue.NewOutage(log, "Redis"),
	}
	s.hints = tasks.NewHints(b.queue, log)
	s.hints.MySQL = s.mysql
	reads := c.readerOptions(b.index.Settings())
	reads.Stale = func() bool { return b.index.Refused() != nil }
	s.reader = recent.NewReader(b.index, b.store, s.hints, reads)
	pool := c.poolOptions()
	pool.MySQL, pool.Redis = s.mysql, s.redis
	s.pool = queue.NewPool(b.queue, b.notifier, tasks.Handlers(b.index, b.store, b.queue, c.handlerOptions()), log, pool)
	s.backlog = queue.NewBacklog(b.queue, maxWaiting, log)
	s.backlog.MySQL = s.mysql
	s.pacer = s.newPacer()
	s.patrol = s.newPatrol()
	front := api.Config{
		Reader: noted{s.reader, s.patrol.Note}, Enqueuer: b.queue, Overloaded: s.backlog.Overloaded, Checker: s.check, Logger: log,
	}
	g.guard(&front)
	s.api = api.New(front)
	return s
}

// check asks both servers how they are. Details of a failure go to the log
// and not to the client.
func (s *service) check(ctx context.Context) api.Health {
	health := api.Health{MySQL: api.Component{Usable: true}, Redis: api.Component{Usable: true}}
	if err := s.checkMySQL(ctx); err != nil {
		health.MySQL = api.Component{Detail: "cannot be used: see the log"}
		if errors.Is(err, mysql.ErrUnavailable) || ctx.Err() != nil {
			health.MySQL.Detail = "cannot be reached"
		}
	}
	switch err := s.index.Probe(ctx); {
	case errors.Is(err, index.ErrSettings):
		health.Redis = api.Component{Detail: err.Error()}
	case errors.Is(err, index.ErrRefused):
		health.Redis = api.Component{Detail: index.Reason(err) + ": reads are answered from the database as far as walks are free, tasks wait"}
	case err != nil:
		health.Redis = api.Component{Detail: index.Reason(err) + ": reads are answered from the database, tasks wait"}
	}
	return health
}

// checkMySQL reads a row of the site's tables and of the queue, if there is one.
func (s *service) checkMySQL(ctx context.Context) error {
	began, probe := time.Now(), []member.ID{1}
	_, err := s.store.LastUploads(ctx, probe)
	if err == nil {
		_, err = s.queue.Active(ctx, tasks.FanOut, []uint64{1})
	}
	if !errors.Is(ctx.Err(), context.Canceled) { // else it says nothing about MySQL
		s.mysql.Report(ctx, began, err)
	}
	return err
}

// stats looks at the queues, and reports how that ended.
func (s *service) stats(ctx context.Context) (queue.Stats, error) {
	began := time.Now()
	stats, err := s.queue.Stats(ctx)
	if err == nil || errors.Is(err, mysql.ErrUnavailable) && ctx.Err() == nil {
		s.mysql.Report(ctx, began, err)
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

// checkSchema looks at the tables, once. A *[schemaError] says that nothing can work
// on them; other errors, which are reported, that it could not be found out. Warnings are
// logged.
func (s *service) checkSchema(ctx context.Context) error {
	if s.checked || s.db == nil {
		return nil
	}
	began := time.Now()
	findings, err := checkSchema(ctx, s.db)
	if err != nil {
		if _, wrong := errors.AsType[*schemaError](err); !wrong && ctx.Err() == nil {
			s.mysql.Report(ctx, began, err)
		}
		return err
	}
	s.checked = true
	for _, f := range findings {
		s.log.WarnContext(ctx, "schema warning", "table", f.Table, "finding", f.What, "do", f.Do)
	}
	return nil
}

// awaitMySQL returns when MySQL can be used, or when ctx ends. A *[schemaError] says
// that it never can be, as it is.
func (s *service) awaitMySQL(ctx context.Context) error {
	for failures := 1; ctx.Err() == nil; failures++ {
		err := s.checkSchema(ctx)
		if err == nil {
			bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
			err = s.checkMySQL(bounded)
			cancel()
		}
		if _, wrong := errors.AsType[*schemaError](err); wrong || err == nil {
			return err
		}
		_ = retry.Sleep(ctx, retry.Backoff(failures, 250*time.Millisecond, 2*time.Second))
	}
	return nil
}

// actor runs until its context ends, and then stops what it does.
type actor func(ctx context.Context) error

// run works until ctx ends or an actor fails, and returns when all have stopped.
// Actors that make work stop before those that do it: first the fronts, such as the
// listener, whose requests enqueue tasks and give hints; then the workers; and last the
// notifier, which tells other processes of the tasks that the workers handed back.
func (s *service) run(ctx context.Context, fronts ...actor) error {
	work := []actor{s.hints.Run, s.watchRedis, s.work}
	if s.config.role != roleWorkers {
		work = append(work, s.backlog.Run)
	}
	var notifier []actor
	if s.wake != nil {
		notifier = []actor{s.wake.Run}
	}
	return runStages(ctx, fronts, work, notifier)
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
	return s.index.Watch(ctx, func(began time.Time, err error) {
		s.redis.Report(ctx, began, err)
		if err == nil {
			_ = s.ledger.KeepMaterialize(ctx, s.config.materialize) // or after the next probe
		}
	})
}

// work waits for MySQL, and works on tasks if that is the role.
func (s *service) work(ctx context.Context) error {
	if err := s.awaitMySQL(ctx); err != nil || s.config.role == roleAPI {
		return err
	}
	return s.pool.Run(ctx)
}

// serveAPI serves until ctx ends, and then finishes the requests under way.
func (s *service) serveAPI(ctx context.Context) error {
	return serveUntil(ctx, s.config.grace, s.api.Serve, s.api.Shutdown)
}

// serveUntil runs serve, and stops it by shutdown when ctx ends.
func serveUntil(ctx context.Context, grace time.Duration, serve func() error, shutdown func(context.Context) error) error {
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		stopped <- shutdown(bounded)
	})
	err := serve()
	if stop() { // it ended by itself
		return err
	}
	return errors.Join(err, <-stopped)
}

// Interfaces that the parts must satisfy, checked here where they meet.
var (
	_ store = (*contacts.MySQL)(nil)
	_ store = (*contacts.Memory)(nil)
)
