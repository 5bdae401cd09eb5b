package check

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	setsChecked     = newSetCounter("checked", "Sets compared with MySQL; sweep: one after the other, read: sampled from the reads.")
	setsErroneous   = newSetCounter("erroneous", "Sets compared with MySQL that had an error.")
	setsUnsettled   = newSetCounter("unsettled", "Sets that changed too often to be compared.")
	setsUnreachable = newSetCounter("unreachable", "Sets left out because their node of Redis could not be used.")
	membersFailed   = newSetCounter("failed", "Members left out because MySQL or Redis failed at them alone; the log names one.")
	answersChecked  = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_answers_checked_total", Help: "Answers by the index compared with the answer by MySQL alone.",
	})
	answersErroneous = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_answers_erroneous_total", Help: "Answers by the index that were wrong.",
	})
	findings = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_findings_total", Help: "Differences from MySQL; lag: a task is pending, error: none is, waste: none is, and it does no harm.",
	}, []string{"cause", "class"})
	refills = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_repairs_total", Help: "Refills enqueued for what was found.",
	})
	redisLosses = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_redis_losses_total", Help: "Times that Redis, or a node of it, was found to be new or to have lost data; each process counts.",
	})

	// All processes with workers read the sweep's progress from the queue.
	sweepProgress = newSweepGauge("progress_ratio", "Share of the members that this round of the sweep has looked at, 0 to 1.")
	sweepBegan    = newSweepGauge("began_timestamp_seconds", "Unix time at which this round of the sweep began.")
	sweepEnded    = newSweepGauge("ended_timestamp_seconds", "Unix time at which the last round of the sweep ended, even if a node of Redis was away: see activityd_audit_unreachable_total.")
)

func newSetCounter(name, help string) *prometheus.CounterVec {
	return promauto.NewCounterVec(prometheus.CounterOpts{Name: "activityd_audit_" + name + "_total", Help: help}, []string{"origin"})
}

func newSweepGauge(name, help string) *prometheus.GaugeVec {
	return promauto.NewGaugeVec(prometheus.GaugeOpts{Name: "activityd_audit_sweep_" + name, Help: help}, nil)
}

// The origins: why a set was compared.
const (
	ofRead  = "read"  // it was sampled from the reads
	ofSweep = "sweep" // the sweep reached it
)

func init() { // the known series begin with 0
	for _, sets := range []*prometheus.CounterVec{setsChecked, setsErroneous, setsUnsettled, setsUnreachable, membersFailed} {
		sets.WithLabelValues(ofRead)
		sets.WithLabelValues(ofSweep)
	}
	for _, cause := range Causes() {
		for _, w := range Weights() {
			findings.WithLabelValues(cause.label(), string(w))
		}
	}
}

// label returns the cause as a label.
func (c Cause) label() string { return strings.ReplaceAll(string(c), " ", "_") }

// countSets counts sets that were compared, and the members at whom that failed.
func countSets(origin string, r Report, failed int) {
	setsChecked.WithLabelValues(origin).Add(float64(r.Checked))
	setsErroneous.WithLabelValues(origin).Add(float64(r.Erroneous))
	setsUnsettled.WithLabelValues(origin).Add(float64(r.Unsettled))
	setsUnreachable.WithLabelValues(origin).Add(float64(len(r.Unreachable)))
	membersFailed.WithLabelValues(origin).Add(float64(failed))
	countFindings(r.Findings)
}

func countFindings(list []Finding) {
	for _, f := range list {
		findings.WithLabelValues(f.Cause.label(), string(f.Weight)).Inc()
	}
}
