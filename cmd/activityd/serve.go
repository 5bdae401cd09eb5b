package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/queue"
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
			"SIGTERM stops gracefully within --grace; a second one stops at once.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := c.check(cmd.Flags()); err != nil {
				return err
			}
			server, err := openServer(c, newLogger(c, cmd.ErrOrStderr()))
			if err != nil {
				return err
			}
			return server.serve(cmd.Context())
		},
	}
	c.serveFlags(cmd.Flags())
	return cmd
}

// serveFlags registers every flag of serve.
func (c *config) serveFlags(f *pflag.FlagSet) {
	c.mysqlFlags(f)
	c.redisFlags(f)
	c.listenFlag(f, "`address` for HTTP, or HTTPS; without tokens it must be one of this machine alone")
	c.accessFlags(f)
	c.metricsFlag(f)
	c.serverFlags(f)
	c.indexFlags(f)
	c.auditFlags(f)
	c.logFlags(f)
}

// server is a service on the site's MySQL and the index's Redis.
type server struct{ *service }

// openServer opens MySQL and Redis without connecting to them.
func openServer(c *config, log *slog.Logger) (s *server, err error) {
	g, err := openGate(c, log)
	if err != nil {
		return nil, err
	}
	var b backend
	defer func() {
		if err != nil {
			err = errors.Join(err, b.closers.close())
		}
	}()
	client, err := openRedis(c.redisURL)
	if err != nil {
		return nil, err
	}
	b.closers.push(client.Close)
	if b.index, err = newIndex(c, client); err != nil {
		return nil, err
	}
	b.ledger = index.NewLedger(client)
	if b.db, err = openMySQL(c); err != nil {
		return nil, err
	}
	b.closers.push(b.db.Close)
	b.store, b.notifier = contacts.NewMySQL(b.db), &queue.Notifier{}
	b.wake = wake.New(client, b.notifier, log)
	b.queue = queue.NewMySQLQueue(b.db, queue.Options{
		Notifier: b.notifier, Owner: processName(), Queues: slices.Collect(maps.Keys(c.workers)), Keep: c.keepTasks,
	})
	return &server{newService(c, b, g, log)}, nil
}

// serve works until ctx ends, and closes everything.
func (s *server) serve(ctx context.Context) error {
	err := s.listen(ctx)
	if err == nil {
		err = s.run(ctx)
	}
	if err := errors.Join(err, s.close()); err != nil {
		return err
	}
	s.log.InfoContext(context.WithoutCancel(ctx), "stopped")
	return nil
}

// listen refuses settings, tables and sets on which the server cannot work, and opens
// the listeners: a taken port is an error at the start.
func (s *server) listen(ctx context.Context) error {
	if err := s.checkRedis(ctx); err != nil {
		return err
	}
	// Any other error is that of a MySQL that is waited for.
	if err, wrong := errors.AsType[*schemaError](s.checkSchema(ctx)); wrong {
		return err
	}
	if s.config.role != roleWorkers {
		if err := s.api.Listen(ctx, s.config.listen); err != nil {
			return fmt.Errorf("--listen (%s): %w", environmentName("listen"), err)
		}
		s.closers.push(s.api.Close)
		if err := s.gate.admits(ctx, s.api.Addr(), s.log); err != nil {
			return fmt.Errorf("--listen (%s): %w", environmentName("listen"), err)
		}
		s.log.InfoContext(ctx, "listening", "address", s.api.Addr().String())
	}
	return s.listenMetrics(ctx)
}

// run works until ctx ends or something fails. The listeners are open.
func (s *server) run(ctx context.Context) error {
	fronts := []actor{s.patrolling}
	if s.config.role != roleWorkers {
		fronts = append(fronts, s.serveAPI, s.gate.run)
	}
	s.log.InfoContext(ctx, "started", "role", s.config.role, "settings", s.index.Settings().String())
	return s.withMetrics(ctx, func(ctx context.Context) error { return s.service.run(ctx, fronts...) })
}

// close closes the listeners and what [openServer] opened.
func (s *server) close() error { return s.closers.close() }
