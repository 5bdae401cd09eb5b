package metrics_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/auth"
	"github.com/activityd/activityd/internal/contacts"
	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/metrics"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ api.Observer = (*metrics.HTTP)(nil)

// samples are what a scrape shows: the value of each series, written as in
// name{label="value"}, labels sorted. Of a histogram it is the count.
type samples map[string]float64

func gather(t testing.TB, m *metrics.Metrics) samples {
	t.Helper()
	out := make(samples)
	for _, family := range families(t, m) {
		for _, metric := range family.GetMetric() {
			out[series(family, metric)] = metric.GetCounter().GetValue() + metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return out
}

func families(t testing.TB, m *metrics.Metrics) []*dto.MetricFamily {
	t.Helper()
	all, err := m.Gatherer().Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func series(f *dto.MetricFamily, m *dto.Metric) string {
	var labels []string
	for _, l := range m.GetLabel() {
		labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(labels) == 0 {
		return f.GetName()
	}
	return f.GetName() + "{" + strings.Join(labels, ",") + "}"
}

// has compares some series with what is wanted.
func (s samples) has(t *testing.T, want samples) {
	t.Helper()
	for name, value := range want {
		if got, ok := s[name]; !ok || got != value {
			t.Errorf("%s is %v (there: %v), want %v", name, got, ok, value)
		}
	}
}

// named returns the series of one metric.
func (s samples) named(name string) samples {
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(series string, _ float64) bool {
		return series != name && !strings.HasPrefix(series, name+"{")
	})
	return out
}

// fakeQueue answers with fixed numbers unless ask is set.
type fakeQueue struct {
	stats tasks.Stats
	ask   func(ctx context.Context) (tasks.Stats, error)
}

func (q *fakeQueue) Stats(ctx context.Context) (tasks.Stats, error) {
	if q.ask != nil {
		return q.ask(ctx)
	}
	return q.stats, nil
}

// lines is a log.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// touch has every metric told something, and the queues looked at once.
func touch(t testing.TB, m *metrics.Metrics) {
	t.Helper()
	for _, typ := range []tasks.Type{tasks.AddContact, tasks.Upload, "strange"} {
		m.Tasks.Enqueued(typ, 3, 1)
		m.Tasks.Started(tasks.QueueDefault, typ, time.Millisecond)
		m.Tasks.Finished(tasks.QueueDefault, typ, tasks.OutcomeDone, time.Millisecond)
	}
	for _, tell := range []func(int){
		m.Tasks.TookOver, m.Tasks.LeasesLost, m.Tasks.Dropped, m.Tasks.UploadAbsorbed, m.Tasks.Conflicted, m.Tasks.Refilled, m.Index.Trimmed,
	} {
		tell(2)
	}
	m.Tasks.FannedOut(1000, time.Second)
	m.Index.Called(index.OpAdd, time.Millisecond, index.ErrSettings)
	m.Index.Called(index.OpCandidates, time.Millisecond, nil)
	m.Index.Called(index.OpProbe, time.Millisecond, nil)
	m.Index.Added(index.AddTaken, 1)
	m.Reads.Answered(recent.Answer{Source: recent.FromDatabase}, nil, time.Millisecond)
	m.Reads.Answered(recent.Answer{}, errors.New("no"), time.Millisecond)
	m.Reads.WalkBegan()
	m.Reads.WalkRefused()
	m.Audit.Checked(audit.OfRead, audit.Report{Checked: 1})
	m.Audit.AnswersChecked(audit.Report{Checked: 1})
	m.Audit.SweepMoved(audit.Progress{Held: true, Began: time.Now(), Ended: time.Now(), Took: time.Second})
	for _, code := range []int{200, 202, 429, 500} {
		m.HTTP.RequestBegan()
		m.HTTP.RequestEnded("GET", "/v1/tasks", code, time.Millisecond)
	}
	m.HTTP.EnqueueRefused()
	m.HTTP.ConnectionOpened()
	m.HTTP.ConnectionOpened()
	m.HTTP.ConnectionClosed()
	m.HTTP.ConnectionRefused()
	m.Access.TokensTaken([]string{"homepage"})
	m.HTTP.CallerJudged("homepage", auth.Allowed)
	m.Access.CertificateTaken(time.Now().Add(time.Hour))
	m.Look(t.Context(), &fakeQueue{stats: tasks.Stats{
		Tasks:  []tasks.TaskStats{{Queue: tasks.QueueDefault, Type: tasks.Upload, State: tasks.Dead, Count: 1}},
		Queues: []tasks.QueueStats{{Queue: tasks.QueueDefault, Paused: true, Capped: true, Oldest: time.Minute, Due: time.Hour}},
	}})
}

// photosOf is an answer that shows something.
func photosOf(source recent.Source) recent.Answer {
	return recent.Answer{Source: source, Album: contacts.Album{Contact: &contacts.Profile{ID: 7}}}
}
