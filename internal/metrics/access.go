package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/auth"
)

// Access is the [auth.Observer] that shows what is in use, and counts requests
// by the names of the tokens. A name is a label only as long as a token has it,
// and nothing is shown that comes from a secret.
type Access struct {
	requests *prometheus.CounterVec
	notAfter *prometheus.GaugeVec // has no series without a certificate

	mu    sync.RWMutex // held while the names are replaced
	names map[string]bool
}

var _ auth.Observer = (*Access)(nil)

// Values of the label token that are no token's name, as no name has parentheses.
const (
	tokenNone    = "(none)"
	tokenUnknown = "(unknown)"
)

// verdicts are the known ones.
var verdicts = labels{
	string(auth.Allowed), string(auth.NoToken), string(auth.UnknownToken),
	string(auth.WrongScope), string(auth.OverLimit), string(auth.ForeignHost),
}

// usualVerdicts are those on requests that bear no token, or none that is known.
var usualVerdicts = map[string][]auth.Verdict{
	tokenNone:    {auth.Allowed, auth.NoToken, auth.ForeignHost},
	tokenUnknown: {auth.UnknownToken},
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
func (a *Access) begin(token string, verdicts ...auth.Verdict) {
	for _, v := range verdicts {
		a.requests.WithLabelValues(token, string(v))
	}
}

// CertificateTaken implements [auth.Observer].
func (a *Access) CertificateTaken(notAfter time.Time) {
	a.notAfter.WithLabelValues().Set(float64(notAfter.Unix()))
}

// TokensTaken implements [auth.Observer]. The series of tokens that are gone
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
		a.begin(name, auth.Allowed, auth.WrongScope, auth.OverLimit)
	}
}

// judged counts a verdict.
func (a *Access) judged(token string, v auth.Verdict) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	a.requests.WithLabelValues(a.label(token, v), verdicts.of(string(v))).Inc()
}

func (a *Access) label(token string, v auth.Verdict) string {
	switch {
	case a.names[token]:
		return token
	case token == "" && v != auth.UnknownToken:
		return tokenNone
	}
	return tokenUnknown // also one that was revoked while it was looked at
}
