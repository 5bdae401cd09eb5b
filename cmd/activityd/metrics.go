package main

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/metrics"
)

func (c *config) metricsFlag(f *pflag.FlagSet) {
	f.StringVar(&c.metricsListen, "metrics-listen", "127.0.0.1:9464",
		"`address` for metrics and probes, in every role; empty for none; there is no authentication, so keep it off public networks")
}

// newMetrics makes the metrics of a process of this configuration.
func newMetrics(c *config, log *slog.Logger) *metrics.Metrics {
	o := metrics.Options{Version: moduleVersion(), Role: c.role, Log: log}
	if c.role != roleAPI {
		for _, w := range c.poolOptions().Workers {
			if w.Count > 0 {
				o.Queues = append(o.Queues, w.Queue)
			}
		}
	}
	return metrics.New(o)
}

// moduleVersion is the version that was built, if the build knows it.
func moduleVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info.Main.Version
	}
	return ""
}

// listenMetrics opens the listener for metrics, unless there is to be none.
func (s *service) listenMetrics(ctx context.Context) error {
	if s.config.metricsListen == "" {
		return nil
	}
	server := metrics.NewServer(s.metrics, s.api.Handler(), s.log)
	if err := server.Listen(ctx, s.config.metricsListen); err != nil {
		return fmt.Errorf("--metrics-listen (%s): %w; choose another, or none with --metrics-listen=", environmentName("metrics-listen"), err)
	}
	s.metricsServer = server
	s.log.InfoContext(ctx, "listening for metrics", "address", server.Addr().String())
	return nil
}

// metricsGrace is how long scrapes under way may take to finish at the stop.
const metricsGrace = time.Second

// withMetrics runs the service, with its metrics from before its start to after
// its end, so that the stop can be watched, too. If the metrics fail, the service
// is stopped.
func (s *service) withMetrics(ctx context.Context, run func(context.Context) error) error {
	if s.metricsServer == nil {
		return run(ctx)
	}
	group, running := errgroup.WithContext(ctx)
	served, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	group.Go(func() error {
		defer stop()
		return run(running)
	})
	group.Go(func() error {
		return serveUntil(served, metricsGrace, s.metricsServer.Serve, s.metricsServer.Shutdown)
	})
	group.Go(func() error { return s.metrics.Watch(served, reportingStats{s}) })
	return group.Wait()
}
