package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/redisnodes"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

func newServe() *cobra.Command {
	c := &config{}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the API and work on tasks",
		Long: "Serve the API and work on tasks, on the site's MySQL and a Redis of the index's own. Both may come later, or\n" +
			"be away: requests are answered from MySQL, or by 503, and tasks wait. On tables that are wrong (activityd\n" +
			"schema --check) it does not start, or ends. SIGTERM stops: /readyz is 503 for ACTIVITYD_DRAIN, then requests\n" +
			"have --grace, and then tasks; a second one stops at once. docs/deploy.md says more.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(garbage)
			}
			s, err := openService(c, newLogger(c, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return advised(s.serve(cmd.Context()))
		},
	}
	c.serveFlags(cmd.Flags())
	return cmd
}

// garbage is how far the heap grows before a collection, in percent of the memory in use. So little is in use, some MB,
// that by the 100 percent of Go collections would run all the time, and cost more than the memory is worth.
const garbage = 400

// service answers reads and works on tasks. [service.listen] comes first, then [service.run], and [service.close] last.
type service struct {
	*backend

	credentials   *credentials
	load          *health.Load   // of the queue
	limiter       *admit.Limiter // of reads
	pool          *queue.Pool
	pushed        *push.Handler
	api           *api.Server
	metricsServer *metrics.Server // nil: there is no listener for metrics
	fronts        []actor         // make work for the rest, as the listener does, whose requests enqueue tasks
	background    []actor         // work on it, and watch the servers
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
	b.closers = append(b.closers, auth.senders.closers...)
	s := &service{backend: b, credentials: auth}
	limit := maxWaiting
	if c.role == roleWorkers {
		limit = 0
	}
	s.load = health.NewLoad(b.queue, tasks.ChangingSets(), limit, s.health.MySQL.Log, log)
	hints := tasks.NewHints(b.queue, log)
	reads, _ := c.shares()
	s.limiter = admit.New(reads)
	patrol := s.newPatrol()
	s.fronts = []actor{patrol.Run}
	s.background = []actor{hints.Run, s.health.MySQL.Run, s.watchRedis, s.work, s.load.Run}
	handlers := b.handlerOptions()
	if c.auditSweepRate > 0 {
		handlers.Check = patrol
	}
	s.addPush(&handlers)
	pool := c.poolOptions()
	pool.Log, pool.Report, pool.Away = log, s.health.MySQL.Report, health.Waits
	s.pool = queue.NewPool(b.queue, tasks.Handlers(b.index, b.store, b.queue, handlers), pool)
	reader := recent.NewReader(b.index, b.store, hints, recent.Options{Min: b.index.Settings().Min, Limiter: s.limiter})
	s.api = s.newAPI(noted{reader, patrol.Note})
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
	if err := errors.Join(err, s.closers.close()); err != nil {
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
	began := time.Now()
	if status := s.index.Status(ctx); ctx.Err() == nil { // otherwise it says nothing about the server
		s.health.Redis.Report(ctx, began, status)
	}
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

func (b *backend) watchRedis(ctx context.Context) error {
	return b.index.Watch(ctx, func(began time.Time, status redisnodes.Status) { b.health.Redis.Report(ctx, began, status) })
}

// handlerOptions returns how tasks are worked on.
func (b *backend) handlerOptions() tasks.HandlerOptions {
	reader := b.reader(recent.Options{Uncounted: true})
	return tasks.HandlerOptions{
		PartSize: b.config.fanOutPart, ActiveOnly: b.config.materialize == materializeActive, BroadcastAt: broadcastAt, Log: b.log,
		Read: func(ctx context.Context, id member.ID) error {
			_, err := reader.Read(ctx, contacts.Viewer{ID: id}, defaultExplained)
			return err
		},
	}
}

// work waits until MySQL can be used, and works on tasks if that is the role. The log says why it goes on waiting, also
// where MySQL answers the questions of [health.Database].
func (s *service) work(ctx context.Context) error {
	check := func(ctx context.Context) error {
		began := time.Now()
		err := s.checkServers(ctx)
		if err != nil && !isRefusal(err) && ctx.Err() == nil {
			s.health.MySQL.Report(ctx, began, err)
		}
		return err
	}
	err := s.health.Await(ctx, check, isRefusal)
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
