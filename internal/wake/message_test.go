package wake_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/wake"
)

// Valid names arrive as they were sent.
func TestPropertyMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SliceOfN(rapid.String().Filter(wake.Valid), 0, 100).Draw(t, "names")
		got, sender := wake.Decode(wake.Encode(names, "@me"))
		if !slices.Equal(got, names) || sender != "@me" {
			t.Fatalf("got %q from %q, want %q", got, sender, names)
		}
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string][]string{
		"default":                             {"default"},
		"":                                    nil,
		",,@x,":                               nil,
		"default,\xff,refill":                 {"default", "refill"},
		"*":                                   {"*"},
		"once:a/b@c=1+2.3_4-5":                {"once:a/b@c=1+2.3_4-5"},
		strings.Repeat("x", 257):              nil,
		strings.Repeat("x,", 5000):            nil,
		"a," + strings.Repeat("x", 256) + ",": {"a", strings.Repeat("x", 256)},
	} {
		if got, _ := wake.Decode(payload); !slices.Equal(got, want) {
			t.Errorf("%.80q: got %q, want %q", payload, got, want)
		}
	}
	if got, _ := wake.Decode(" default , fan_out\n"); !slices.Equal(got, []string{"default", "fan_out"}) {
		t.Errorf("with spaces: got %q", got)
	}
}
