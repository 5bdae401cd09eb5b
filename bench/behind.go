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
	"sync"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/activityd/activityd/internal/admit"
	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/queue"
)

// The limiters that are compared, behind the same handler.
var limiters = map[string]func() admit.Admitter{
	noLimit:     func() admit.Admitter { return admit.Unlimited{} },
	ownLimit:    func() admit.Admitter { return admit.New(admit.Options{Most: readsAtOnce}) },
	bySemaphore: func() admit.Admitter { return bySemaphores{semaphore.NewWeighted(readsAtOnce)} },
	byFailsafe:  newFailsafe,
}

const (
	// readsAtOnce is three quarters of the connections to MySQL, as many as activityd lets in at most.
	readsAtOnce = 24
	// turnWait is how long a read waits for its turn.
	turnWait = 50 * time.Millisecond
)

// bySemaphores lets in as many reads of any class as there are turns.
type bySemaphores struct{ turns *semaphore.Weighted }

// Enter implements [admit.Admitter].
func (s bySemaphores) Enter(ctx context.Context, _ admit.By) (admit.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, turnWait)
	defer cancel()
	if err := s.turns.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("%w: %w", admit.ErrBusy, err)
	}
	return leaving(func(bool) { s.turns.Release(1) }), nil
}

// Refuses implements [admit.Admitter]: a read always waits.
func (bySemaphores) Refuses(admit.By) bool { return false }

// Busy implements [admit.Admitter].
func (bySemaphores) Busy() bool { return false }

// leaving returns a place of a limiter that knows no walks.
func leaving(leave func(proven bool)) admit.Place {
	var once sync.Once
	return held{admit.PlaceOf(context.Background()), func(proven bool) { once.Do(func() { leave(proven) }) }}
}

type held struct {
	admit.Place

	leave func(proven bool)
}

// Leave implements [admit.Place].
func (h held) Leave(proven bool) { h.leave(proven) }

// failsafe is the adaptive limiter of failsafe-go.
type failsafe struct {
	adaptivelimiter.AdaptiveLimiter[any]
}

// newFailsafe returns it with a queue, and nearly the bounds that activityd has. Its windows are shorter
// than by default, which makes it follow a load of seconds.
func newFailsafe() admit.Admitter {
	return failsafe{adaptivelimiter.NewBuilder[any]().WithLimits(8, readsAtOnce, 16).
		WithRecentWindow(100*time.Millisecond, time.Second, 50).WithQueueing(2, 3).Build()}
}

// Enter implements [admit.Admitter]. Only the times of proven reads are recorded, as all of them do the
// same.
func (f failsafe) Enter(ctx context.Context, _ admit.By) (admit.Place, error) {
	permit, err := f.AcquirePermitWithMaxWait(ctx, turnWait)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", admit.ErrBusy, err)
	}
	return leaving(func(proven bool) {
		if proven {
			permit.Record()
		} else {
			permit.Drop()
		}
	}), nil
}

// Refuses implements [admit.Admitter].
func (f failsafe) Refuses(admit.By) bool { return !f.CanAcquirePermit() }

// Busy implements [admit.Admitter].
func (failsafe) Busy() bool { return false }

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
	newLimiter, known := limiters[*limiter]
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
	q := queue.NewQueue(db, queue.Options{Owner: "bench"})
	hints := tasks.NewHints(q, logger)
	limit, late := newLimiter(), &admit.Lateness{}
	reader := recent.NewReader(ix, contacts.NewMySQL(db), hints, recent.Options{
		Min: ix.Settings().Min, WalkTimeout: api.DefaultRequestTimeout, Late: late.Since,
	})
	server := api.New(api.Config{Reader: reader, Limiter: limit, Late: late.Now, Enqueuer: q, Logger: logger, Checker: func(ctx context.Context) api.Health {
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
	group.Go(func() error { return late.Run(running) })
	group.Go(server.Serve)
	group.Go(own.Serve)
	<-running.Done()
	err = errors.Join(server.Close(), own.Close(), group.Wait())
	if ctx.Err() != nil { // it was told to end, whatever was under way
		return nil
	}
	return err
}
