package push

import (
	"fmt"
	"time"
)

// Settings are a member's wishes: types of event, and quiet hours.
type Settings struct {
	Types map[string]bool // false: none of that type; absent: yes
	Quiet QuietHours
}

// Wants reports whether the member wants events of the type.
func (s Settings) Wants(kind string) bool {
	wants, said := s.Types[kind]
	return wants || !said
}

// QuietUntil returns the end of the quiet hours that now is in; zero if it is in none, or if
// the quiet hours are wrong: see [QuietHours.Check].
func (s Settings) QuietUntil(now time.Time) time.Time { return s.Quiet.until(now) }

// Mute is an object, as photo:901 or user:5, that a member does not want to be
// notified of until a time.
type Mute struct {
	Object string
	Until  time.Time
}

// day is the minutes of a day.
const day = 24 * 60

// QuietHours are when a member is not to be notified, but of what is urgent: while a clock
// on the wall, in the member's time zone, shows From or later, and not yet To. The clock
// is put forward and back; its face counts, also when it shows a time twice.
type QuietHours struct {
	From, To int    // minutes after midnight; equal: there are none
	Zone     string // a name of the IANA database, in its spelling
}

// Check returns an error, for people, if the quiet hours are wrong.
func (q QuietHours) Check() error {
	for _, minute := range []int{q.From, q.To} {
		if minute < 0 || minute >= day {
			return fmt.Errorf("%d minutes after midnight: want 0 to %d", minute, day-1)
		}
	}
	_, err := zone(q.Zone)
	return err
}

// until returns the first instant after now that is not quiet; zero if now is not.
func (q QuietHours) until(now time.Time) time.Time {
	if q.From == q.To || q.Check() != nil {
		return time.Time{}
	}
	in, _ := zone(q.Zone) // Check has found it
	now = now.In(in)
	quiet := false
	for q.covers(now) {
		quiet = true
		_, change := now.ZoneBounds() // the clock is put forward or back then
		end := now.Add(q.left(now))
		if change.IsZero() || end.Before(change) {
			return end.UTC()
		}
		now = change
	}
	if !quiet {
		return time.Time{}
	}
	return now.UTC()
}

// covers reports whether t is quiet.
func (q QuietHours) covers(t time.Time) bool {
	minute := t.Hour()*60 + t.Minute()
	if q.From < q.To {
		return q.From <= minute && minute < q.To
	}
	return q.From <= minute || minute < q.To
}

// left returns how long it is until the clock shows To, if it is not put forward or back.
func (q QuietHours) left(t time.Time) time.Duration {
	shows := time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*time.Second + time.Duration(t.Nanosecond())
	left := time.Duration(q.To)*time.Minute - shows
	if left <= 0 {
		left += day * time.Minute
	}
	return left
}
