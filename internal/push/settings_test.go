package push_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/push"
)

// at reads an instant with its offset.
func at(t *testing.T, text string) time.Time {
	t.Helper()
	instant, err := time.Parse("2006-01-02 15:04:05 -0700", text)
	if err != nil {
		t.Fatal(err)
	}
	return instant
}

// hours reads quiet hours.
func hours(t *testing.T, from, to, zone string) push.Settings {
	t.Helper()
	minutes := func(text string) int {
		clock, err := time.Parse("15:04", text)
		if err != nil {
			t.Fatal(err)
		}
		return clock.Hour()*60 + clock.Minute()
	}
	return push.Settings{Quiet: push.QuietHours{From: minutes(from), To: minutes(to), Zone: zone}}
}

func TestQuietUntil(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, from, to, zone, now, want string }{
		{"before", "22:00", "07:00", "Europe/Berlin", "2026-06-01 21:59:59 +0200", ""},
		{"the first instant", "22:00", "07:00", "Europe/Berlin", "2026-06-01 22:00:00 +0200", "2026-06-02 07:00:00 +0200"},
		{"before midnight, said elsewhere", "22:00", "07:00", "Europe/Berlin", "2026-06-01 21:30:15 +0000", "2026-06-02 07:00:00 +0200"},
		{"midnight", "22:00", "07:00", "Europe/Berlin", "2026-06-02 00:00:00 +0200", "2026-06-02 07:00:00 +0200"},
		{"after midnight", "22:00", "07:00", "Europe/Berlin", "2026-06-02 03:00:00 +0200", "2026-06-02 07:00:00 +0200"},
		{"the last instant", "22:00", "07:00", "Europe/Berlin", "2026-06-02 06:59:59 +0200", "2026-06-02 07:00:00 +0200"},
		{"the end", "22:00", "07:00", "Europe/Berlin", "2026-06-02 07:00:00 +0200", ""},
		{"within a day", "12:00", "13:30", "America/New_York", "2026-06-01 12:10:00 -0400", "2026-06-01 13:30:00 -0400"},
		{"within a day, outside", "12:00", "13:30", "America/New_York", "2026-06-01 23:10:00 -0400", ""},
		{"until midnight", "20:00", "00:00", "UTC", "2026-06-01 23:10:00 +0000", "2026-06-02 00:00:00 +0000"},
		{"from midnight", "00:00", "08:00", "UTC", "2026-06-01 00:00:00 +0000", "2026-06-01 08:00:00 +0000"},
		{"equal: none", "08:00", "08:00", "UTC", "2026-06-01 08:00:00 +0000", ""},
		{"an offset of half an hour", "22:00", "07:00", "Asia/Kolkata", "2026-06-01 20:00:00 +0000", "2026-06-02 07:00:00 +0530"},
		{"unknown zone", "00:00", "23:59", "Mars/Phobos", "2026-06-01 08:00:00 +0000", ""},
		{"the zone of the host", "00:00", "23:59", "Local", "2026-06-01 08:00:00 +0000", ""},
		{"no zone", "00:00", "23:59", "", "2026-06-01 08:00:00 +0000", ""},
		// On 29 March 2026 Berlin's clocks go from 02:00 to 03:00, on 25 October from 03:00 to 02:00.
		{"an hour less", "22:00", "07:00", "Europe/Berlin", "2026-03-28 23:00:00 +0100", "2026-03-29 07:00:00 +0200"},
		{"an hour more", "22:00", "07:00", "Europe/Berlin", "2026-10-24 23:00:00 +0200", "2026-10-25 07:00:00 +0100"},
		{"ends at a time that is not shown", "22:00", "02:30", "Europe/Berlin", "2026-03-29 01:59:00 +0100", "2026-03-29 03:00:00 +0200"},
		{"ends when the clock is put forward", "22:00", "02:00", "Europe/Berlin", "2026-03-29 01:59:00 +0100", "2026-03-29 03:00:00 +0200"},
		{"begins at a time that is not shown", "02:30", "08:00", "Europe/Berlin", "2026-03-29 03:00:00 +0200", "2026-03-29 08:00:00 +0200"},
		{"only times that are not shown", "02:10", "02:50", "Europe/Berlin", "2026-03-29 03:00:00 +0200", ""},
		{"ends at a time that is shown twice", "22:00", "02:30", "Europe/Berlin", "2026-10-25 01:00:00 +0200", "2026-10-25 02:30:00 +0200"},
		{"and between the two", "22:00", "02:30", "Europe/Berlin", "2026-10-25 02:40:00 +0200", ""},
		{"and quiet again", "22:00", "02:30", "Europe/Berlin", "2026-10-25 02:10:00 +0100", "2026-10-25 02:30:00 +0100"},
		{"begins at a time that is shown twice", "02:30", "02:50", "Europe/Berlin", "2026-10-25 02:40:00 +0200", "2026-10-25 02:50:00 +0200"},
		{"ends when the clock is put back", "02:30", "03:00", "Europe/Berlin", "2026-10-25 02:40:00 +0200", "2026-10-25 02:00:00 +0100"},
		{"a day that a country left out", "22:00", "07:00", "Pacific/Apia", "2011-12-29 23:00:00 -1000", "2011-12-31 07:00:00 +1400"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, want := hours(t, test.from, test.to, test.zone).QuietUntil(at(t, test.now)), time.Time{}
			if test.want != "" {
				want = at(t, test.want)
			}
			if !got.Equal(want) {
				t.Errorf("QuietUntil(%s) = %v, want %v", test.now, got, want)
			}
		})
	}
}

