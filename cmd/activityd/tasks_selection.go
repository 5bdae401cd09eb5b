package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
)

// taskBatch is how many tasks are read, or changed in one transaction, at once.
const taskBatch = 500

// taskFlags are the flags that choose tasks.
type taskFlags struct {
	ids, types, states, queues []string
	subject                    string
}

// register registers the flags; states are the possible ones, with a note on them.
func (t *taskFlags) register(cmd *cobra.Command, states []queue.State, note string) {
	f := cmd.Flags()
	f.StringSliceVar(&t.ids, "id", nil, "only the tasks with these `ids`: 5, or 5-9; may be repeated, as may type, state and queue")
	f.StringSliceVar(&t.types, "type", nil, "only tasks of this `type`: "+orList(queue.Kinds()))
	f.StringSliceVar(&t.states, "state", nil, "only tasks in this `state`: "+orList(states)+note)
	f.StringSliceVar(&t.queues, "queue", nil, "only tasks of this `queue`: "+orList(knownQueues())+", or one of your own")
	f.StringVar(&t.subject, "subject", "", "only tasks about this `member`")
	completeList(cmd, "type", queue.Kinds())
	completeList(cmd, "state", states)
	completeList(cmd, "queue", knownQueues())
}

// narrow tells whether the flags name tasks by anything but their state.
func (t *taskFlags) narrow() bool {
	return len(t.ids)+len(t.types)+len(t.queues) > 0 || t.subject != ""
}

// selection reads the flags. The states are to be among the possible ones. A flag
// with nothing in it, as of a shell's variable that is not set, would choose all.
func (t *taskFlags) selection(f *pflag.FlagSet, possible []queue.State) (selection, error) {
	var empty error
	for _, name := range []string{"id", "type", "state", "queue", "subject"} {
		if flag := f.Lookup(name); flag.Changed && strings.Trim(flag.Value.String(), "[]") == "" {
			empty = errors.Join(empty, fmt.Errorf("--%s: is empty", name))
		}
	}
	ids, idErr := parseIDs(t.ids)
	if idErr != nil {
		idErr = fmt.Errorf("--id: %w", idErr)
	}
	states, stateErr := parseStates(t.states, possible)
	s := selection{filter: queue.Filter{Kinds: t.types, States: states, Queues: t.queues}, named: ids}
	var subjectErr error
	if t.subject != "" {
		id, err := member.Parse(t.subject)
		if s.filter.Key = uint64(id); err != nil {
			subjectErr = fmt.Errorf("--subject: %w", err)
		}
	}
	return s, errors.Join(empty, idErr, stateErr, subjectErr)
}

func parseStates(words []string, possible []queue.State) ([]queue.State, error) {
	var states []queue.State
	for _, word := range words {
		state := queue.State(word)
		switch {
		case !slices.Contains(queue.States(), state):
			return nil, fmt.Errorf("--state: unknown state %q: want %s", word, orList(possible))
		case !slices.Contains(possible, state):
			return nil, fmt.Errorf("--state: this cannot be done to %s tasks: want %s", word, orList(possible))
		}
		states = append(states, state)
	}
	return states, nil
}

// taskLister is a queue whose tasks can be looked at.
type taskLister interface {
	// List returns up to limit tasks that match, by id.
	List(ctx context.Context, match queue.Filter, limit int) ([]queue.Record, error)
}

// selection is the tasks that match a filter and, if any are named, have one of
// the ids.
type selection struct {
	filter queue.Filter
	named  []idRange
}

// records returns the tasks of the selection above an id, by id, and an error at
// the end if there is one; see [selection.pages].
func (s selection) records(ctx context.Context, q taskLister, after uint64, size int) iter.Seq2[queue.Record, error] {
	return func(yield func(queue.Record, error) bool) {
		for page, err := range s.pages(ctx, q, after, size) {
			if err != nil {
				yield(queue.Record{}, err)
				return
			}
			for _, r := range page {
				if !yield(r, nil) {
					return
				}
			}
		}
	}
}

// pages returns the tasks of the selection above an id, size at a time, so that
// any number of them fits into memory. It goes forward only: whatever becomes of
// a task afterwards, it does not come back.
func (s selection) pages(ctx context.Context, q taskLister, after uint64, size int) iter.Seq2[[]queue.Record, error] {
	return func(yield func([]queue.Record, error) bool) {
		spans := spansOf(s.named)
		for {
			page, err := s.page(ctx, q, spans, after, size)
			if err != nil {
				yield(nil, err)
				return
			}
			if len(page) == 0 || !yield(page, nil) || len(page) < size {
				return
			}
			after = page[len(page)-1].ID
		}
	}
}

// page returns the first tasks of the selection above an id.
func (s selection) page(ctx context.Context, q taskLister, spans []idSpan, after uint64, limit int) (page []queue.Record, err error) {
	for _, span := range spans {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("list tasks: %w", err)
		}
		if span.last <= after {
			continue
		}
		list, err := q.List(ctx, span.narrow(s.filter, after), limit-len(page))
		if err != nil {
			return nil, err
		}
		if page = append(page, span.cut(list)...); len(page) == limit {
			break
		}
	}
	return page, nil
}
