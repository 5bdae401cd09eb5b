package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/activityd/activityd/internal/audit"
)

// Audit is the [audit.Observer] that counts.
type Audit struct {
	checked   *prometheus.CounterVec
	erroneous *prometheus.CounterVec
	unsettled *prometheus.CounterVec
	failed    *prometheus.CounterVec
	findings  *prometheus.CounterVec
	lasting   prometheus.Counter
	answers   prometheus.Counter
	repairs   *prometheus.CounterVec
	dropped   prometheus.Counter
	losses    *prometheus.CounterVec
	sets      *ratioGauges
	shown     *ratioGauges
	sweep     sweepGauges
}

var _ audit.Observer = (*Audit)(nil)

// What became of a repair.
const (
	repairEnqueued = "enqueued"
	repairDeferred = "deferred"
)

func newAudit(r prometheus.Registerer, f promauto.Factory, now func() time.Time) *Audit {
	a := &Audit{
		checked:   f.NewCounterVec(counterOpts("audit_checked_total", "Sets compared with MySQL, by what made the audit look."), []string{"origin"}),
		erroneous: f.NewCounterVec(counterOpts("audit_erroneous_total", "Sets compared with MySQL that had an error."), []string{"origin"}),
		failed:    f.NewCounterVec(counterOpts("audit_failed_total", "Members left out because a server failed at them, again and again."), []string{"origin"}),
		unsettled: f.NewCounterVec(counterOpts("audit_unsettled_total", "Sets that changed too often to be compared."), []string{"origin"}),
		findings:  f.NewCounterVec(counterOpts("audit_findings_total", "Differences between sets or answers and MySQL."), []string{"cause", "class"}),
		lasting:   f.NewCounter(counterOpts("audit_lasting_lag_total", "Findings of class lag whose task has waited for too long.")),
		answers:   f.NewCounter(counterOpts("audit_answers_checked_total", "Answers by the index compared with the answer by MySQL alone.")),
		repairs:   f.NewCounterVec(counterOpts("audit_repairs_total", "Refills enqueued for what was found, or left for later."), []string{"result"}),
		dropped:   f.NewCounter(counterOpts("audit_samples_dropped_total", "Reads that were to be checked when too many waited already.")),
		losses:    f.NewCounterVec(counterOpts("audit_redis_losses_total", "How often Redis was found to have lost data, or replaced."), []string{"how"}),
		sets:      newRatioGauges("audit_error_ratio", "Share of the sets compared in the window that had an error.", now),
		shown:     newRatioGauges("audit_answer_error_ratio", "Share of the answers compared in the window that were wrong.", now),
		sweep:     newSweepGauges(f),
	}
	r.MustRegister(a.sets, a.shown)
	for _, o := range audit.Origins() {
		a.checked.WithLabelValues(string(o))
		a.erroneous.WithLabelValues(string(o))
		a.unsettled.WithLabelValues(string(o))
		a.failed.WithLabelValues(string(o))
	}
	for _, cause := range audit.Causes() {
		for _, class := range audit.Classes() {
			a.findings.WithLabelValues(labelOf(cause), string(class))
		}
	}
	for _, l := range audit.Losses() {
		a.losses.WithLabelValues(string(l))
	}
	a.repairs.WithLabelValues(repairEnqueued)
	a.repairs.WithLabelValues(repairDeferred)
	return a
}

// labelOf makes a label of what is written for people.
func labelOf(c audit.Cause) string { return strings.ReplaceAll(string(c), " ", "_") }

// Checked implements [audit.Observer].
func (a *Audit) Checked(origin audit.Origin, r audit.Report) {
	a.checked.WithLabelValues(string(origin)).Add(float64(r.Checked))
	a.erroneous.WithLabelValues(string(origin)).Add(float64(r.Erroneous))
	a.unsettled.WithLabelValues(string(origin)).Add(float64(r.Unsettled))
	a.failed.WithLabelValues(string(origin)).Add(float64(r.Failed))
	a.sets.add(r.Checked, r.Erroneous)
	a.found(r)
}

