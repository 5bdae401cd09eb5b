package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/queue"
)

// taskChange is a change of many tasks, and what its flags say.
type taskChange struct {
	verb, past string        // as in "retry", "retried", before a number of tasks
	possible   []queue.State // of the tasks that can be changed; the first one is the default of a filter
	do         func(q taskAdmin, ctx context.Context, match queue.Filter, limit int) (int, error)

	chosen   taskFlags
	match    queue.Filter
	all, dry bool
	progress time.Duration
	output   string
}

// changeJSON is what came of a change, as other programs read it.
type changeJSON struct {
	Dry     bool `json:"dry_run,omitempty"`
	Would   int  `json:"would_change,omitempty"`
	Changed int  `json:"changed"`
	Missed  int  `json:"changed_meanwhile"` // or locked, and left alone
	Refused int  `json:"refused"`           // of those that were named by id
}

func newTasksRetry() *cobra.Command {
	ch, c := newRetry(), &config{}
	cmd := ch.command(c, &cobra.Command{
		Use:   "retry [ID...]",
		Short: "Try dead tasks again",
		Long: "Try dead tasks again, with all their attempts; or, by id or with --state scheduled, start those\n" +
			"that wait for their time. Each is touched once, however often it fails again. They are taken in\n" +
			"batches of 500; an interrupt stops between two batches. With --redis-url idle workers are\n" +
			"notified; else they find the tasks at their next poll, within a second.",
		Example: "  activityd tasks retry --all --dry-run\n" +
			"  activityd tasks retry --type upload\n" +
			"  activityd tasks retry 4711 4712",
	})
	c.notifyFlag(cmd.Flags())
	return cmd
}

func newRetry() *taskChange {
	return &taskChange{verb: "retry", past: "retried", possible: []queue.State{queue.Dead, queue.Scheduled}, do: taskAdmin.Retry}
}

func newTasksDiscard() *cobra.Command {
	ch := &taskChange{
		verb: "discard", past: "discarded", do: taskAdmin.Discard,
		possible: []queue.State{queue.Dead, queue.Scheduled, queue.Waiting},
	}
	var yes bool
	cmd := ch.command(&config{}, &cobra.Command{
		Use:   "discard [ID...]",
		Short: "Delete tasks that shall not be done",
		Long: "Delete the tasks with these ids, or dead ones by a filter; others where --state says so. Never\n" +
			"running ones. What a discarded task would have changed stays unchanged: the sets that it concerns\n" +
			"may stay as they are until another task updates them (activityd show MEMBER compares one).\n\n" +
			"A filter needs --yes.",
		Example: "  activityd tasks discard 4711\n" +
			"  activityd tasks discard --type upload --dry-run\n" +
			"  activityd tasks discard --queue refill --state waiting --yes",
		PreRunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 && !yes && !ch.dry {
				return errors.New("this deletes tasks for good: look at them with --dry-run, then repeat with --yes")
			}
			return nil
		},
	})
	cmd.Flags().BoolVar(&yes, "yes", false, "do it")
	return cmd
}

func newTasksPriority() *cobra.Command {
	to := 0
	ch := &taskChange{
		verb: "set the priority of", past: "set the priority of", possible: []queue.State{queue.Waiting, queue.Scheduled},
		do: func(q taskAdmin, ctx context.Context, match queue.Filter, limit int) (int, error) {
			return q.SetPriority(ctx, match, limit, to)
		},
	}
	cmd := ch.command(&config{}, &cobra.Command{
		Use:   "priority [ID...]",
		Short: "Put waiting tasks behind others, as those of an import, or before them",
		Long: "Give tasks that wait a priority. Those with a lower number are done first: by default it puts them\n" +
			"behind what your site changes from now on, whose tasks have 0. Priorities count within a queue, and\n" +
			"running tasks go on. A repetition of a change is done with the more urgent of the two. That tasks\n" +
			"became more urgent is noticed within some seconds. Interrupt it and repeat it as you like.",
		Example: "  activityd tasks priority --queue default --dry-run\n" +
			"  activityd tasks priority --queue default,fan_out\n" +
			"  activityd tasks priority --type upload --to -10",
		PreRunE: func(*cobra.Command, []string) error { return checkPriority("to", to) },
	})
	cmd.Flags().IntVar(&to, "to", queue.Idle, "the lower, the sooner: -32768 to 32767")
	return cmd
}

