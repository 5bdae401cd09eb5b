package member_test

import (
	"testing"

	"github.com/activityd/activityd/internal/index"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/redisnodes"
)

// Copies are spread over the slots, and no other id is one.
func TestCopies(t *testing.T) {
	t.Parallel()
	for i, id := range member.Copies {
		if slot := redisnodes.SlotOf(index.UserKey(id)); slot/1024 != i {
			t.Errorf("copy %d lies in slot %d", i, slot)
		}
		if !id.IsCopy() {
			t.Errorf("%d is no copy", id)
		}
	}
	for _, id := range []member.ID{0, 1, 1<<53 - 5, 1 << 53, 1<<64 - 1} {
		if id.IsCopy() {
			t.Errorf("%d is a copy", id)
		}
	}
}
