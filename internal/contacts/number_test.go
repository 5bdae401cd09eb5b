package contacts_test

import (
	"math"
	"testing"

	"github.com/activityd/activityd/internal/contacts"
)

func TestNumbersAsDriversReturnThem(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		value any
		want  contacts.Number
	}{
		{int64(7), 7},
		{uint64(math.MaxUint64), math.MaxUint64},
		{[]byte("18446744073709551615"), math.MaxUint64},
		{"42", 42},
		{int64(0), 0},
	} {
		got := contacts.Number(1)
		if err := got.Scan(c.value); err != nil || got != c.want {
			t.Errorf("%v (%T): %d, %v, want %d", c.value, c.value, got, err, c.want)
		}
	}
	for _, value := range []any{int64(-1), nil, "", []byte("-1"), "18446744073709551616", 1.5, true} {
		var got contacts.Number
		if err := got.Scan(value); err == nil {
			t.Errorf("%v (%T) is read as %d, want an error", value, value, got)
		}
	}
}
