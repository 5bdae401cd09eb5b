package queue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"
)

// The ticks of expressions, also where clocks are set.
func TestTicks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ cron, from, want string }{
		{"*/20 * * * *", "2026-11-28T18:19:59.5Z", "11-28 18:20, 11-28 18:40, 11-28 19:00"},
		{"@daily", "2026-11-28T00:00:00Z", "11-29 00:00, 11-30 00:00, 12-01 00:00"},
		{"0 6 13 * FRI", "2026-11-01T00:00:00Z", "11-06 06:00, 11-13 06:00, 11-20 06:00"}, // either, as everywhere
		{"CRON_TZ=America/New_York 30 6 * * MON-FRI", "2026-10-30T00:00:00Z", "10-30 10:30, 11-02 11:30, 11-03 11:30"},
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-03-28T00:00:00Z", "03-28 01:30, 03-29 01:30, 03-30 00:30"},   // 02:30 is not
		{"CRON_TZ=Europe/Berlin 30 2 * * *", "2026-10-24T00:00:00Z", "10-24 00:30, 10-25 00:30, 10-26 01:30"},   // 02:30 is twice
		{"CRON_TZ=Europe/Berlin */30 * * * *", "2026-10-25T00:00:00Z", "10-25 00:30, 10-25 01:00, 10-25 01:30"}, // each half hour
	} {
		job := Periodic{Name: "job", Cron: test.cron, Task: func(time.Time) New { return New{} }}
		spec, err := parseCron(job)
		if err != nil {
			t.Fatal(err)
		}
		at, err := time.Parse(time.RFC3339, test.from)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for range 3 {
			at = nextTick(spec, at)
			got = append(got, at.UTC().Format("01-02 15:04"))
		}
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s from %s: %v, want %s", test.cron, test.from, got, test.want)
		}
	}
	for _, wrong := range []string{"", "* * * *", "61 * * * *", "@every 1h", "@reboot", "0 0 30 2 *", "TZ=", "CRON_TZ=Nowhere * * * * *"} {
		if _, err := parseCron(Periodic{Name: "job", Cron: wrong, Task: func(time.Time) New { return New{} }}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	for _, wrong := range []Periodic{{Cron: "@daily", Task: func(time.Time) New { return New{} }}, {Name: "a b", Cron: "@daily", Task: func(time.Time) New { return New{} }}, {Name: "job", Cron: "@daily"}} {
		if _, err := parseCron(wrong); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", wrong.Name, err)
		}
	}
}

// ScheduleTick is for tests of a process that comes late.
func (q *Queue) ScheduleTick(ctx context.Context, job Periodic, tick time.Time) error {
	return q.scheduleTick(ctx, job, tick)
}
