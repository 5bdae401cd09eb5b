package metrics_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

func TestTasksAreCounted(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{Queues: []string{"mine"}})
	m.Tasks.Enqueued(tasks.Upload, 5, 2)
	m.Tasks.Enqueued(tasks.Upload, 1, 0)
	m.Tasks.Started("mine", tasks.Upload, time.Second)
	m.Tasks.Started("mine", tasks.Upload, -time.Second) // clocks differ
	m.Tasks.Finished(tasks.QueueDefault, tasks.Upload, tasks.OutcomeDied, time.Second)
	m.Tasks.Finished("not mine", "not ours", "not known", time.Second)
	m.Tasks.TookOver(3)
	m.Tasks.LeasesLost(4)
	m.Tasks.Dropped(5)
	m.Tasks.UploadAbsorbed(6)
	m.Tasks.Conflicted(7)
	m.Tasks.Refilled(8)
	m.Tasks.FannedOut(250_000, 14*time.Second)
	gather(t, m).has(t, samples{
		`activityd_tasks_enqueued_total{type="upload"}`:                                        6,
		`activityd_tasks_absorbed_total{type="upload"}`:                                        2,
		`activityd_task_wait_seconds{queue="mine",type="upload"}`:                              2,
		`activityd_task_run_seconds{queue="default",type="upload"}`:                            1,
		`activityd_tasks_finished_total{outcome="died",queue="default",type="upload"}`:         1,
		`activityd_tasks_finished_total{outcome="other",queue="other",type="other"}`:           1,
		`activityd_tasks_finished_total{outcome="retried",queue="default",type="add_contact"}`: 0,
		`activityd_lease_takeovers_total`:                                                      3,
		`activityd_leases_lost_total`:                                                          4,
		`activityd_tasks_dropped_total`:                                                        5,
		`activityd_uploads_absorbed_total`:                                                     6,
		`activityd_guard_conflicts_total`:                                                      7,
		`activityd_refills_total`:                                                              8,
		`activityd_fan_out_followers`:                                                          1,
		`activityd_upload_to_index_seconds`:                                                    1,
	})
}

func TestTheIndexIsCounted(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	for _, name := range []string{"activityd_redis_up", "activityd_redis_writable"} {
		if known := gather(t, m).named(name); len(known) != 0 {
			t.Errorf("%v before anything is known", known)
		}
	}
	m.Index.Added(index.AddOutside, 3)
	m.Index.Trimmed(2)
	for _, c := range []struct {
		err    error
		reason string
		up     float64
	}{
		{nil, "", 1},
		{fmt.Errorf("x: %w", index.ErrUnavailable), "unavailable", 0},
		{index.ErrMissing, "", 1},
		{fmt.Errorf("x: %w", index.ErrRefused), "refused", 1}, // it answers
		{fmt.Errorf("x: %w", context.DeadlineExceeded), "timeout", 0},
		{context.Canceled, "", 0}, // says nothing: as before
		{&index.SettingsError{}, "settings", 1},
		{context.Canceled, "", 1},
		{index.ErrMalformed, "malformed", 1},
		{fmt.Errorf("what?"), "other", 1},
	} {
		before := gather(t, m)
		m.Index.Called(index.OpApply, time.Millisecond, c.err)
		after := gather(t, m)
		after.has(t, samples{"activityd_redis_up": c.up, `activityd_index_call_seconds{operation="apply"}`: before[`activityd_index_call_seconds{operation="apply"}`] + 1})
		for name, value := range after.named("activityd_index_errors_total") {
			want := before[name]
			if name == fmt.Sprintf("activityd_index_errors_total{operation=%q,reason=%q}", "apply", c.reason) {
				want++
			}
			if value != want {
				t.Errorf("after %v: %s is %v, want %v", c.err, name, value, want)
			}
		}
	}
	gather(t, m).has(t, samples{`activityd_adds_total{outcome="outside"}`: 3, `activityd_trims_total`: 2})
	for _, c := range []struct {
		err          error
		up, writable float64
	}{
		{nil, 1, 1},
		{index.ErrRefused, 1, 0},
		{context.Canceled, 1, 0}, // says nothing: as before
		{nil, 1, 1},
		{index.ErrUnavailable, 0, 0},
	} {
		m.Index.Called(index.OpProbe, time.Millisecond, c.err)
		gather(t, m).has(t, samples{"activityd_redis_up": c.up, "activityd_redis_writable": c.writable})
	}
}

func TestReadsAreCounted(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	m.Reads.Answered(photosOf(recent.FromIndex), nil, time.Millisecond)
	walked := photosOf(recent.FromDatabase)
	for _, reason := range []string{recent.SetMissing, recent.SetMissing, recent.BestTooOld, "made up"} {
		walked.Trace.WalkReason = reason
		m.Reads.Answered(walked, nil, time.Millisecond)
	}
	m.Reads.Answered(recent.Answer{Source: recent.FromIndex}, nil, time.Millisecond)
	for _, err := range []error{
		contacts.ErrNoMember, recent.ErrBusy, mysql.ErrUnavailable, context.DeadlineExceeded, context.Canceled, fmt.Errorf("what?"),
	} {
		m.Reads.Answered(recent.Answer{}, fmt.Errorf("read: %w", err), time.Millisecond)
	}
	m.Reads.WalkBegan()
	m.Reads.WalkBegan()
	m.Reads.WalkEnded()
	m.Reads.WalkRefused()
	gather(t, m).has(t, samples{
		`activityd_reads_total{result="photos",source="index"}`:     1,
		`activityd_reads_total{result="nothing",source="index"}`:    1,
		`activityd_reads_total{result="photos",source="database"}`:  4,
		`activityd_reads_total{result="no_member",source="none"}`:   1,
		`activityd_reads_total{result="busy",source="none"}`:        1,
		`activityd_reads_total{result="unavailable",source="none"}`: 1,
		`activityd_reads_total{result="timeout",source="none"}`:     1,
		`activityd_reads_total{result="cancelled",source="none"}`:   1,
		`activityd_reads_total{result="other",source="none"}`:       1,
		`activityd_read_seconds{source="index"}`:                    2,
		`activityd_read_seconds{source="database"}`:                 4,
		`activityd_read_seconds{source="none"}`:                     6,
		`activityd_read_walks_total{reason="set_missing"}`:          2,
		`activityd_read_walks_total{reason="best_too_old"}`:         1,
		`activityd_read_walks_total{reason="other"}`:                1,
		`activityd_walks_in_flight`:                                 1,
		`activityd_walks_refused_total`:                             1,
	})
}

