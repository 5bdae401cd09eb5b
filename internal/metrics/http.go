package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/auth"
)

// HTTP is the observer of package api that counts.
type HTTP struct {
	took     *prometheus.HistogramVec
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
	refused  prometheus.Counter
	access   *Access

	connections        prometheus.Gauge
	refusedConnections prometheus.Counter
}

func newHTTP(f promauto.Factory, a *Access) *HTTP {
	by := []string{"route", "method", "code"}
	return &HTTP{
		took:     f.NewHistogramVec(histogramOpts("http_request_seconds", "Time from the header of a request to the end of its response.", readBuckets...), by),
		requests: f.NewCounterVec(counterOpts("http_requests_total", "Requests by route, method and status; 499: the client left."), by),
		inFlight: f.NewGauge(gaugeOpts("http_requests_in_flight", "Requests that are being answered.")),
		refused:  f.NewCounter(counterOpts("enqueues_refused_total", "Requests with tasks that were turned away because too many tasks wait.")),
		access:   a,

		connections:        f.NewGauge(gaugeOpts("http_connections", "Connections to the API that are open.")),
		refusedConnections: f.NewCounter(counterOpts("http_connections_refused_total", "Connections to the API that were closed at once because too many were open.")),
	}
}

// ConnectionOpened counts a connection that was taken.
func (h *HTTP) ConnectionOpened() { h.connections.Inc() }

// ConnectionClosed counts the end of one.
func (h *HTTP) ConnectionClosed() { h.connections.Dec() }

// ConnectionRefused counts one too many.
func (h *HTTP) ConnectionRefused() { h.refusedConnections.Inc() }

// RequestBegan counts a request that has arrived.
func (h *HTTP) RequestBegan() { h.inFlight.Inc() }

// RequestEnded counts a response. The route is a template, never a path.
func (h *HTTP) RequestEnded(method, route string, status int, took time.Duration) {
	h.inFlight.Dec()
	method, code := methods.of(method), strconv.Itoa(status)
	h.took.WithLabelValues(route, method, code).Observe(seconds(took))
	h.requests.WithLabelValues(route, method, code).Inc()
}

// CallerJudged counts the verdict on a request by the name of its token.
func (h *HTTP) CallerJudged(token string, verdict auth.Verdict) { h.access.judged(token, verdict) }

// EnqueueRefused counts a request that was turned away with its tasks.
func (h *HTTP) EnqueueRefused() { h.refused.Inc() }
