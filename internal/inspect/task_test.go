package inspect_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/queue"
)

func TestWhatIsDue(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 21, 5, 0, 0, 0, time.UTC)
	soon, past := now.Add(90*time.Second), now.Add(-time.Hour)
	for _, c := range []struct {
		record queue.Record
		want   string
	}{
		{queue.Record{State: queue.Waiting}, "-"},
		{queue.Record{State: queue.Waiting, ExpiresAt: soon}, "expires 1m30s"},
		{queue.Record{State: queue.Scheduled, RunAt: soon, ExpiresAt: soon}, "in 1m30s"},
		{queue.Record{State: queue.Scheduled, RunAt: past}, "now"},
		{queue.Record{State: queue.Running, LeaseUntil: soon}, "lease 1m30s"},
		{queue.Record{State: queue.Running, LeaseUntil: past}, "lease 0s"},
		{queue.Record{State: queue.Dead}, "-"},
	} {
		if got := inspect.Due(c.record, now); got != c.want {
			t.Errorf("%+v: %q, want %q", c.record, got, c.want)
		}
	}
}

func TestArgumentsInATable(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"": "-", "{}": "-", `{"contact_id": "5"}`: "contact_id:5", `{"after":7,"updated":1000}`: "after:7,updated:1000", `{"x":"` + "\x1b" + ``: `x:\u001b`,
		`{"x":"` + strings.Repeat("y", 100) + `"}`: "x:" + strings.Repeat("y", 37) + "…",
	} {
		if got := inspect.Args(json.RawMessage(raw)); got != want {
			t.Errorf("%s: %q, want %q", raw, got, want)
		}
	}
}