// AnswersChecked implements [audit.Observer].
func (a *Audit) AnswersChecked(r audit.Report) {
	a.answers.Add(float64(r.Checked))
	a.failed.WithLabelValues(string(audit.OfRead)).Add(float64(r.Failed))
	a.shown.add(r.Checked, r.Erroneous)
	a.found(r)
}

func (a *Audit) found(r audit.Report) {
	for _, f := range r.Findings {
		a.findings.WithLabelValues(labelOf(f.Cause), string(f.Class)).Inc()
		if f.Lasting {
			a.lasting.Inc()
		}
	}
}

// Repaired implements [audit.Observer].
func (a *Audit) Repaired(enqueued, deferred int) {
	a.repairs.WithLabelValues(repairEnqueued).Add(float64(enqueued))
	a.repairs.WithLabelValues(repairDeferred).Add(float64(deferred))
}

// SampleDropped implements [audit.Observer].
func (a *Audit) SampleDropped() { a.dropped.Inc() }

// RedisLost implements [audit.Observer].
func (a *Audit) RedisLost(l audit.Loss) { a.losses.WithLabelValues(string(l)).Inc() }

// SweepMoved implements [audit.Observer].
func (a *Audit) SweepMoved(p audit.Progress) { a.sweep.set(p) }

// ratioGauges shows one share over several windows, and nothing of a window in
// which nothing was checked: no news are no good news.
type ratioGauges struct {
	desc    *prometheus.Desc
	windows map[string]*ratio
}

func newRatioGauges(name, help string, now func() time.Time) *ratioGauges {
	g := &ratioGauges{desc: prometheus.NewDesc(namespace+"_"+name, help, []string{"window"}, nil), windows: map[string]*ratio{}}
	for window, span := range map[string]time.Duration{"5m": 5 * time.Minute, "1h": time.Hour, "24h": 24 * time.Hour} {
		g.windows[window] = &ratio{span: span, now: now}
	}
	return g
}

func (g *ratioGauges) add(all, bad int) {
	for _, w := range g.windows {
		w.add(all, bad)
	}
}

// Describe implements [prometheus.Collector].
func (g *ratioGauges) Describe(out chan<- *prometheus.Desc) { out <- g.desc }

// Collect implements [prometheus.Collector].
func (g *ratioGauges) Collect(out chan<- prometheus.Metric) {
	for window, r := range g.windows {
		if share, ok := r.value(); ok {
			out <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, share, window)
		}
	}
}

// sweepGauges tell where the sweep is, in the process that sweeps only.
type sweepGauges struct {
	progress, hurried, began, ended, took *prometheus.GaugeVec
}

func newSweepGauges(f promauto.Factory) sweepGauges {
	gauge := func(name, help string) *prometheus.GaugeVec { return f.NewGaugeVec(gaugeOpts(name, help), nil) }
	return sweepGauges{
		progress: gauge("audit_sweep_progress_ratio", "Share of the members that this round of the sweep has looked at, 0 to 1."),
		hurried:  gauge("audit_sweep_hurried", "1 while the sweep hurries because Redis lost data, 0 otherwise."),
		began:    gauge("audit_sweep_began_timestamp_seconds", "Unix time at which this round of the sweep began."),
		ended:    gauge("audit_sweep_ended_timestamp_seconds", "Unix time at which the last round of the sweep ended."),
		took:     gauge("audit_sweep_duration_seconds", "Time that the last round of the sweep took."),
	}
}

func (g sweepGauges) set(p audit.Progress) {
	if !p.Held {
		for _, v := range []*prometheus.GaugeVec{g.progress, g.hurried, g.began, g.ended, g.took} {
			v.Reset()
		}
		return
	}
	g.progress.WithLabelValues().Set(min(1, float64(p.Done)/float64(max(p.Total, 1))))
	g.hurried.WithLabelValues().Set(truth(p.Hurried))
	g.began.WithLabelValues().Set(float64(p.Began.Unix()))
	if !p.Ended.IsZero() {
		g.ended.WithLabelValues().Set(float64(p.Ended.Unix()))
		g.took.WithLabelValues().Set(p.Took.Seconds())
	}
}
