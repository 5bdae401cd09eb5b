package metrics_test

import (
	"testing"
	"time"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/metrics"
)

// clock is one that a test moves.
type clock struct{ now time.Time }

func (c *clock) read() time.Time { return c.now }

func TestWindowsForget(t *testing.T) {
	t.Parallel()
	c := &clock{time.Unix(1_800_000_000, 0)}
	m := metrics.New(metrics.Options{Now: c.read})
	const name = "activityd_audit_error_ratio"
	if got := gather(t, m).named(name); len(got) != 0 {
		t.Fatalf("nothing was checked: %v", got)
	}
	is := func(want samples) {
		t.Helper()
		got := gather(t, m).named(name)
		if len(got) != len(want) {
			t.Errorf("%v, want %v", got, want)
		}
		got.has(t, want)
	}
	m.Audit.Checked(audit.OfSweep, audit.Report{Checked: 100, Erroneous: 10})
	c.now = c.now.Add(4 * time.Minute)
	m.Audit.Checked(audit.OfRead, audit.Report{Checked: 100})
	is(samples{name + `{window="5m"}`: 0.05, name + `{window="1h"}`: 0.05, name + `{window="24h"}`: 0.05})
	c.now = c.now.Add(2 * time.Minute) // the first is forgotten by the shortest
	is(samples{name + `{window="5m"}`: 0, name + `{window="1h"}`: 0.05, name + `{window="24h"}`: 0.05})
	c.now = c.now.Add(4 * time.Minute)
	is(samples{name + `{window="1h"}`: 0.05, name + `{window="24h"}`: 0.05})
	c.now = c.now.Add(61 * time.Minute)
	is(samples{name + `{window="24h"}`: 0.05})
	c.now = c.now.Add(25 * time.Hour)
	is(samples{})
	m.Audit.Checked(audit.OfRead, audit.Report{Checked: 4, Erroneous: 1}) // the parts of the ring are used anew
	is(samples{name + `{window="5m"}`: 0.25, name + `{window="1h"}`: 0.25, name + `{window="24h"}`: 0.25})
}

func TestTheAuditIsCounted(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	m.Audit.Checked(audit.OfRead, audit.Report{Checked: 5, Erroneous: 1, Unsettled: 2, Failed: 3, Findings: []audit.Finding{
		{Cause: audit.StaleScore, Class: audit.Error},
		{Cause: audit.StaleScore, Class: audit.Error},
		{Cause: audit.LostSet, Class: audit.Lag, Lasting: true},
		{Cause: audit.Ghost, Class: audit.Waste},
		{Cause: audit.LowLastUpload, Class: audit.Error},
	}})
	m.Audit.AnswersChecked(audit.Report{Checked: 2, Erroneous: 1, Failed: 1, Findings: []audit.Finding{{Cause: audit.WrongAnswer, Class: audit.Error}}})
	m.Audit.Repaired(3, 4)
	m.Audit.SampleDropped()
	m.Audit.RedisLost(audit.Rewound)
	gather(t, m).has(t, samples{
		`activityd_audit_checked_total{origin="read"}`:                          5,
		`activityd_audit_checked_total{origin="sweep"}`:                         0,
		`activityd_audit_erroneous_total{origin="read"}`:                        1,
		`activityd_audit_erroneous_total{origin="sweep"}`:                       0,
		`activityd_audit_unsettled_total{origin="read"}`:                        2,
		`activityd_audit_failed_total{origin="read"}`:                           4,
		`activityd_audit_failed_total{origin="sweep"}`:                          0,
		`activityd_audit_findings_total{cause="low_last_upload",class="error"}`: 1,
		`activityd_audit_findings_total{cause="stale_score",class="error"}`:     2,
		`activityd_audit_findings_total{cause="lost_set",class="lag"}`:          1,
		`activityd_audit_findings_total{cause="ghost",class="waste"}`:           1,
		`activityd_audit_findings_total{cause="wrong_answer",class="error"}`:    1,
		`activityd_audit_findings_total{cause="missing_contact",class="error"}`: 0,
		`activityd_audit_lasting_lag_total`:                                     1,
		`activityd_audit_answers_checked_total`:                                 2,
		`activityd_audit_answer_error_ratio{window="5m"}`:                       0.5,
		`activityd_audit_repairs_total{result="enqueued"}`:                      3,
		`activityd_audit_repairs_total{result="deferred"}`:                      4,
		`activityd_audit_samples_dropped_total`:                                 1,
		`activityd_audit_redis_losses_total{how="rewound"}`:                     1,
		`activityd_audit_redis_losses_total{how="replaced"}`:                    0,
	})
}

// Only who sweeps tells where the sweep is.
func TestTheSweepIsShownByWhoSweeps(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	const began, progress, ended = "activityd_audit_sweep_began_timestamp_seconds", "activityd_audit_sweep_progress_ratio", "activityd_audit_sweep_ended_timestamp_seconds"
	if got := gather(t, m).named(progress); len(got) != 0 {
		t.Errorf("%v before anybody sweeps", got)
	}
	m.Audit.SweepMoved(audit.Progress{Held: true, Began: time.Unix(100, 0), Done: 30, Total: 40})
	got := gather(t, m)
	got.has(t, samples{began: 100, progress: 0.75})
	if len(got.named(ended)) != 0 {
		t.Error("a round that never ended has an end")
	}
	m.Audit.SweepMoved(audit.Progress{Held: true, Began: time.Unix(200, 0), Done: 50, Total: 40, Hurried: true, Ended: time.Unix(200, 0), Took: time.Minute})
	gather(t, m).has(t, samples{began: 200, progress: 1, ended: 200, "activityd_audit_sweep_duration_seconds": 60, "activityd_audit_sweep_hurried": 1})
	m.Audit.SweepMoved(audit.Progress{})
	for _, name := range []string{began, progress, ended} {
		if got := gather(t, m).named(name); len(got) != 0 {
			t.Errorf("%v after somebody else sweeps", got)
		}
	}
}
