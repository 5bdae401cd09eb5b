package once

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	operations = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_once_operations_total", Help: "Operations on locks, by action and outcome.",
	}, []string{"action", "outcome"})
	attempts = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_once_attempts_total", Help: "Attempts of this process that ended, by their outcome.",
	}, []string{"outcome"})
	exhausted = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_once_exhausted_total", Help: "Names whose last attempt failed, as this process noticed first.",
	})
)

// The values of the label outcome of attempts.
const (
	outcomeDone     = "done"
	outcomeFailed   = "failed"   // the lost ones, too
	outcomeReleased = "released" // handed back, because the process was stopped
)
