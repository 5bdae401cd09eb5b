package metrics_test

import (
	"context"
	"crypto/x509"
	"database/sql"
	"encoding/pem"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/platforms"
	"github.com/activityd/activityd/internal/recent"
	_ "github.com/activityd/activityd/internal/stream" // has metrics
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/miniredistest"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

// use makes the series that are not there from the start, and returns a scrape
// and the owners of the metrics. Most series are there with 0 from the start.
func use() ([]*dto.MetricFamily, []prometheus.Collector) {
	log := slog.New(slog.DiscardHandler)
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
	queue.NewQueue(new(sql.DB), queue.Options{Kinds: tasks.Kinds(), Registerer: prometheus.DefaultRegisterer}) // begins their series
	push.BeginSeries(platforms.All()...)
	serveRequests(log, q)
	showCertificate(log)
	defer useIndex(log, q)() // the metrics of a sweep go with it
	load := health.NewLoad(q, tasks.ChangingSets(), 0, outage.New(log, "MySQL"), log)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	must(load.Run(ended)) // it looks once
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		load,
		queue.NewStatsCollector(tasks.Kinds(), q.Stats, nil, log),
		once.ExhaustedNames(func(context.Context) (int, error) { return 0, nil }),
		metrics.NewBuildInfo("v1.2.3", "all"))
	return gathered(registry), []prometheus.Collector{prometheus.DefaultRegisterer.(*prometheus.Registry), registry}
}

func gathered(registry *prometheus.Registry) []*dto.MetricFamily {
	families, err := prometheus.Gatherers{prometheus.DefaultGatherer, registry}.Gather()
	must(err)
	return families
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// reader fails for a viewer.
type reader struct{ api.Reader }

func (reader) Read(_ context.Context, v contacts.Viewer, _ int) (recent.Answer, error) {
	if v.ID == 500 {
		return recent.Answer{}, errors.New("broken")
	}
	return recent.Answer{Source: recent.FromIndex}, nil
}

func serveRequests(log *slog.Logger, queue api.Enqueuer) {
	server := api.New(api.Config{Reader: reader{}, Enqueuer: queue, Health: func() api.Health { return api.Health{} }, Logger: log})
	for _, path := range []string{"/v1/users/1/recent-contact-photos", "/v1/users/500/recent-contact-photos", "/healthz", "/readyz"} {
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		r.Host = "localhost"
		server.Handler().ServeHTTP(httptest.NewRecorder(), r)
	}
}

func showCertificate(log *slog.Logger) {
	dir, err := os.MkdirTemp("", "activityd-")
	must(err)
	defer func() { must(os.RemoveAll(dir)) }()
	borrowed := httptest.NewTLSServer(nil)
	borrowed.Close()
	pair := borrowed.TLS.Certificates[0]
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	must(err)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})
	text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})...)
	file := filepath.Join(dir, "cert")
	must(os.WriteFile(file, text, 0o600))
	_, _, err = auth.LoadCertificate(file, log)
	must(err)
}

// useIndex probes Redis, and shows a sweep until stop is called.
func useIndex(log *slog.Logger, q *queuetest.Memory) (stop func()) {
	server, err := miniredis.Run()
	must(err)
	server.Server().SetPreHook(miniredistest.Info())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	settings, err := index.NewSettings(10, 20, 0)
	must(err)
	ix, store := index.New(client, index.Options{Settings: settings}), contacts.NewMemory()
	must(ix.Probe(context.Background()).Err())
	store.AddMember(1, "one")
	patrol := check.NewPatrol(check.PatrolOptions{
		Checker: check.New(check.Options{Sets: ix, Truth: store, Tasks: q}), Members: store, Tasks: q, Log: log,
		Rate: 1000, Round: time.Millisecond, Tick: time.Millisecond,
	})
	once.New(oncetest.NewMemory(time.Now), once.Options{Registerer: prometheus.DefaultRegisterer})
	_, err = q.Enqueue(context.Background(), []queue.New{tasks.NewCheckRange(tasks.RangeArgs{Began: time.Now()})})
	must(err)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	ended := make(chan error, 1)
	go func() { ended <- patrol.Run(ctx) }()
	for !isShown("activityd_audit_sweep_began_") && ctx.Err() == nil {
		<-time.After(10 * time.Millisecond)
	}
	return func() {
		cancel()
		must(<-ended)
		must(client.Close())
		server.Close()
	}
}

// isShown reports whether a metric has series.
func isShown(prefix string) bool {
	for _, family := range gathered(prometheus.NewRegistry()) {
		if strings.HasPrefix(family.GetName(), prefix) {
			return true
		}
	}
	return false
}
