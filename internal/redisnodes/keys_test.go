package redisnodes

import "testing"

// Stored data outlives the process, so the keys are pinned letter by letter.
func TestKeys(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ got, want string }{
		{tagged("x", ""), "x"},
		{tagged("x", "{5}"), "x_{5}"},
		{markKey(""), "activityd_mark"},
		{markKey("{5}"), "activityd_mark_{5}"},
		{serverKey(""), "activityd_server"},
		{serverKey("{5}"), "activityd_server_{5}"},
		{lostKey("{5}"), "activityd_lost_{5}"},
		{purgeKey("{5}"), "activityd_purge_{5}"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}
