package index

import (
	"errors"
	"fmt"
)

// Settings are part of what the stored sets mean: a set of nine members is
// complete under Min 10 and is not under Min 9. So they are kept in Redis too,
// and a process with other settings refuses to use the sets.
type Settings struct {
	Need int // how many candidates a read wants; Max is derived from it
	Max  int // members a set holds at most
	Min  int // members below which a set is refilled, unless there are no more contacts
}

// NewSettings derives Max from need and the headroom in percent, rounded up.
// Min is fewest, or need if that is 0. Its errors name the number that is wrong.
func NewSettings(need, headroomPercent, fewest int) (Settings, error) {
	const most = 10_000
	switch {
	case need < 1 || need > most:
		return Settings{}, fmt.Errorf("need is %d: want 1 to %d", need, most)
	case headroomPercent < 0 || headroomPercent > 1000:
		return Settings{}, fmt.Errorf("headroom is %d %%: want 0 to 1000", headroomPercent)
	}
	s := Settings{Need: need, Max: need + (need*headroomPercent+99)/100, Min: fewest}
	if fewest == 0 {
		s.Min = need
	}
	if s.Min < 1 || s.Min > s.Max {
		return Settings{}, fmt.Errorf("min is %d: want 1 to %d (need %d plus %d %%)", fewest, s.Max, need, headroomPercent)
	}
	return s, nil
}

// String is the form in which the settings are stored.
func (s Settings) String() string {
	return fmt.Sprintf("need=%d max=%d min=%d", s.Need, s.Max, s.Min)
}

// ErrSettings is matched by every [SettingsError].
var ErrSettings = errors.New("the stored sets have other settings")

// SettingsError says that the sets in Redis were built with other settings than
// this process was started with. Nothing was read from them or written.
type SettingsError struct {
	Stored string // as found in Redis, cut off if activityd did not write it
	Own    Settings
}

// Error tells what differs and the two ways out.
func (e *SettingsError) Error() string {
	return fmt.Sprintf("the sets in Redis were built with %q, this process was started with %q: "+
		"start it with the numbers of the sets, or stop all processes and run `activityd reset --yes`, "+
		"after which the sets are built anew from MySQL", e.Stored, e.Own)
}

// Is makes errors.Is(err, ErrSettings) hold.
func (e *SettingsError) Is(target error) bool { return target == ErrSettings }