// command completes the command.
func (ch *taskChange) command(c *config, cmd *cobra.Command) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := ch.choose(cmd, args); err != nil {
			return err
		}
		return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
			if ch.dry {
				return ch.preview(ctx, q, cmd.OutOrStdout())
			}
			return ch.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
		})
	}
	f := cmd.Flags()
	ch.chosen.register(cmd, ch.possible, fmt.Sprintf("only tasks in this `state` (default %s)", ch.possible[0]))
	f.BoolVar(&ch.all, "all", false, "all of them, where neither ids nor type, queue, member or error are given")
	f.BoolVar(&ch.dry, "dry-run", false, "only say which tasks it would be")
	progressFlag(f, &ch.progress)
	outputFlag(f, &ch.output)
	c.mysqlFlags(f)
	return cmd
}

// choose reads the arguments and flags. All tasks are to be asked for explicitly.
func (ch *taskChange) choose(cmd *cobra.Command, args []string) (err error) {
	if ch.match, err = ch.chosen.filter(cmd.Flags(), args, ch.possible); err != nil {
		return err
	}
	if m := ch.match; !ch.all && len(m.IDs)+len(m.Kinds)+len(m.Queues)+len(m.Error) == 0 && m.Key == 0 {
		return fmt.Errorf("%s which tasks? Name them by id, --type, --queue, --member or --error, or say --all", cmd.Name())
	}
	switch {
	case len(ch.match.IDs) > 0:
		ch.match.States = ch.possible
	case len(ch.match.States) == 0:
		ch.match.States = ch.possible[:1]
	}
	return nil
}

// run changes all chosen tasks. It fails if one that was named by id cannot be
// changed, after the others were.
func (ch *taskChange) run(ctx context.Context, q taskAdmin, out, errs io.Writer) error {
	refused, err := ch.refused(ctx, q, errs)
	if err != nil {
		return err
	}
	changed, missed, err := ch.batches(ctx, q, newProgress(errs, ch.progress, -1, "tasks"))
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s %d tasks, the others are as they were; repeat it to go on: %w", ch.past, changed, err)
	case err != nil:
		return fmt.Errorf("%s %d tasks, then: %w", ch.past, changed, err)
	}
	if ch.output == outputJSON {
		if err := newLineEncoder(out).Encode(changeJSON{Changed: changed, Missed: missed, Refused: refused}); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(out, "%s %d tasks\n", ch.past, changed)
	}
	if missed > 0 {
		fmt.Fprintf(errs, "%d others changed in the meantime, or are about to, and were left alone\n", missed)
	}
	if refused > 0 {
		return fmt.Errorf("%d of the named tasks were left alone", refused)
	}
	return nil
}

// refused says which of the tasks that are named by id cannot be changed, and why, and
// returns how many they are.
func (ch *taskChange) refused(ctx context.Context, q taskAdmin, errs io.Writer) (refused int, err error) {
	if len(ch.match.IDs) == 0 {
		return 0, nil
	}
	states := make(map[uint64]queue.State)
	for page, err := range inspect.Pages(ctx, q, queue.Filter{IDs: ch.match.IDs}, inspect.Batch) {
		if err != nil {
			return 0, err
		}
		for _, r := range page {
			states[r.ID] = r.State
		}
	}
	for _, id := range ch.match.IDs {
		state, exists := states[id]
		switch {
		case !exists:
			fmt.Fprintf(errs, "task %d: there is none: finished and discarded ones are deleted\n", id)
		case !slices.Contains(ch.possible, state):
			fmt.Fprintf(errs, "task %d: it is %s, and cannot be %s\n", id, state, ch.past)
		default:
			continue
		}
		refused++
	}
	return refused, nil
}

