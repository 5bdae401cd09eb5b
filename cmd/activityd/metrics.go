package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/activityd/activityd/internal/console"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/settings"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

// metricsGrace is how long scrapes under way may take to finish at the stop.
const metricsGrace = time.Second

// listenMetrics opens the listener for metrics, unless there is to be none.
func (s *service) listenMetrics(ctx context.Context) error {
	if s.config.metricsListen == "" {
		return nil
	}
	var own []string
	if s.config.role != roleAPI {
		own = s.config.ownQueues()
	}
	server := metrics.NewServer(metrics.Options{
		Version: release, Role: s.config.role, Probes: s.api.Handler(), Log: s.log, Console: s.console,
		Collectors: []prometheus.Collector{
			s.load, queue.NewStatsCollector(tasks.Kinds(), s.queue.Stats, own, s.log), once.ExhaustedNames(once.NewMySQL(s.db).Exhausted),
		},
	})
	if err := server.Listen(ctx, s.config.metricsListen); err != nil {
		return fmt.Errorf("--metrics-listen (%s): %w; choose another, or none with --metrics-listen=", settings.Variable("metrics-listen"), err)
	}
	s.metricsServer = server
	s.log.InfoContext(ctx, "listening for metrics", "address", server.Addr().String())
	return nil
}

// console makes the pages for operators, for a server that knows its own names.
func (s *service) console(knows func(string) bool) http.Handler {
	return console.New(console.Options{
		Queue: s.queueOn(s.requests), Push: push.NewMySQL(s.requests), Tokens: s.credentials.tokens,
		Log: s.log, Kinds: tasks.Kinds().Names(), Knows: knows, Explain: s.explain,
	})
}
