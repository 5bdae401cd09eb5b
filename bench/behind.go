package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

// Behind the same handler as activityd's, reads are bounded by one of these.
var limiters = map[string]func(api.Reader) api.Reader{
	noLimit:     func(r api.Reader) api.Reader { return r },
	bySemaphore: func(r api.Reader) api.Reader { return bounded{r, plainSemaphore(semaphore.NewWeighted(readsAtOnce))} },
	byFailsafe:  func(r api.Reader) api.Reader { return bounded{r, newFailsafe()} },
}

const (
	// readsAtOnce is three quarters of the connections to MySQL, as many as activityd lets in at most.
	readsAtOnce = 24
	// turnWait is how long a read waits for its turn.
	turnWait = 50 * time.Millisecond
)

// turns lets reads begin. The function that it returns ends a read.
type turns interface {
	take(ctx context.Context) (leave func(), err error)
}

// bounded reads when it is its turn, and is busy when that is not soon.
type bounded struct {
	api.Reader
	turns turns
}

// Read implements [api.Reader].
func (b bounded) Read(ctx context.Context, v contacts.Viewer, limit int) (recent.Answer, error) {
	leave, err := b.turns.take(ctx)
	if err != nil {
		return recent.Answer{}, fmt.Errorf("%w: %w", recent.ErrBusy, err)
	}
	defer leave()
	return b.Reader.Read(ctx, v, limit)
}

type plain struct{ *semaphore.Weighted }

func plainSemaphore(w *semaphore.Weighted) turns { return plain{w} }

func (p plain) take(ctx context.Context) (leave func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	return func() { p.Release(1) }, p.Acquire(ctx, 1)
}

type failsafe struct {
	adaptivelimiter.AdaptiveLimiter[any]
}

// newFailsafe returns the library's adaptive limiter, with a queue, between the bounds that
// activityd has. Its windows are shorter than by default, which makes it follow a load of seconds.
func newFailsafe() turns {
	return failsafe{adaptivelimiter.NewBuilder[any]().WithLimits(8, readsAtOnce, 16).
		WithRecentWindow(100*time.Millisecond, time.Second, 50).WithQueueing(2, 3).Build()}
}

func (f failsafe) take(ctx context.Context) (leave func(), err error) {
	permit, err := f.AcquirePermitWithMaxWait(ctx, turnWait)
	if err != nil {
		return nil, err
	}
	return permit.Record, nil
}

// serveBehind answers reads as "activityd serve --role=api" does, behind a limiter that --limiter
// names. It understands as many of activityd's flags as the benchmark uses, and logs the same.
func serveBehind(ctx context.Context, args []string, log io.Writer) (err error) {
	flags := flag.NewFlagSet("bench serve", flag.ContinueOnError)
	flags.SetOutput(log)
	listen, metricsListen := flags.String("listen", "", "address"), flags.String("metrics-listen", "", "address")
	dsn, url := flags.String("mysql-dsn", "", "database"), flags.String("redis-url", "", "Redis")
	limiter := flags.String("limiter", noLimit, strings.Join(slices.Sorted(maps.Keys(limiters)), ", "))
	flags.String("log-format", "json", "json")
	if err := flags.Parse(args); err != nil {
		return err
	}
	limit, known := limiters[*limiter]
	if !known {
		return fmt.Errorf("--limiter %q: want one of %q", *limiter, slices.Sorted(maps.Keys(limiters)))
	}
	logger := slog.New(slog.NewJSONHandler(log, nil))
	db, err := mysql.Open(*dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	options, err := redis.ParseURL(*url)
	if err != nil {
		return err
	}
	options.ContextTimeoutEnabled = true
	client := redis.NewClient(options)
	defer func() { err = errors.Join(err, client.Close()) }()
	ix, err := newIndex(client)
	if err != nil {
		return err
	}
	q := queue.NewMySQLQueue(db, queue.Options{Owner: "bench"})
	hints := tasks.NewHints(q, logger)
	reader := recent.NewReader(ix, contacts.NewMySQL(db), hints, recent.Options{Min: ix.Settings().Min, WalkTimeout: api.DefaultRequestTimeout})
	server := api.New(api.Config{Reader: limit(reader), Enqueuer: q, Logger: logger, Checker: func(ctx context.Context) api.Health {
		return api.Health{MySQL: api.Component{Usable: db.PingContext(ctx) == nil}, Redis: api.Component{Usable: client.Ping(ctx).Err() == nil}}
	}})
	own := metrics.NewServer(metrics.Options{Probes: server.Handler(), Profiles: true, Log: logger})
	if err := errors.Join(server.Listen(ctx, *listen), own.Listen(ctx, *metricsListen)); err != nil {
		return errors.Join(err, server.Close(), own.Close())
	}
	logger.InfoContext(ctx, "listening", "address", server.Addr().String())
	logger.InfoContext(ctx, "listening for metrics", "address", own.Addr().String())
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return hints.Run(running) })
	group.Go(server.Serve)
	group.Go(own.Serve)
	<-running.Done()
	err = errors.Join(server.Close(), own.Close(), group.Wait())
	if ctx.Err() != nil { // it was told to end, whatever was under way
		return nil
	}
	return err
}
