package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/pace"
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
	audit.Members
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

// parts are what a service stands on: real servers, or the imitations of the
// demo.
type parts struct {
	store store
	// db is the database of store; nil: there is none whose tables could be wrong.
	db       *sql.DB
	queue    taskQueue
	notifier *queue.Notifier
	wake     *wake.Wake // carries notifications to other processes; nil: there are none
	index    *index.Index
	// gate is what callers of the API must pass; nil: it is open.
	gate *gate
}

// service is the running whole: reads, tasks, and the HTTP in front of them.
type service struct {
	parts
	config *config
	log    *slog.Logger
	mysql  *queue.Outage // is told of all calls but those of requests
	redis  *queue.Outage // is told of the probes of the index and of tasks that wait
	reader *recent.Reader
	hints  *tasks.Hints
	pool   *queue.Pool
	// backlog tells when too much waits.
	backlog *queue.Backlog
	// patrol compares sets and answers with MySQL, as fast as pacer lets it.
	patrol *audit.Patrol
	pacer  *pace.Pacer
	api    *api.Server
	// checked: the tables were looked at, and nothing is wrong with them.
	checked bool

	metricsServer *metrics.Server // nil: nobody listens for metrics

	listening chan<- string // if set, is told the API's address once it listens
}

func newService(c *config, p parts, log *slog.Logger) *service {
	if p.gate == nil {
		p.gate = &gate{}
	}
	s := &service{parts: p, config: c, log: log, mysql: queue.NewOutage(log, "MySQL"), redis: queue.NewOutage(log, "Redis")}
	s.hints = tasks.NewHints(p.queue, log)
	s.hints.MySQL = s.mysql
	reads := c.readerOptions(p.index.Settings())
	reads.Stale = func() bool { return p.index.Refused() != nil }
	s.reader = recent.NewReader(p.index, p.store, s.hints, reads)
	work := c.handlerOptions()
	handlers := tasks.Handlers(p.index, p.store, p.queue, work)
	pool := c.poolOptions()
	pool.MySQL, pool.Redis = s.mysql, s.redis
	s.pool = queue.NewPool(p.queue, p.notifier, handlers, log, pool)
	s.backlog = queue.NewBacklog(p.queue, c.maxWaiting, log)
	s.backlog.MySQL = s.mysql
	s.pacer = s.newPacer()
	s.patrol = s.newPatrol()
	front := api.Config{
		Reader: noted{s.reader, s.patrol.Note}, Enqueuer: p.queue, Overloaded: s.backlog.Overloaded, Checker: s.check, Logger: log,
		MaxBody: c.maxBody, MaxBatch: c.maxBatch, RequestTimeout: c.requestTimeout,
	}
	p.gate.guard(&front)
	s.api = api.New(front)
	return s
}

// check asks both servers how they are. What is wrong in detail goes to the log
// and not to whoever asks.
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
	if err := s.index.StoreMaterialize(ctx); err != nil {
		s.log.WarnContext(ctx, "--materialize was not stored: what was stored before holds", "error", err)
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

// run works until ctx ends or a part fails, and returns when all has stopped.
// Those who hand out work stop before those who do it: first the fronts, such as
// the listener, whose requests enqueue tasks and give hints; then the hints and
// the workers.
func (s *service) run(ctx context.Context, fronts ...func(context.Context) error) error {
	group, ctx := errgroup.WithContext(ctx)
	work, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	for _, front := range fronts {
		serving.Add(1)
		group.Go(func() error {
			defer serving.Done()
			return front(ctx)
		})
	}
	group.Go(func() error {
		<-ctx.Done()
		serving.Wait()
		stopWork()
		return nil
	})
	group.Go(func() error { return s.hints.Run(work) })
	group.Go(func() error {
		return s.index.Watch(work, func(began time.Time, err error) { s.redis.Report(work, began, err) })
	})
	telling, stopTelling := context.WithCancel(context.WithoutCancel(ctx))
	if s.wake != nil {
		group.Go(func() error { return s.wake.Run(telling) })
	}
	if s.config.role != roleWorkers {
		group.Go(func() error { return s.backlog.Run(work) })
	}
	group.Go(func() error {
		defer stopTelling() // last: what the workers hand back is told
		if err := s.awaitMySQL(work); err != nil {
			return err
		}
		if s.config.role == roleAPI {
			<-work.Done()
			return nil
		}
		return s.pool.Run(work)
	})
	return group.Wait()
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

// listen opens the listener, so that a taken port is an error at the start and
// not a line in the log.
func (s *service) listen(ctx context.Context) error {
	if err := s.api.Listen(ctx, s.config.listen); err != nil {
		return fmt.Errorf("--listen (%s): %w", environmentName("listen"), err)
	}
	if err := s.gate.admits(ctx, s.api.Addr(), s.log); err != nil {
		return s.closeFront(ctx, fmt.Errorf("--listen (%s): %w", environmentName("listen"), err))
	}
	address := s.api.Addr().String()
	s.log.InfoContext(ctx, "listening", "address", address)
	if s.listening != nil {
		s.listening <- address
	}
	return nil
}

// Interfaces that the parts must satisfy, checked here where they meet.
var (
	_ store = (*contacts.MySQL)(nil)
	_ store = (*contacts.Memory)(nil)
)
