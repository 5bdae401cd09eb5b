package wake_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/wake"
)

// What can be told arrives as it was sent.
func TestPropertyMessages(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		queues := rapid.SliceOfN(rapid.String().Filter(wake.Valid), 0, 100).Draw(t, "queues")
		got, sender := wake.Decode(wake.Encode(queues, "@me"))
		if !slices.Equal(got, queues) || sender != "@me" {
			t.Fatalf("got %q from %q, want %q", got, sender, queues)
		}
	})
}

// A message of whatever kind makes nothing worse than a few names.
func TestPropertyGarbage(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		payload := strings.Join(rapid.SliceOf(rapid.String()).Draw(t, "parts"), ",")
		queues, _ := wake.Decode(payload)
		if len(queues) > 100 || slices.ContainsFunc(queues, func(q string) bool { return !wake.Valid(q) }) {
			t.Fatalf("got %q", queues)
		}
	})
}

func TestDecode(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string][]string{
		"default":                            {"default"},
		"":                                   nil,
		",,@x,":                              nil,
		"default,\xff,refill":                {"default", "refill"},
		strings.Repeat("x", 65):              nil,
		strings.Repeat("x,", 5000):           nil,
		"a," + strings.Repeat("x", 64) + ",": {"a", strings.Repeat("x", 64)},
	} {
		if got, _ := wake.Decode(payload); !slices.Equal(got, want) {
			t.Errorf("%.80q: got %q, want %q", payload, got, want)
		}
	}
	if got, _ := wake.Decode(" default , fan_out\n"); !slices.Equal(got, []string{"default", "fan_out"}) {
		t.Errorf("with spaces: got %q", got)
	}
	if got, _ := wake.Decode(strings.Repeat("x,", 1000)); len(got) != 100 {
		t.Errorf("%d names, want at most 100", len(got))
	}
}