// batches changes the chosen tasks, a transaction for each page of them.
func (ch *taskChange) batches(ctx context.Context, q taskAdmin, p *progress) (changed, missed int, err error) {
	do := func(ctx context.Context, match queue.Filter, limit int) (int, error) {
		return ch.do(q, ctx, match, limit)
	}
	return inspect.Change(ctx, inspect.Pages(ctx, q, ch.match, inspect.Batch), ch.match, do, p.add)
}

// previewed is how many tasks a preview shows.
const previewed = 10

// preview says how many tasks would be changed, and shows the first of them.
func (ch *taskChange) preview(ctx context.Context, q taskAdmin, out io.Writer) error {
	printer, total := newTaskPrinter(out, ch.output), 0
	for page, err := range inspect.Pages(ctx, q, ch.match, inspect.Batch) {
		if err != nil {
			return err
		}
		if total == 0 {
			if err := printer.print(page[:min(len(page), previewed)]); err != nil {
				return err
			}
		}
		total += len(page)
	}
	if ch.output == outputJSON {
		return newLineEncoder(out).Encode(changeJSON{Would: total, Dry: true})
	}
	_, err := fmt.Fprintf(out, "would %s %d tasks\n", ch.verb, total)
	return err
}

func newTasksPause() *cobra.Command {
	return pauseCommand(&cobra.Command{
		Use:   "pause QUEUE",
		Short: "Let no task of a queue start until it is resumed",
		Long: "Let no task of a queue start until it is resumed. Tasks that run go on, and tasks can be\n" +
			"enqueued as ever. All processes notice within a second. It outlives restarts.",
		Example: "  activityd tasks pause fan_out",
	}, taskAdmin.Pause, "is paused: activityd tasks resume ends it", "was paused already")
}

func newTasksResume() *cobra.Command {
	return pauseCommand(&cobra.Command{
		Use:     "resume QUEUE",
		Short:   "End the pause of a queue",
		Example: "  activityd tasks resume fan_out",
	}, taskAdmin.Resume, "is resumed", "was not paused")
}

// pauseCommand completes a command that changes the pause of one queue.
func pauseCommand(cmd *cobra.Command, change func(q taskAdmin, ctx context.Context, name string) (bool, error), changed, unchanged string) *cobra.Command {
	c := &config{}
	cmd.Args, cmd.ValidArgs = cobra.ExactArgs(1), knownQueues()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
			name := args[0]
			strange, err := isStrangeQueue(ctx, q, name)
			if err != nil {
				return err
			}
			if strange {
				fmt.Fprintf(cmd.ErrOrStderr(), "activityd: no task is in a queue %q, and it is none of %s: is it misspelt?\n", name, strings.Join(knownQueues(), ", "))
			}
			done, err := change(q, ctx, name)
			if err != nil {
				return err
			}
			outcome := unchanged
			if done {
				outcome = changed
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "queue %s %s\n", name, outcome)
			return err
		})
	}
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// isStrangeQueue reports whether the name of a queue may be misspelt. That is no
// reason to refuse it: a site's own queue may be paused before its first task comes,
// and the workers of other processes may work on any queue.
func isStrangeQueue(ctx context.Context, q taskAdmin, name string) (bool, error) {
	if slices.Contains(knownQueues(), name) {
		return false, nil
	}
	paused, err := q.Paused(ctx)
	if err != nil || slices.Contains(paused, name) {
		return false, err
	}
	list, err := q.List(ctx, queue.Filter{Queues: []string{name}}, 1)
	return len(list) == 0, err
}