func TestRequestsAreCounted(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{Version: "v1.2.3", Role: "workers"})
	m.HTTP.RequestBegan()
	m.HTTP.RequestBegan()
	m.HTTP.RequestEnded(http.MethodPost, "/v1/tasks", http.StatusTooManyRequests, time.Millisecond)
	got := gather(t, m)
	got.has(t, samples{
		`activityd_http_requests_in_flight`:                                                                   1,
		`activityd_http_requests_total{code="429",method="POST",route="/v1/tasks"}`:                           1,
		`activityd_http_request_seconds{code="429",method="POST",route="/v1/tasks"}`:                          1,
		fmt.Sprintf(`activityd_build_info{go_version=%q,role="workers",version="v1.2.3"}`, runtime.Version()): 1,
	})
}

// What clients, sites and operators make up must not become series.
func TestStrangeNamesDoNotMakeSeries(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{Queues: []string{tasks.QueueDefault, "mine"}})
	server := api.New(api.Config{
		Reader: unread{}, Enqueuer: tasks.NewMemoryQueue(tasks.QueueOptions{}, time.Now), Checker: func(context.Context) api.Health { return api.Health{} }, Observer: m.HTTP,
	})
	strange := func(i int) {
		name := fmt.Sprintf("strange%d", i)
		typ := tasks.Type(name)
		m.Tasks.Enqueued(typ, 1, 1)
		m.Tasks.Started(name, typ, time.Second)
		m.Tasks.Finished(name, typ, tasks.Outcome(name), time.Second)
		m.Reads.Answered(recent.Answer{Source: recent.FromDatabase, Trace: recent.Trace{WalkReason: name}}, nil, time.Second)
		m.HTTP.CallerJudged(name, auth.Verdict(name))
		m.Look(t.Context(), &fakeQueue{stats: tasks.Stats{
			Tasks:  []tasks.TaskStats{{Queue: name, Type: typ, State: tasks.State(name), Count: 1}, {Queue: name, Type: typ, State: tasks.Waiting, Count: 1}},
			Queues: []tasks.QueueStats{{Queue: name, Oldest: time.Duration(i) * time.Second}},
		}})
		for _, path := range []string{"/" + name, "/v1/users/" + name + "/recent-contact-photos", fmt.Sprintf("/v1/users/%d/recent-contact-photos", i+1)} {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody)
			r.Host = "localhost"
			server.Handler().ServeHTTP(httptest.NewRecorder(), r)
			r.Method = strings.ToUpper(name)
			server.Handler().ServeHTTP(httptest.NewRecorder(), r)
		}
	}
	strange(0)
	first := gather(t, m)
	for i := range 1000 {
		strange(i + 1)
	}
	after := gather(t, m)
	for name := range after {
		if _, known := first[name]; !known {
			t.Errorf("a new series: %s", name)
		}
	}
	after.has(t, samples{
		`activityd_tasks{queue="other",state="waiting",type="other"}`:                                          1,
		`activityd_oldest_waiting_seconds{queue="other"}`:                                                      1000,
		`activityd_http_requests_total{code="404",method="GET",route="unmatched"}`:                             1001,
		`activityd_http_requests_total{code="400",method="GET",route="/v1/users/:id/recent-contact-photos"}`:   1001,
		`activityd_http_requests_total{code="200",method="GET",route="/v1/users/:id/recent-contact-photos"}`:   1001,
		`activityd_http_requests_total{code="405",method="other",route="/v1/users/:id/recent-contact-photos"}`: 2002,
		`activityd_tasks_finished_total{outcome="other",queue="other",type="other"}`:                           1001,
	})
}

// A type of task that a handler knows must have a name here, too.
func TestEveryTypeIsKnown(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	for typ := range tasks.Handlers(nil, nil, nil, tasks.HandlerOptions{}) {
		m.Tasks.Enqueued(typ, 1, 0)
	}
	for name, n := range gather(t, m).named("activityd_tasks_enqueued_total") {
		if n != 1 || strings.Contains(name, "other") {
			t.Errorf("%s is %v, want 1", name, n)
		}
	}
}

func TestNamesFollowTheConventions(t *testing.T) {
	t.Parallel()
	m := metrics.New(metrics.Options{})
	touch(t, m)
	problems, err := testutil.GatherAndLint(m.Gatherer())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "activityd_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}

// unread is a site with nothing in it.
type unread struct{}

// Read finds nothing to show.
func (unread) Read(context.Context, contacts.Viewer, int) (recent.Answer, error) {
	return recent.Answer{Source: recent.FromIndex}, nil
}
