package auth

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	requests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_access_requests_total", Help: "Requests to what needs a scope, by the name of their token and the verdict; (none): without a token, (unknown): with one that is not known, (viewer): of all viewers.",
	}, []string{"token", "verdict"})
	certificateEnd = promauto.NewGaugeVec(prometheus.GaugeOpts{ // it has no series without a certificate
		Name: "activityd_tls_certificate_not_after_timestamp_seconds", Help: "Unix time at which the certificate in use ends, not those of its chain; no series: no TLS.",
	}, nil)
)

// Values of the label token beside names, without parentheses, and [AnyViewer].
const (
	labelNone    = "(none)"
	labelUnknown = "(unknown)"
)

func init() { // the usual series begin with 0
	beginWith0(labelNone, Allowed, NoToken, ForeignHost)
	beginWith0(labelUnknown, UnknownToken)
	beginWith0(AnyViewer, Allowed, UnknownToken, Expired, OverLimit)
}

func beginWith0(token string, verdicts ...Verdict) {
	for _, v := range verdicts {
		requests.WithLabelValues(token, string(v))
	}
}

// CountRequest counts the verdict on a request that needs a scope. token is the name of its token, [AnyViewer] of
// viewers, "" without a known token; v is "" after an internal error.
func CountRequest(token string, v Verdict) {
	if token == "" && v == UnknownToken {
		token = labelUnknown
	}
	requests.WithLabelValues(cmp.Or(token, labelNone), string(cmp.Or(v, "other"))).Inc()
}
