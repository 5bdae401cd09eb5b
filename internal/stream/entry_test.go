package stream_test

import (
	"fmt"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/stream"
)

// What is kept of an entry is bounded, whatever is in it.
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

func FuzzEntry(f *testing.F) {
	for _, s := range []string{
		"", "{}", "null", `{"type":"upload","user_id":"1"}`, `{"type":"add_contact","user_id":1,"contact_id":"2"}`,
		`{"type":"notify","user_id":"1","event":{"type":"upload","object":"photo:901"}}`,
		`{"type":"notify","user_id":"1","event":{"id":"x","type":"upload","recipients":["2"],"data":{"a":[1]}}}`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		kept, err := stream.Dead("1795320429114-0", []string{stream.Field, s})
		if (err == nil) != (kept == nil) {
			t.Fatalf("%v is kept for the reason %v", kept, err)
		}
	})
}
