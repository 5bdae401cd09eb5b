package inspect

import (
	"cmp"
	"time"

	"github.com/activityd/activityd/once"
)

// Names returns a row for each name of once that has a state.
func Names(list []once.Named) Table {
	t := Table{Head: []string{"NAME", "STATE", "ATTEMPTS", "FENCE", "BEGAN", "ENDED", "LEASE", "KEPT", "OWNER", "REASON"}}
	for _, n := range list {
		s := n.State
		lease := "-"
		switch {
		case s.Expired(n.Now):
			lease = "expired"
		case s.Phase == once.Held:
			lease = Duration(s.Until.Sub(n.Now))
		}
		t.Rows = append(t.Rows, []string{
			OneLine(n.Name), string(s.Phase), attempts(s.Attempt, "/", s.Terms.Attempts), s.Fence.String(), ago(s.Began, n.Now), ago(Ended(s), n.Now), lease,
			Duration(s.ForgetAt.Sub(n.Now)), cmp.Or(OneLine(s.Owner), "-"), cmp.Or(Shortened(OneLine(s.Reason), MaxError), "-"),
		})
	}
	return t
}

// ago returns how long ago a time was; "-" for none.
func ago(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Duration(now.Sub(t)) + " ago"
}

// Name returns all that is known about a name, as names and values.
func Name(n once.Named) [][2]string {
	s := n.State
	state := string(s.Phase)
	if s.Expired(n.Now) {
		state += ", and its lease has expired: the next one takes it"
	}
	return [][2]string{
		{"state", state},
		{"attempts", attempts(s.Attempt, " of ", s.Terms.Attempts)},
		{"fence", s.Fence.String()},
		{"owner", OneLine(s.Owner)},
		{"lease", s.Terms.Lease.String()},
		{"lease ends", Moment(s.Until, n.Now)},
		{"kept for", s.Terms.Keep.String()},
		{"attempt began", Moment(s.Began, n.Now)},
		{"attempt ended", Moment(Ended(s), n.Now)},
		{"forgotten", Moment(s.ForgetAt, n.Now)},
		{"last failure", OneLine(s.Reason)},
	}
}

// Ended is when the last attempt ended, or the end of its lease was noticed: a state is
// kept from then on. It is zero while a name is held.
func Ended(s once.State) (at time.Time) {
	if s.Phase != once.Held {
		at = s.ForgetAt.Add(-s.Terms.Keep)
	}
	return at
}
