package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/activityd/activityd/internal/queue"
)

// idRange is the ids from first to last, both included.
type idRange struct{ first, last uint64 }

func (r idRange) String() string {
	if r.single() {
		return strconv.FormatUint(r.first, 10)
	}
	return fmt.Sprintf("%d-%d", r.first, r.last)
}

func (r idRange) single() bool { return r.first == r.last }

// small tells whether r has at most n ids.
func (r idRange) small(n int) bool { return r.last-r.first < uint64(n) }

// parseIDs reads ids, as in "5", and ranges of them, as in "5-9".
func parseIDs(words []string) ([]idRange, error) {
	var ranges []idRange
	for _, word := range words {
		first, last, isRange := strings.Cut(word, "-")
		if !isRange {
			last = first
		}
		r := idRange{parseTaskID(first), parseTaskID(last)}
		if r.first == 0 || r.last < r.first {
			return nil, fmt.Errorf("%q is no task id: want a number, as in 5, or a range, as in 5-9", word)
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// parseTaskID returns 0, which is the id of no task, for what is no id.
func parseTaskID(s string) uint64 {
	id, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0
	}
	return id
}

// idSpan is a part of the ids that one query can ask for: a list of them or, when
// ids is nil, all from first to last.
type idSpan struct {
	idRange
	ids []uint64
}

// spansOf returns the ranges as spans in order: the small ones together, so that
// many ids do not take many queries, and the large ones alone, so that they take
// no long lists. No ranges stand for all ids.
func spansOf(ranges []idRange) []idSpan {
	if len(ranges) == 0 {
		return []idSpan{{idRange: idRange{1, math.MaxUint64}}}
	}
	var spans []idSpan
	for _, r := range merged(ranges) {
		if !r.small(taskBatch) {
			spans = append(spans, idSpan{idRange: r})
			continue
		}
		if n := len(spans); n == 0 || spans[n-1].ids == nil || len(spans[n-1].ids)+int(r.last-r.first) >= taskBatch {
			spans = append(spans, idSpan{idRange: r})
		}
		last := &spans[len(spans)-1]
		for i := range r.last - r.first + 1 {
			last.ids = append(last.ids, r.first+i)
		}
		last.last = r.last
	}
	return spans
}

// merged returns the ranges in order, with no id twice.
func merged(ranges []idRange) []idRange {
	sorted := slices.SortedFunc(slices.Values(ranges), func(a, b idRange) int { return cmp.Compare(a.first, b.first) })
	var out []idRange
	for _, r := range sorted {
		if n := len(out); n > 0 && r.first <= out[n-1].last {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// narrow returns the filter for the ids of the span above after.
func (s idSpan) narrow(f queue.Filter, after uint64) queue.Filter {
	f.IDs, f.After = s.ids, max(after, s.first-1)
	return f
}

// cut returns those of the tasks, which are in order, that are in the span.
func (s idSpan) cut(list []queue.Record) []queue.Record {
	end, _ := slices.BinarySearchFunc(list, s.last, func(r queue.Record, last uint64) int {
		if r.ID <= last {
			return -1
		}
		return 1
	})
	return list[:end]
}
