package audit_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/metricstest"
)

func TestTheAuditIsCounted(t *testing.T) {
	before := metricstest.Gather(t)
	audit.CountSets(audit.OfRead, audit.Report{Checked: 5, Erroneous: 1, Unsettled: 2, Unreachable: []member.ID{7}, PrivateCovered: 3, PrivateBeyond: 4, Findings: []audit.Finding{
		{Cause: audit.StaleScore, Class: audit.Error},
		{Cause: audit.StaleScore, Class: audit.Error},
		{Cause: audit.LostSet, Class: audit.Lag, Lasting: true},
		{Cause: audit.Ghost, Class: audit.Waste},
		{Cause: audit.LowLastUpload, Class: audit.Error},
	}})
	audit.CountAnswers(audit.Report{Checked: 2, Erroneous: 1, Findings: []audit.Finding{{Cause: audit.WrongAnswer, Class: audit.Error}}})
	want := metricstest.Samples{
		`activityd_audit_checked_total{origin="read"}`:                          5,
		`activityd_audit_erroneous_total{origin="read"}`:                        1,
		`activityd_audit_unsettled_total{origin="read"}`:                        2,
		`activityd_audit_unreachable_total{origin="read"}`:                      1,
		`activityd_audit_findings_total{cause="low_last_upload",class="error"}`: 1,
		`activityd_audit_findings_total{cause="stale_score",class="error"}`:     2,
		`activityd_audit_findings_total{cause="lost_set",class="lag"}`:          1,
		`activityd_audit_findings_total{cause="ghost",class="waste"}`:           1,
		`activityd_audit_findings_total{cause="wrong_answer",class="error"}`:    1,
		`activityd_audit_private_newest_total{last_upload="covers"}`:            3,
		`activityd_audit_private_newest_total{last_upload="below"}`:             4,
		`activityd_audit_answers_checked_total`:                                 2,
		`activityd_audit_answers_erroneous_total`:                               1,
	}
	after := metricstest.Gather(t)
	if diff := cmp.Diff(want, after.Since(before).Named(
		"activityd_audit_checked_total", "activityd_audit_erroneous_total", "activityd_audit_unsettled_total", "activityd_audit_unreachable_total",
		"activityd_audit_findings_total", "activityd_audit_private_newest_total", "activityd_audit_answers_checked_total", "activityd_audit_answers_erroneous_total",
	)); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	for _, series := range []string{
		`activityd_audit_checked_total{origin="sweep"}`, `activityd_audit_findings_total{cause="missing_contact",class="error"}`,
		`activityd_audit_repairs_total{result="deferred"}`, `activityd_audit_redis_losses_total`, `activityd_audit_unreachable_total{origin="read"}`,
	} {
		if _, there := after[series]; !there {
			t.Errorf("%s is not there before the first event", series)
		}
	}
}

// The process that sweeps tells where the sweep is, and no other one.
func TestTheSweepIsShownWhereItIs(t *testing.T) {
	gauges := []string{
		"activityd_audit_sweep_progress_ratio", "activityd_audit_sweep_began_timestamp_seconds", "activityd_audit_sweep_ended_timestamp_seconds",
	}
	for _, step := range []struct {
		what string
		do   func()
		want metricstest.Samples
	}{
		{"before it sweeps", audit.Hide, metricstest.Samples{}},
		{"in the first round", func() { audit.Show(`{"began":100000,"counts":{"seen":28,"failed":2},"total":40}`) }, metricstest.Samples{gauges[0]: 0.75, gauges[1]: 100}},
		{
			"in a second one", func() {
				audit.Show(`{"began":200000,"counts":{"seen":50},"total":40,"hurried":true,"ended":200000,"took":60000}`)
			},
			metricstest.Samples{gauges[0]: 1, gauges[1]: 200, gauges[2]: 200},
		},
		{"when another process sweeps", audit.Hide, metricstest.Samples{}},
	} {
		step.do()
		if diff := cmp.Diff(step.want, metricstest.Gather(t).Named(gauges...)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", step.what, diff)
		}
	}
}
