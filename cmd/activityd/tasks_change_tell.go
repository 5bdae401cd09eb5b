package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/activityd/activityd/internal/plural"
	"github.com/activityd/activityd/internal/queue"
)

// oneOf tells whether a list, which stands for all when it is empty, has v.
func oneOf[T comparable](list []T, v T) bool {
	return len(list) == 0 || slices.Contains(list, v)
}

// tellLeft says which of the named tasks cannot be touched, and why, and returns
// how many they are. Of a range it says only which tasks are running.
func (ch *taskChange) tellLeft(ctx context.Context, q taskLister, errs io.Writer) (left int, err error) {
	tell := func(id uint64, reason string) {
		left++
		fmt.Fprintf(errs, "task %d: %s\n", id, reason)
	}
	var singles, ranges []idRange
	for _, ids := range ch.selection.named {
		if ids.single() {
			singles = append(singles, ids)
		} else {
			ranges = append(ranges, ids)
		}
	}
	err = ch.tellSingles(ctx, q, singles, tell)
	return left, errors.Join(err, ch.tellRunning(ctx, q, ranges, tell))
}

func (ch *taskChange) tellSingles(ctx context.Context, q taskLister, singles []idRange, tell func(uint64, string)) error {
	if len(singles) == 0 {
		return nil // no ids would stand for all
	}
	missing := make(map[uint64]bool)
	for _, id := range singles {
		missing[id.first] = true
	}
	for r, err := range (selection{named: singles}).records(ctx, q, 0, taskBatch) {
		if err != nil {
			return err
		}
		delete(missing, r.ID)
		if reason := ch.reason(r); reason != "" {
			tell(r.ID, reason)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(missing)) {
		tell(id, "there is none: finished and discarded ones are deleted")
	}
	return nil
}

func (ch *taskChange) tellRunning(ctx context.Context, q taskLister, ranges []idRange, tell func(uint64, string)) error {
	if len(ranges) == 0 {
		return nil
	}
	running := ch.selection.filter
	running.States = []queue.State{queue.Running}
	for r, err := range (selection{running, ranges}).records(ctx, q, 0, taskBatch) {
		if err != nil {
			return err
		}
		tell(r.ID, ch.reason(r))
	}
	return nil
}

// reason says why a named task is left alone; empty: it is not.
func (ch *taskChange) reason(r queue.Record) string {
	match := ch.selection.filter
	switch {
	case r.State == queue.Running:
		return fmt.Sprintf("it is running, and cannot be %s before it has ended", ch.deed.past)
	case !slices.Contains(ch.deed.possible, r.State):
		return fmt.Sprintf("it is %s, and cannot be %s", r.State, ch.deed.past)
	case !slices.Contains(match.States, r.State):
		return fmt.Sprintf("it is %s: say --state %[1]s to %s it", r.State, ch.deed.verb)
	case !oneOf(match.Kinds, r.Kind) || !oneOf(match.Queues, r.Queue) || match.Key != 0 && match.Key != r.Key:
		return fmt.Sprintf("it is of type %s in queue %s about %d, which the other filters exclude",
			oneLine(r.Kind), oneLine(r.Queue), r.Key)
	}
	return ""
}

// previewed is how many tasks a preview shows.
const previewed = 10

// preview says which tasks the deed would be done to: how many by type, and the
// first of them.
func (ch *taskChange) preview(ctx context.Context, q taskLister, out io.Writer) error {
	printer, total := newTaskPrinter(out, outputTable, false), 0
	byType := make(map[queue.TaskStats]int)
	for r, err := range ch.selection.records(ctx, q, 0, taskBatch) {
		if err != nil {
			return err
		}
		total++
		if total <= previewed {
			if err := printer.print(r); err != nil {
				return err
			}
		}
		byType[queue.TaskStats{Queue: r.Queue, Kind: r.Kind, State: r.State}]++
	}
	fmt.Fprintf(out, "would %s %s\n", ch.deed.verb, plural.Of(total, "task", "tasks"))
	for _, t := range slices.SortedFunc(maps.Keys(byType), compareTaskStats) {
		fmt.Fprintf(out, "  %d %s %s in queue %s\n", byType[t], t.State, oneLine(t.Kind), oneLine(t.Queue))
	}
	if total > previewed {
		fmt.Fprintf(out, "the first %d:\n", previewed)
	}
	return printer.end()
}

func compareTaskStats(a, b queue.TaskStats) int {
	return cmp.Or(cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.State, b.State))
}
