package push

import "time"

// Settings are what a member wants to be notified of.
type Settings struct {
	Types map[string]bool // false: none of that type; absent: yes
	Quiet QuietHours
}

// QuietHours are when a member is not to be notified, but of what is urgent. From and To
// are minutes after midnight, in the member's time zone; equal: there are none.
type QuietHours struct {
	From, To int
	Zone     string // of the IANA database
}

// Wants reports whether the member wants events of the type.
func (s Settings) Wants(kind string) bool {
	wants, said := s.Types[kind]
	return wants || !said
}

// QuietUntil returns the end of the quiet hours that now is in; zero if it is in none, or
// in a zone that is not known here.
func (s Settings) QuietUntil(now time.Time) time.Time {
	panic("to be written")
}

// Mute is an object, such as photo:901 or user:5, that a member does not want to be
// notified of until a time.
type Mute struct {
	Object string
	Until  time.Time
}
