package main

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/testing/servertest"
	"github.com/activityd/activityd/internal/testing/site"
)

// page reads a page of a server.
func page(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	must(t, err)
	defer func() { _ = response.Body.Close() }()
	all, err := io.ReadAll(response.Body)
	must(t, err)
	return response.StatusCode, string(all)
}

// The metrics count real events in the right place: a change, its task, the set, and a read by a second process.
func TestMetricsOfTheWhole(t *testing.T) {
	t.Parallel()
	r := startAll(t, "--role=api")
	workers := spawnServe(t, r.config.mysqlDSN, r.config.redisURL, "--role=workers", "ACTIVITYD_AUDIT_SWEEP_RATE=0").metrics // whose task is always there
	front := spawnServe(t, r.config.mysqlDSN, r.config.redisURL, "--role=api").metrics
	r.makeSite(t, 2)
	must(t, r.site.SetContact(t.Context(), 1, member.ID(101), site.Grant{}))
	r.awaitTasks(t)
	for _, want := range []string{
		`activityd_tasks_finished_total{outcome="done",queue="default",type="add_contact"} 1`,
		`activityd_task_wait_seconds_count{queue="default",type="add_contact"} 1`,
		`activityd_task_run_seconds_count{queue="default",type="add_contact"} 1`,
		`activityd_index_call_seconds_count{operation="apply"} 1`, "activityd_refills_total 1",
		"activityd_mysql_up 1", "activityd_redis_up{node=\"" + r.redis.Addr() + "\"} 1", "activityd_redis_nodes_away_ratio 0", "activityd_stats_success 1",
		`activityd_tasks{queue="default",state="dead",type="upload"} 0`, `activityd_once_exhausted_names 0`,
		"activityd_build_info{", `,role="workers",`, "go_goroutines",
	} {
		eventually(t, want, func() bool {
			_, body := page(t, workers+"/metrics")
			return strings.Contains(body, want)
		})
	}
	for _, path := range []string{"/healthz", "/readyz", "/"} {
		eventually(t, path+" of a process that only works", func() bool {
			status, _ := page(t, workers+path)
			return status == http.StatusOK
		})
	}
	for path, want := range map[string]string{
		"/console/": "There are no tasks", "/console/explain?member=1": "1 sees ", "/console/explain?member=987654": "no such member",
		"/console/event?id=none": "there is no event", "/console/tasks": "No such task", "/": `href="/console/"`,
	} {
		if _, body := page(t, workers+path); !strings.Contains(strings.ToLower(body), strings.ToLower(want)) {
			t.Errorf("%s: no %q in\n%s", path, want, body)
		}
	}
	if _, body := page(t, front+"/metrics"); !strings.Contains(body, `activityd_reads_total{result="photos",source="index"} 0`) {
		t.Errorf("the metrics of a process that only serves:\n%s", body)
	}
}

// Where there are tokens, the console asks for a token in every role.
func TestTheConsoleAsksForAToken(t *testing.T) {
	t.Parallel()
	mysqlDSN, redisURL := servertest.MySQLDSN(t), servertest.Redis(t).URL()
	file, _ := newTokenFile(t, "ann", "inspect")
	for _, role := range []string{"--role=api", "--role=workers"} {
		operators := spawnServe(t, mysqlDSN, redisURL, role, "--token-file="+file).metrics
		if status, body := page(t, operators+"/console/tasks"); status != http.StatusUnauthorized || !strings.Contains(body, `name="token"`) {
			t.Errorf("%s: status %d\n%s", role, status, body)
		}
		if status, _ := page(t, operators+"/metrics"); status != http.StatusOK {
			t.Errorf("%s: the metrics: status %d", role, status)
		}
	}
}
