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
		{probeKeys("")[0], "user_probe"},
		{probeKeys("")[1], "guard_{user_probe}"},
		{probeKeys("_{5}")[0], "user_probe_{5}"},
		{probeKeys("_{5}")[1], "guard_probe_{5}"},
		{settingsKey, "activityd_settings"},
		{Settings{Need: 10, Max: 12, Min: 10}.String(), "need=10 max=12 min=10"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
