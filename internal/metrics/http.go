package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// HTTP is the observer of package api that counts.
type HTTP struct {
	took     *prometheus.HistogramVec
	requests *prometheus.CounterVec
	inFlight prometheus.Gauge
}

func newHTTP(f promauto.Factory) *HTTP {
	by := []string{"route", "method", "code"}
	return &HTTP{
		took:     f.NewHistogramVec(histogramOpts("http_request_seconds", "Time from the header of a request to the end of its response.", readBuckets...), by),
		requests: f.NewCounterVec(counterOpts("http_requests_total", "Requests by route, method and status; 499: the client left."), by),
		inFlight: f.NewGauge(gaugeOpts("http_requests_in_flight", "Requests that are being answered.")),
	}
}

// RequestBegan counts a request that has arrived.
func (h *HTTP) RequestBegan() { h.inFlight.Inc() }

// RequestEnded counts a response. The route is a template, never a path.
func (h *HTTP) RequestEnded(method, route string, status int, took time.Duration) {
	h.inFlight.Dec()
	method, code := methods.of(method), strconv.Itoa(status)
	h.took.WithLabelValues(route, method, code).Observe(seconds(took))
	h.requests.WithLabelValues(route, method, code).Inc()
}
