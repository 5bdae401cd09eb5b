package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/access"
	"github.com/activityd/activityd/internal/contacts"
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
		Args: exactly(),
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

// server is a service on real servers, with what has to be closed after it.
type server struct {
	*service
	closers []io.Closer
}

// openServer opens MySQL and Redis without connecting to them.
func openServer(c *config, log *slog.Logger) (*server, error) {
	entrance, err := openGate(c, access.Options{Log: log})
	if err != nil {
		return nil, err
	}
	client, err := openRedis(c.redisURL)
	if err != nil {
		return nil, err
	}
	ix, err := newIndex(c, client)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	db, err := openMySQL(c)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	notifier := &queue.Notifier{}
	q := queue.NewMySQLQueue(db, queue.Options{
		Notifier: notifier, Owner: processName(), Queues: slices.Collect(maps.Keys(c.workers)), Keep: c.keepTasks,
	})
	p := parts{store: contacts.NewMySQL(db), db: db, queue: q, notifier: notifier, wake: wake.New(client, notifier, log), index: ix, gate: entrance}
	return &server{service: newService(c, p, log), closers: []io.Closer{client, db}}, nil
}

// serve works until ctx ends, and closes everything.
func (s *server) serve(ctx context.Context) error {
	fronts, err := s.prepare(ctx)
	if err == nil {
		s.log.InfoContext(ctx, "started", "role", s.config.role, "settings", s.index.Settings().String())
		err = s.withMetrics(ctx, func(ctx context.Context) error { return s.run(ctx, fronts...) })
	}
	if err := errors.Join(err, closeAll(s.closers)); err != nil {
		return err
	}
	s.log.InfoContext(context.WithoutCancel(ctx), "stopped")
	return nil
}

// prepare finds out what forbids to start, and opens the listeners.
func (s *server) prepare(ctx context.Context) (fronts []func(context.Context) error, err error) {
	if err := s.checkRedis(ctx); err != nil {
		return nil, err
	}
	// Any other error is that of a MySQL that is waited for.
	if err, wrong := errors.AsType[*schemaError](s.checkSchema(ctx)); wrong {
		return nil, err
	}
	if s.config.role == roleWorkers {
		return []func(context.Context) error{s.patrolling}, s.listenMetrics(ctx)
	}
	if err := s.listen(ctx); err != nil {
		return nil, err
	}
	if err := s.listenMetrics(ctx); err != nil {
		return nil, s.closeFront(ctx, err)
	}
	return []func(context.Context) error{s.serveAPI, s.gate.run, s.patrolling}, nil
}

// processName tells people who look at the queue where a task runs.
func processName() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%d@%s", os.Getpid(), host)
}
