package main

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/queue"
)

func (c *config) metricsFlag(f *pflag.FlagSet) {
	f.StringVar(&c.metricsListen, "metrics-listen", "127.0.0.1:9464",
		"`address` for metrics and probes, in every role; empty for none; there is no authentication, so keep it off public networks")
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
	var worked []string
	if s.config.role != roleAPI {
		for _, w := range s.config.poolOptions().Workers {
			if w.Count > 0 {
				worked = append(worked, w.Queue)
			}
		}
	}
	server := metrics.NewServer(metrics.Options{
		Version: moduleVersion(), Role: s.config.role, Probes: s.api.Handler(), Log: s.log,
		Collectors: []prometheus.Collector{queue.NewStatsCollector(s.stats, worked, s.log)},
	})
	if err := server.Listen(ctx, s.config.metricsListen); err != nil {
		return fmt.Errorf("--metrics-listen (%s): %w; choose another, or none with --metrics-listen=", environmentName("metrics-listen"), err)
	}
	s.metricsServer = server
	address := server.Addr().String()
	s.log.InfoContext(ctx, "listening for metrics", "address", address)
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
	return group.Wait()
}

// closeFront closes the API's listener after a failed start.
func (s *service) closeFront(ctx context.Context, err error) error {
	return errors.Join(err, s.api.Shutdown(ctx))
}
