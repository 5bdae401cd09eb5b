package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Settings are part of what the stored sets mean: a set of nine members is
// complete under Min 10 and is not under Min 9. So they are stored in Redis too,
// and a process with other settings refuses to use the sets.
type Settings struct {
	Need int // how many candidates a read wants; Max is derived from it
	Max  int // members a set holds at most
	Min  int // members below which a set is refilled, unless there are no more contacts
}

// NewSettings derives Max from need and the headroom in percent, rounded up.
// Min is fewest, or need if fewest is 0. An error names the number that is wrong.
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
		"after which the sets are built again from MySQL", e.Stored, e.Own)
}

// Is makes errors.Is(err, ErrSettings) hold.
func (e *SettingsError) Is(target error) bool { return target == ErrSettings }

// When the settings are compared. Each method compares the stored settings with its own
// before it uses a set, unless they were compared in the last Options.SettingsTrust. A
// comparison goes in the pipeline that is sent anyway; Add, which would have written by
// then, makes a round trip for it. They can only change in two ways.
//
//   - An operator stops all processes, runs `activityd reset`, and starts them with other
//     settings. They compare at their start, by [Index.Check].
//   - Redis loses them, with the sets: by a FLUSHALL, a restart without persistence, or a
//     failover to a replica that lacks them. The processes that run go on, all with the
//     settings that were stored. What must not happen is that a set is made before they
//     are stored again, for a process with other settings could store its own beside it.
//     A set is made only by an update whose Begin found it missing (I4). So such a Begin
//     stores and compares, however recent the last comparison was; and if Redis is
//     emptied after it, the guard is gone, and Apply conflicts.
//
// What remains: Redis is emptied while processes run, or comes back with a backup from
// before a reset, and before one of them makes a set, a process is started with other
// settings, against the documentation. Then the old ones may change the sets of the new
// one until their trust ends: for SettingsTrust, or a second where [Index.Watch] runs,
// whose probe compares.

// Check tells whether the index can be used now: nil, or an error that matches
// [ErrUnavailable], which [ErrNoDatabase] does, or [ErrSettings].
func (ix *Index) Check(ctx context.Context) (err error) {
	defer func(start time.Time) { ix.observe(opCheck, start, err) }(time.Now())
	return ix.compare(ctx, getText(ctx, ix.client, settingsKey))
}

// trusted tells whether the stored settings were compared not long ago.
func (ix *Index) trusted() bool {
	return ix.options.Now().UnixNano() < ix.trustedUntil.Load()
}

// compare compares what Redis holds with the own settings. None stored is no error, for
// there are no sets then; the next Begin stores them.
func (ix *Index) compare(ctx context.Context, stored *redis.StringCmd) error {
	value, own := stored.Val(), ix.options.Settings
	if stored.Err() == nil && (value == "" || value == own.String()) {
		if value == "" {
			ix.storeNext.Store(true)
		}
		ix.trustedUntil.Store(ix.options.Now().Add(ix.options.SettingsTrust).UnixNano())
		return nil
	}
	ix.trustedUntil.Store(0)
	if stored.Err() != nil {
		return translate(ctx, "settings", stored.Err())
	}
	if len(value) == maxTextBytes {
		value = strings.ToValidUTF8(value, "") + "…"
	}
	return &SettingsError{Stored: value, Own: own}
}

// storeSettings stores the own settings unless there are some, and reads what is stored.
func (ix *Index) storeSettings(ctx context.Context, pipe redis.Pipeliner) *redis.StringCmd {
	pipe.SetNX(ctx, settingsKey, ix.options.Settings.String(), 0)
	return getText(ctx, pipe, settingsKey)
}

// compareStored is [Index.compare] after storeSettings. Nothing is stored then only if
// another program has stored an empty text.
func (ix *Index) compareStored(ctx context.Context, stored *redis.StringCmd) error {
	if err := ix.compare(ctx, stored); err != nil {
		return err
	}
	if stored.Val() == "" {
		return &SettingsError{Own: ix.options.Settings}
	}
	return nil
}