// TestPropertyQuietUntil: the end is the first minute at which a clock on the wall shows
// nothing within the quiet hours, found by looking at all of them.
func TestPropertyQuietUntil(t *testing.T) {
	t.Parallel()
	zones := []string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca", "Asia/Kathmandu", "UTC"}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(zones).Draw(t, "zone")
		in, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(rapid.Int64Range(1.3e9, 2e9).Draw(t, "now")/60*60, 0).In(in)
		if _, change := now.ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
			now = change.Add(time.Duration(rapid.IntRange(-300, 300).Draw(t, "minutes")) * time.Minute).Truncate(time.Minute)
		}
		q := push.QuietHours{From: rapid.IntRange(0, 1439).Draw(t, "from"), To: rapid.IntRange(0, 1439).Draw(t, "to"), Zone: name}
		quiet := func(t time.Time) bool {
			shows := t.Hour()*60 + t.Minute()
			return q.From < q.To && q.From <= shows && shows < q.To || q.From > q.To && (q.From <= shows || shows < q.To)
		}
		var want time.Time
		for minute := now; quiet(minute); minute = want {
			want = minute.Add(time.Minute)
		}
		within := time.Duration(rapid.Int64Range(0, int64(time.Minute)-1).Draw(t, "within the minute"))
		got := push.Settings{Quiet: q}.QuietUntil(now.Add(within).UTC())
		if !got.Equal(want) {
			t.Fatalf("at %v, quiet %02d:%02d to %02d:%02d: until %v, want %v", now, q.From/60, q.From%60, q.To/60, q.To%60, got.In(in), want)
		}
	})
}

func TestCheckQuietHours(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		q  push.QuietHours
		ok bool
	}{
		{push.QuietHours{From: 0, To: 1439, Zone: "Europe/Berlin"}, true},
		{push.QuietHours{From: 60, To: 60, Zone: "UTC"}, true},
		{push.QuietHours{From: -1, To: 60, Zone: "UTC"}, false},
		{push.QuietHours{From: 60, To: 1440, Zone: "UTC"}, false},
		{push.QuietHours{From: 60, To: 120}, false}, // time.LoadLocation takes "" for UTC
		{push.QuietHours{From: 60, To: 120, Zone: "Local"}, false},
		{push.QuietHours{From: 60, To: 120, Zone: "Mars/Phobos"}, false},
		{push.QuietHours{From: 60, To: 120, Zone: "../../etc/passwd"}, false},
		{push.QuietHours{From: 60, To: 120, Zone: "Asia/Calcutta"}, true}, // browsers use names of before
	} {
		if err := test.q.Check(); (err == nil) != test.ok {
			t.Errorf("%+v: %v, want an error: %v", test.q, err, !test.ok)
		}
	}
}

func TestWants(t *testing.T) {
	t.Parallel()
	s := push.Settings{Types: map[string]bool{"upload": false, "fave": true}}
	for kind, want := range map[string]bool{"upload": false, "fave": true, "comment": true} {
		if s.Wants(kind) != want {
			t.Errorf("wants %s: %v", kind, !want)
		}
	}
}
