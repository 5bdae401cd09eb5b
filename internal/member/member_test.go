package member_test

import (
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/activityd/activityd/internal/member"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]member.ID{"1": 1, "12345": 12345, "18446744073709551615": math.MaxUint64} {
		got, err := member.Parse(s)
		if err != nil || got != want {
			t.Errorf("Parse(%q) = %d, %v, want %d", s, got, err, want)
		}
		if got.String() != s {
			t.Errorf("Parse(%q).String() = %q", s, got)
		}
	}
	for _, s := range []string{"", "0", "-1", "+1", "01", " 1", "1 ", "1.0", "1e3", "0x10", "1_000", "abc", "١", "18446744073709551616", strings.Repeat("9", 1000)} {
		got, err := member.Parse(s)
		if !errors.Is(err, member.ErrInvalid) || got != 0 {
			t.Errorf("Parse(%q) = %d, %v, want ErrInvalid", s, got, err)
		}
		if err != nil && len(err.Error()) > 200 {
			t.Errorf("Parse of %d bytes answers with %d bytes", len(s), len(err.Error()))
		}
	}
}

func TestJSON(t *testing.T) {
	t.Parallel()
	for _, in := range []string{`"12345"`, `12345`} {
		var id member.ID
		if err := json.Unmarshal([]byte(in), &id); err != nil || id != 12345 {
			t.Errorf("Unmarshal(%s) = %d, %v", in, id, err)
		}
	}
	for _, in := range []string{`"a"`, `0`, `"0"`, `-1`, `1.5`, `1e3`, `true`, `{}`, `[]`, `""`, `null`, `18446744073709551616`} {
		id := member.ID(7)
		if err := json.Unmarshal([]byte(in), &id); !errors.Is(err, member.ErrInvalid) || id != 7 {
			t.Errorf("Unmarshal(%s) = %d, %v, want ErrInvalid and no change", in, id, err)
		}
	}
	out, err := json.Marshal(map[string]member.ID{"id": math.MaxUint64})
	if err != nil || string(out) != `{"id":"18446744073709551615"}` {
		t.Errorf("Marshal = %s, %v", out, err)
	}
}

// An accepted text is the only spelling of its id, and a refused text changes nothing.
func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`"1"`, `1`, `"\u0031"`, `18446744073709551616`, `null`, `"`, ``, `1e3`, `" 1"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		const before = member.ID(7)
		id := before
		if err := id.UnmarshalJSON(data); err != nil {
			if !errors.Is(err, member.ErrInvalid) || id != before {
				t.Fatalf("UnmarshalJSON(%q) = %d, %v", data, id, err)
			}
			return
		}
		out, err := json.Marshal(id)
		if want := `"` + id.String() + `"`; err != nil || string(out) != want || id == 0 {
			t.Fatalf("%q: written as %s, %v, want %s", data, out, err, want)
		}
	})
}
