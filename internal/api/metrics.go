package api

import (
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	// It has the buckets of activityd_read_seconds.
	requestSeconds = promauto.NewHistogramVec(prometheus.HistogramOpts{
		Name: "activityd_http_request_seconds", Help: "Time from the header of a request to the end of its response, by route, method and status; 499: the client left first.",
		Buckets: []float64{0.00025, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.02, 0.035, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10},
	}, []string{"route", "method", "code"})
	requestsInFlight = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_http_requests_in_flight", Help: "Requests that are being answered.",
	})
	enqueuesRefused = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_enqueues_refused_total", Help: "Requests with tasks that were answered 429, because more than a million tasks wait.",
	})
	connections = promauto.NewGauge(prometheus.GaugeOpts{
		Name: "activityd_http_connections", Help: "Connections to the API that are open.",
	})
	connectionsRefused = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_http_connections_refused_total", Help: "Connections to the API that were closed as they came, because too many were open.",
	})
)

// knownMethods are the methods that a client of the API has any reason to send.
var knownMethods = []string{
	http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// countRequest counts a response. The route is a template, never a path; the method
// is as the client sent it, GET for HEAD.
func countRequest(method, route string, status int, took time.Duration) {
	if !slices.Contains(knownMethods, method) {
		method = "other"
	}
	requestSeconds.WithLabelValues(route, method, strconv.Itoa(status)).Observe(took.Seconds())
}
