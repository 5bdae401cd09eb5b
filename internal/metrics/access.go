package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/access"
)

// Access is the [access.Observer] that shows what is in use, and counts requests
// by the names of the tokens. A name is a label only as long as a token has it,
// and nothing is shown that comes from a secret.
type Access struct {
	requests *prometheus.CounterVec
	notAfter *prometheus.GaugeVec // has no series without a certificate

	mu    sync.RWMutex // held while the names are replaced
	names map[string]bool
}

var _ access.Observer = (*Access)(nil)

// Values of the label token that are no token's name, as no name has parentheses.
const (
	tokenNone    = "(none)"
	tokenUnknown = "(unknown)"
)

// verdicts are the known ones.
var verdicts = labels{
	string(access.Allowed), string(access.NoToken), string(access.UnknownToken),
	string(access.WrongScope), string(access.OverLimit), string(access.ForeignHost),
}

// usualVerdicts are those on requests that bear no token, or none that is known.
var usualVerdicts = map[string][]access.Verdict{
	tokenNone:    {access.Allowed, access.NoToken, access.ForeignHost},
	tokenUnknown: {access.UnknownToken},
}

func newAccess(f promauto.Factory) *Access {
	a := &Access{
		requests: f.NewCounterVec(counterOpts("access_requests_total",
			"Requests to what needs a scope, by the name of their token, and by the verdict on them."), []string{"token", "verdict"}),
		notAfter: f.NewGaugeVec(gaugeOpts("tls_certificate_not_after_timestamp_seconds",
			"Unix time until which the TLS certificate that is shown now is valid."), nil),
	}
	for token, verdicts := range usualVerdicts {
		a.begin(token, verdicts...)
	}
	return a
}

// begin shows 0 of what was not counted yet.
func (a *Access) begin(token string, verdicts ...access.Verdict) {
	for _, v := range verdicts {
		a.requests.WithLabelValues(token, string(v))
	}
}

// CertificateTaken implements [access.Observer].
func (a *Access) CertificateTaken(notAfter time.Time) {
	a.notAfter.WithLabelValues().Set(float64(notAfter.Unix()))
}

// TokensTaken implements [access.Observer]. The series of tokens that are gone
// vanish.
func (a *Access) TokensTaken(names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for name := range a.names {
		if !slices.Contains(names, name) {
			a.requests.DeletePartialMatch(prometheus.Labels{"token": name})
		}
	}
	a.names = make(map[string]bool, len(names))
	for _, name := range names {
		a.names[name] = true
		a.begin(name, access.Allowed, access.WrongScope, access.OverLimit)
	}
}

// judged counts a verdict.
func (a *Access) judged(token string, v access.Verdict) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	a.requests.WithLabelValues(a.label(token, v), verdicts.of(string(v))).Inc()
}

func (a *Access) label(token string, v access.Verdict) string {
	switch {
	case a.names[token]:
		return token
	case token == "" && v != access.UnknownToken:
		return tokenNone
	}
	return tokenUnknown // also one that was revoked while it was looked at
}
