package metrics_test

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/activityd/activityd/internal/api"
	_ "github.com/activityd/activityd/internal/check" // has metrics, as the next have
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/health"
	_ "github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/outage"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/push/platforms"
	"github.com/activityd/activityd/internal/recent"
	_ "github.com/activityd/activityd/internal/stream"
	"github.com/activityd/activityd/internal/tasks"
	"github.com/activityd/activityd/internal/testing/oncetest"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/once"
	"github.com/activityd/activityd/queue"
)

// exported is a metric, or one of the series of a histogram.
type exported struct {
	kind   string
	labels map[string][]string // the values that there are from the start
	help   string              // "" of a series of a histogram, and of up
	names  []string            // of the labels, as they are declared
}

// everything is what the program exports, and the metric up, which Prometheus adds.
var everything = sync.OnceValue(func() map[string]exported {
	log, kinds := slog.New(slog.DiscardHandler), queue.Options{Kinds: tasks.Kinds(), Registerer: prometheus.DefaultRegisterer}
	q := queuetest.NewMemory(queue.Options{Kinds: tasks.Kinds()}, time.Now)
	queue.NewQueue(new(sql.DB), kinds) // begins series, as the next lines do
	push.BeginSeries(platforms.All()...)
	once.New(oncetest.NewMemory(time.Now), once.Options{Registerer: prometheus.DefaultRegisterer})
	serveRequests(log, q)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		health.NewLoad(q, tasks.ChangingSets(), 0, outage.New(log, "MySQL"), log),
		queue.NewStatsCollector(tasks.Kinds(), q.Stats, nil, log),
		once.ExhaustedNames(func(context.Context) (int, error) { return 0, nil }),
		metrics.NewBuildInfo("v1.2.3", "all"))
	all := map[string]exported{"up": {kind: "gauge"}}
	for _, c := range []prometheus.Collector{prometheus.DefaultRegisterer.(*prometheus.Registry), registry} {
		describe(all, c)
	}
	families, err := prometheus.Gatherers{prometheus.DefaultGatherer, registry}.Gather()
	must(err)
	for _, family := range families {
		e := all[family.GetName()]
		e.kind = strings.ToLower(family.GetType().String())
		for _, metric := range family.GetMetric() {
			for _, l := range metric.GetLabel() {
				e.labels[l.GetName()] = append(e.labels[l.GetName()], l.GetValue())
			}
		}
		all[family.GetName()] = e
		switch family.GetType() {
		case dto.MetricType_SUMMARY:
			e.labels["quantile"] = []string{"0", "0.25", "0.5", "0.75", "1"}
		case dto.MetricType_HISTOGRAM:
			all[family.GetName()+"_sum"], all[family.GetName()+"_count"] = exported{labels: e.labels}, exported{labels: e.labels}
			buckets := maps.Clone(e.labels)
			buckets["le"] = nil
			all[family.GetName()+"_bucket"] = exported{labels: buckets}
		}
	}
	return all
})

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// descText is the form of [prometheus.Desc.String].
var descText = regexp.MustCompile(`fqName: ("(?:[^"\\]|\\.)*"), help: ("(?:[^"\\]|\\.)*"),.* variableLabels: \{([^}]*)\}`)

// describe adds the descriptions of a collector. A metric that has no series from the start is a counter or a gauge.
func describe(all map[string]exported, c prometheus.Collector) {
	descs := make(chan *prometheus.Desc)
	go func() {
		defer close(descs)
		c.Describe(descs)
	}()
	for d := range descs {
		text := descText.FindStringSubmatch(d.String())
		name, err := strconv.Unquote(text[1])
		must(err)
		help, err := strconv.Unquote(text[2])
		must(err)
		e := exported{kind: "gauge", help: help, labels: make(map[string][]string), names: strings.FieldsFunc(text[3], func(r rune) bool { return r == ',' })}
		if strings.HasSuffix(name, "_total") {
			e.kind = "counter"
		}
		for _, label := range e.names {
			e.labels[label] = nil
		}
		all[name] = e
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
