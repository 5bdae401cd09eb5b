package check

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	checked   = newCounter("checked", "Sets, or answers, compared with MySQL; sweep: sets one after the other, read: sets of sampled reads, answer: their answers.", "origin")
	erroneous = newCounter("erroneous", "Sets, or answers, compared with MySQL that had an error.", "origin")
	unsettled = newCounter("unsettled", "Sets, or answers, that changed too often to be compared.", "origin")
	failed    = newCounter("failed", "Members left out because their node of Redis was away, or MySQL gave up; the log names one.", "origin")

	findings    = newCounter("findings", "Differences from MySQL; lag: a task is pending, error: none is, waste: none is, and it does no harm.", "cause", "class")
	refills     = newCounter("repairs", "Refills enqueued for what was found.")
	redisLosses = newCounter("redis_losses", "Times that Redis, or a node of it, was found to be new or to have lost data; each process counts.")

	// All processes with workers read it from the queue.
	sweepBegan = promauto.NewGaugeVec(prometheus.GaugeOpts{
		Name: "activityd_audit_sweep_began_timestamp_seconds", Help: "Unix time at which this round of the sweep began; the end of a round begins the next.",
	}, nil)
)

func newCounter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.NewCounterVec(prometheus.CounterOpts{Name: "activityd_audit_" + name + "_total", Help: help}, labels)
}

// The origins: why a set or an answer was compared.
const (
	ofRead   = "read"   // the set of a sampled read
	ofAnswer = "answer" // the answer of a sampled read
	ofSweep  = "sweep"  // the sweep reached the set
)

func init() { // the known series begin with 0
	for _, origin := range []string{ofRead, ofAnswer, ofSweep} {
		count(origin, Report{})
	}
	for _, f := range rulings {
		for _, w := range []Weight{Lag, Error, Waste} {
			findings.WithLabelValues(f.label(), string(w))
		}
	}
	refills.WithLabelValues()
	redisLosses.WithLabelValues()
}

// label returns the cause as a label.
func (c Cause) label() string { return strings.ReplaceAll(string(c), " ", "_") }

func count(origin string, r Report) {
	checked.WithLabelValues(origin).Add(float64(r.Checked))
	erroneous.WithLabelValues(origin).Add(float64(r.Erroneous()))
	unsettled.WithLabelValues(origin).Add(float64(r.Unsettled))
	failed.WithLabelValues(origin).Add(float64(len(r.Failed)))
	for _, f := range r.Findings {
		findings.WithLabelValues(f.Cause.label(), string(f.Weight)).Inc()
	}
}
