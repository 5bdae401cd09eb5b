package index

import (
	"testing"

	"github.com/activityd/activityd/internal/member"
)

// Stored data outlives the process, so the keys are pinned letter by letter.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{UserKey(12345), "user_12345"},
		{UserKey(member.ID(1<<64 - 1)), "user_18446744073709551615"},
		{guardKey(UserKey(12345)), "guard_{user_12345}"},
		{probeKey(0), "user_probe0"},
		{guardKey(probeKey(63)), "guard_{user_probe63}"},
		{settingsKey, "activityd_settings"},
		{epochKey, "activityd_epoch"},
		{materializeKey, "activityd_materialize"},
		{sweepFenceKey, "activityd_{sweep}_fence"},
		{sweepStateKey, "activityd_{sweep}_state"},
		{markKey, "activityd_mark"},
		{markServerKey, "activityd_{mark}_server"},
		{markLostKey, "activityd_{mark}_lost"},
		{markKeyOf(63), "activityd_mark_{63}"},
		{Settings{Need: 10, Max: 12, Min: 10}.String(), "need=10 max=12 min=10"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
