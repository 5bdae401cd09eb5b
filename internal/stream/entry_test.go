package stream_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/push"
	"github.com/activityd/activityd/internal/stream"
)

// The copy of an entry is bounded, whatever the entry holds.
func TestWhatIsKeptIsBounded(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.String(),
			rapid.SampledFrom([]string{"task", "", "{}", "null", `{"type":"upload","user_id":"1"}`, `{"type":"notify","user_id":"1","event":{}}`}),
			rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 5000), func(b []byte) string { return string(b) }),
		)
		pairs := rapid.IntRange(0, 30).Draw(t, "pairs")
		fields := rapid.SliceOfN(text, 2*pairs, 2*pairs).Draw(t, "fields")
		kept, err := stream.Dead("1795320429114-0", fields)
		if (err == nil) != (kept == nil) {
			t.Fatalf("%v is kept for the reason %v", kept, err)
		}
		size := 0
		for _, v := range kept {
			size += len(fmt.Sprint(v))
		}
		if size > 3000 {
			t.Errorf("%d bytes are kept", size)
		}
		if err != nil && !utf8.ValidString(kept[3].(string)) {
			t.Errorf("the reason is no text: %q", kept[3])
		}
	})
}

const (
	added   = "1795320429114-7"
	anEvent = `{"type":"notify","user_id":"5","event":{"type":"upload","object":"photo:901"}}`
)

// parsed returns the event of an entry that was added and is moved after a time.
func parsed(t *testing.T, id, task string, after time.Duration) push.Event {
	t.Helper()
	n, err := stream.Task(id, task, time.UnixMilli(1795320429114).Add(after))
	if err != nil {
		t.Fatal(err)
	}
	e, err := push.ParseEvent(member.ID(n.Key), n.Payload)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// An event has the same id whenever its entry is moved, and no id of a further
// entry, also when Redis gives an entry's id again.
func TestTheIDOfAnEvent(t *testing.T) {
	t.Parallel()
	id := parsed(t, added, anEvent, 0).ID
	if !strings.HasPrefix(id, "stream-"+added+"-") || len(id) != len("stream-"+added+"-")+16 {
		t.Errorf("id %q", id)
	}
	if again := parsed(t, added, anEvent, time.Hour).ID; again != id {
		t.Errorf("moved again it has the id %q, want %q", again, id)
	}
	seen := map[string]bool{id: true}
	for _, other := range []string{
		parsed(t, "1795320429114-8", anEvent, 0).ID,
		parsed(t, added, strings.Replace(anEvent, "901", "902", 1), 0).ID,
		parsed(t, added, strings.Replace(anEvent, "upload", "fave", 1), 0).ID,
	} {
		if seen[other] {
			t.Errorf("%q stands for two events", other)
		}
		seen[other] = true
	}
	if own := parsed(t, added, strings.Replace(anEvent, `"event":{`, `"event":{"id":"mine",`, 1), 0).ID; own != "mine" {
		t.Errorf("id %q, want mine", own)
	}
	parsed(t, "9999999999999-18446744073709551615", anEvent, 0) // in the year 2286 it still fits
}

// The time in the stream counts, also when it was longer than the event lives.
func TestTheLifeOfAnEvent(t *testing.T) {
	t.Parallel()
	minute := strings.Replace(anEvent, `"event":{`, `"event":{"expires_in":60,`, 1)
	const month = 29 * 24 * time.Hour
	for _, c := range []struct {
		id, task    string
		after       time.Duration
		expires, is time.Duration // its life, and its age
	}{
		{added, anEvent, 0, push.DefaultLife, 0},
		{added, minute, 999 * time.Millisecond, time.Minute, 999 * time.Millisecond},
		{added, minute, 20*time.Second + time.Microsecond, time.Minute, 20 * time.Second},
		{added, minute, time.Hour, time.Minute, time.Hour},
		{added, minute, month, time.Minute, month},
		{added, minute, -time.Hour, time.Minute, 0},
		{"1-1", minute, 0, time.Minute, 0}, // of a producer
	} {
		if got := parsed(t, c.id, c.task, c.after); got.ExpiresIn != c.expires || got.Age != c.is {
			t.Errorf("%s moved after %v: expires in %v of age %v, want %v and %v", c.id, c.after, got.ExpiresIn, got.Age, c.expires, c.is)
		}
	}
}
