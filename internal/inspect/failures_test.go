package inspect_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/testing/queuetest"
	"github.com/activityd/activityd/queue"
)

// Errors that differ in numbers are a group, whose pattern finds exactly them.
func TestFailuresAreGrouped(t *testing.T) {
	t.Parallel()
	list := []queue.Record{
		{ID: 9, Queue: "push", Kind: "deliver", State: queue.Dead, LastError: "100% gone: a_b\\c after 3s"},
		{ID: 1, Queue: "default", Kind: "upload", State: queue.Dead, LastError: "dial tcp 10.0.0.1:443: refused"},
		{ID: 3, Queue: "default", Kind: "upload", State: queue.Dead, LastError: "dial tcp 10.0.0.22:443: refused"},
		{ID: 2, Queue: "default", Kind: "upload", State: queue.Scheduled, LastError: "dial tcp 10.0.0.1:443: refused"},
	}
	got := inspect.GroupFailures(list, 10)
	want := []inspect.Failures{
		{"default", "upload", queue.Dead, "dial tcp 10.0.0.22:443: refused", 3, 2, "dial tcp %.%.%.%:%: refused"},
		{"push", "deliver", queue.Dead, "100% gone: a_b\\c after 3s", 9, 1, `%\% gone: a\_b\\c after %s`},
		{"default", "upload", queue.Scheduled, "dial tcp 10.0.0.1:443: refused", 2, 1, "dial tcp %.%.%.%:%: refused"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, g := range got {
		for _, f := range list {
			same := f.Kind == g.Kind
			if fits := queuetest.Like(f.LastError, g.Pattern); fits != same {
				t.Errorf("%q fits %q: %v", g.Pattern, f.LastError, fits)
			}
		}
	}
	if got := inspect.GroupFailures(list, 1); len(got) != 1 || got[0].Count != 2 {
		t.Errorf("one group: %+v", got)
	}
}
