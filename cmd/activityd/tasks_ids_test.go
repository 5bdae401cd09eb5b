package main

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/activityd/activityd/internal/queue"
)

func TestIDs(t *testing.T) {
	t.Parallel()
	got, err := parseIDs([]string{"5", "7-9", "18446744073709551615"})
	must(t, err)
	if want := []idRange{{5, 5}, {7, 9}, {1<<64 - 1, 1<<64 - 1}}; !slices.Equal(got, want) {
		t.Errorf("read %v, want %v", got, want)
	}
	for _, bad := range []string{"", "0", "-5", "5-", "-", "9-7", "0-3", "a", "1-b", "1-2-3", "+1", "1 ", "18446744073709551616"} {
		if got, err := parseIDs([]string{"1", bad}); err == nil || !strings.Contains(err.Error(), "5-9") {
			t.Errorf("%q was read as %v, %v", bad, got, err)
		}
	}
}

// listed is a queue with these tasks, in order.
type listed []uint64

func (l listed) List(_ context.Context, match queue.Filter, limit int) (list []queue.Record, err error) {
	ids := make(map[uint64]bool)
	for _, id := range match.IDs {
		ids[id] = true
	}
	for _, id := range l {
		if id > match.After && (len(ids) == 0 || ids[id]) && len(list) < limit {
			list = append(list, queue.Record{ID: id})
		}
	}
	return list, nil
}

// A selection finds each task of its ranges once, in order, however the ranges
// lie and however many tasks a page has; and its queries stay small.
func TestSelectionsFindEachTaskOnce(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint64Range(1, 3000)
		there := listed(rapid.SliceOfNDistinct(id, 0, 60, rapid.ID).Draw(t, "tasks"))
		slices.Sort(there)
		var s selection
		for range rapid.IntRange(0, 20).Draw(t, "ranges") {
			first := id.Draw(t, "first")
			length := rapid.SampledFrom([]uint64{0, 0, 0, 1, 100, taskBatch - 1, taskBatch, 2000}).Draw(t, "length")
			s.named = append(s.named, idRange{first, first + length})
		}
		after := rapid.SampledFrom([]uint64{0, 0, 1500}).Draw(t, "after")
		var want, got []uint64
		for _, id := range there {
			inside := slices.ContainsFunc(s.named, func(r idRange) bool { return r.first <= id && id <= r.last })
			if id > after && (inside || len(s.named) == 0) {
				want = append(want, id)
			}
		}
		for r, err := range s.records(context.Background(), there, after, rapid.IntRange(1, 70).Draw(t, "size")) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, r.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
		for _, span := range spansOf(s.named) {
			if len(span.ids) > taskBatch {
				t.Errorf("a query for %d ids", len(span.ids))
			}
		}
	})
}

func TestManyIDsTakeFewQueries(t *testing.T) {
	t.Parallel()
	var ranges []idRange
	for i := range uint64(1000) {
		ranges = append(ranges, idRange{2*i + 1, 2*i + 1})
	}
	if spans := spansOf(ranges); len(spans) != 2 {
		t.Errorf("%d queries for 1000 ids, want 2", len(spans))
	}
	if spans := spansOf([]idRange{{1, 1 << 63}}); len(spans) != 1 || spans[0].ids != nil {
		t.Errorf("a large range is %d queries with %d ids", len(spans), len(spans[0].ids))
	}
}
