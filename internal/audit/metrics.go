package audit

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

var (
	setsChecked = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_checked_total", Help: "Sets compared with MySQL; sweep: one after the other, read: sampled from the reads.",
	}, []string{"origin"})
	setsErroneous = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_erroneous_total", Help: "Sets compared with MySQL that had an error.",
	}, []string{"origin"})
	setsUnsettled = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_unsettled_total", Help: "Sets that changed too often to be compared.",
	}, []string{"origin"})
	setsUnreachable = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_unreachable_total", Help: "Sets left out because their node of Redis could not be used.",
	}, []string{"origin"})
	membersFailed = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_failed_total", Help: "Members left out because MySQL or Redis failed at them alone, again and again; the log names one.",
	}, []string{"origin"})
	privateNewests = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_private_newest_total", Help: "Members seen whose newest photo is private, by last_upload; below: earlier than the photo, covers: not earlier, as the upload counted or the photo was made private later. Unconfirmed.",
	}, []string{"last_upload"})
	answersChecked = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_answers_checked_total", Help: "Answers by the index compared with the answer by MySQL alone.",
	})
	answersErroneous = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_answers_erroneous_total", Help: "Answers by the index that were wrong.",
	})
	findings = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_findings_total", Help: "Differences from MySQL; lag: a task is pending, error: none is, waste: none is, and it does no harm.",
	}, []string{"cause", "class"})
	refills = promauto.NewCounterVec(prometheus.CounterOpts{
		Name: "activityd_audit_repairs_total", Help: "Refills for what was found; deferred: too many at once.",
	}, []string{"result"})
	samplesDropped = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_samples_dropped_total", Help: "Reads that were to be compared when too many waited already.",
	})
	setsBuilt = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_built_total", Help: "Sets that the sweep built because Redis was new or had lost data.",
	})
	redisLosses = promauto.NewCounter(prometheus.CounterOpts{
		Name: "activityd_audit_redis_losses_total", Help: "Times that Redis, or a node of it, was found to be new or to have lost data; each process counts.",
	})

	// These have series in the process that sweeps only.
	sweepProgress = newSweepGauge("progress_ratio", "Share of the members that this round of the sweep has looked at, 0 to 1.")
	sweepBegan    = newSweepGauge("began_timestamp_seconds", "Unix time at which this round of the sweep began.")
	sweepEnded    = newSweepGauge("ended_timestamp_seconds", "Unix time at which the last round of the sweep ended.")
)

func newSweepGauge(name, help string) *prometheus.GaugeVec {
	return promauto.NewGaugeVec(prometheus.GaugeOpts{Name: "activityd_audit_sweep_" + name, Help: help}, nil)
}

// The origins: why a set was compared.
const (
	OfRead  = "read"  // it was sampled from the reads
	OfSweep = "sweep" // the sweep reached it
)

func init() { // the known series begin with 0
	for _, origin := range []string{OfRead, OfSweep} {
		for _, sets := range []*prometheus.CounterVec{setsChecked, setsErroneous, setsUnsettled, setsUnreachable, membersFailed} {
			sets.WithLabelValues(origin)
		}
	}
	for _, cause := range Causes() {
		for _, class := range Classes() {
			findings.WithLabelValues(cause.label(), string(class))
		}
	}
	privateNewests.WithLabelValues("covers")
	privateNewests.WithLabelValues("below")
	refills.WithLabelValues("enqueued")
	refills.WithLabelValues("deferred")
}

// label returns the cause as a label.
func (c Cause) label() string { return strings.ReplaceAll(string(c), " ", "_") }

// countSets counts sets that were compared.
func countSets(origin string, r Report) {
	setsChecked.WithLabelValues(origin).Add(float64(r.Checked))
	setsErroneous.WithLabelValues(origin).Add(float64(r.Erroneous))
	setsUnsettled.WithLabelValues(origin).Add(float64(r.Unsettled))
	setsUnreachable.WithLabelValues(origin).Add(float64(len(r.Unreachable)))
	privateNewests.WithLabelValues("covers").Add(float64(r.PrivateCovered))
	privateNewests.WithLabelValues("below").Add(float64(r.PrivateBeyond))
	countFindings(r.Findings)
}

// countAnswers counts answers that were compared.
func countAnswers(r Report) {
	answersChecked.Add(float64(r.Checked))
	answersErroneous.Add(float64(r.Erroneous))
	countFindings(r.Findings)
}

func countFindings(list []Finding) {
	for _, f := range list {
		findings.WithLabelValues(f.Cause.label(), string(f.Class)).Inc()
	}
}

// show sets the gauges of the sweep to a round.
func (r round) show() {
	sweepProgress.WithLabelValues().Set(min(1, float64(r.seen())/float64(max(r.Total, 1))))
	sweepBegan.WithLabelValues().Set(float64(time.UnixMilli(r.Began).Unix()))
	if r.Ended != 0 {
		sweepEnded.WithLabelValues().Set(float64(time.UnixMilli(r.Ended).Unix()))
	}
}

// hideSweep removes the gauges of the sweep: this process does not sweep.
func hideSweep() {
	for _, g := range []*prometheus.GaugeVec{sweepProgress, sweepBegan, sweepEnded} {
		g.Reset()
	}
}
