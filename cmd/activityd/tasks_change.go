package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/plural"
	"github.com/activityd/activityd/internal/queue"
)

// taskDeed is something that can be done to many tasks.
type taskDeed struct {
	verb, past string        // as in "retry", "retried"
	possible   []queue.State // of the tasks to which it can be done; the first is the default
	do         func(ctx context.Context, q taskAdmin, match queue.Filter, limit int) (int, error)
}

var retryDeed = taskDeed{
	verb: "retry", past: "retried", possible: []queue.State{queue.Dead, queue.Scheduled},
	do: func(ctx context.Context, q taskAdmin, match queue.Filter, limit int) (int, error) {
		return q.Retry(ctx, match, limit)
	},
}

var discardDeed = taskDeed{
	verb: "discard", past: "discarded", possible: []queue.State{queue.Dead, queue.Scheduled, queue.Waiting, queue.Done},
	do: func(ctx context.Context, q taskAdmin, match queue.Filter, limit int) (int, error) {
		return q.Discard(ctx, match, limit)
	},
}

// taskChange is what the flags of retry and discard say.
type taskChange struct {
	deed      taskDeed
	chosen    taskFlags
	selection selection
	all, dry  bool
	confirm   bool // without yes, only single tasks are touched
	yes       bool
	progress  string
}

func newTasksRetry() *cobra.Command {
	ch, c := &taskChange{deed: retryDeed}, &config{}
	cmd := ch.command(c, &cobra.Command{
		Use:   "retry",
		Short: "Try dead tasks again",
		Long: "Try dead tasks again, with all their attempts before them; or, with --state scheduled, those that\n" +
			"wait for their time, at once. Each is touched once, however often it fails meanwhile. They are\n" +
			"taken in batches of 500; an interrupt stops between two batches. With --redis-url idle workers are\n" +
			"woken; else they find the tasks at their next poll, within a second.",
		Example: "  activityd tasks retry --all --dry-run\n" +
			"  activityd tasks retry --type upload\n" +
			"  activityd tasks retry --id 4711 --id 4720-4730",
	})
	c.wakeFlag(cmd.Flags())
	return cmd
}

func newTasksDiscard() *cobra.Command {
	ch := &taskChange{deed: discardDeed, confirm: true}
	cmd := ch.command(&config{}, &cobra.Command{
		Use:   "discard",
		Short: "Delete tasks that shall not be done",
		Long: "Delete dead tasks; or, where --state says so, scheduled, waiting or done ones. Never running ones.\n" +
			"What a discarded task would have told is not told: the sets that it was to touch may stay as they\n" +
			"are until something else touches them (activityd show USER tells).\n\n" +
			"Single tasks, by --id, are deleted at once; everything else needs --yes.",
		Example: "  activityd tasks discard --id 4711\n" +
			"  activityd tasks discard --type upload --dry-run\n" +
			"  activityd tasks discard --queue refill --state waiting --yes",
	})
	cmd.Flags().BoolVar(&ch.yes, "yes", false, "do it")
	return cmd
}

// command completes the command.
func (ch *taskChange) command(c *config, cmd *cobra.Command) *cobra.Command {
	cmd.Args = onlyFlags
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return onTasks(cmd, c, ch.prepare(cmd.Flags()), func(ctx context.Context, q taskAdmin) error {
			if ch.dry {
				return ch.preview(ctx, q, cmd.OutOrStdout())
			}
			return ch.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
		})
	}
	f := cmd.Flags()
	ch.chosen.register(cmd, ch.deed.possible, "; "+string(ch.deed.possible[0])+" if none is named")
	f.BoolVar(&ch.all, "all", false, "all of them; needed where neither id, type, queue nor subject is named")
	f.BoolVar(&ch.dry, "dry-run", false, "only say which tasks it would be")
	progressFlag(f, &ch.progress)
	c.mysqlFlags(f)
	return cmd
}

// onlyFlags points to --id who gives ids as arguments.
func onlyFlags(cmd *cobra.Command, args []string) error {
	if _, err := parseIDs(args); err == nil && len(args) > 0 {
		return fmt.Errorf("%s: tasks are named by a flag: want %s --id %s", below(cmd), cmd.CommandPath(), strings.Join(args, ","))
	}
	return exactly()(cmd, args)
}

// prepare reads the flags, and refuses what is probably not meant.
func (ch *taskChange) prepare(f *pflag.FlagSet) error {
	s, err := ch.chosen.selection(f, ch.deed.possible)
	if len(s.filter.States) == 0 {
		s.filter.States = ch.deed.possible[:1]
	}
	ch.selection = s
	if err != nil {
		return err
	}
	if !ch.all && !ch.chosen.narrow() {
		return fmt.Errorf("%s which tasks? Name them by --id, --type, --queue or --subject, or say --all", ch.deed.verb)
	}
	if ch.confirm && !ch.yes && !ch.dry && !ch.onlySingles() {
		return errors.New("this deletes tasks for good: look at them with --dry-run, then repeat with --yes")
	}
	return nil
}

// onlySingles tells whether every task was named by its own id.
func (ch *taskChange) onlySingles() bool {
	for _, ids := range ch.selection.named {
		if !ids.single() {
			return false
		}
	}
	return len(ch.selection.named) > 0
}

// run does the deed to all tasks of the selection, and says on errs which of the
// named ones were left alone; then it fails.
func (ch *taskChange) run(ctx context.Context, q taskAdmin, out, errs io.Writer) error {
	left, err := ch.tellLeft(ctx, q, errs)
	if err != nil {
		return err
	}
	total, err := ch.total(ctx, q)
	if err != nil {
		return err
	}
	bar := newProgress(errs, ch.progress, total, "tasks")
	changed, missed, err := ch.batches(ctx, q, bar)
	bar.Done()
	tasksChanged := plural.Of(changed, "task", "tasks")
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("interrupted: %s %s, the others are as they were; repeat it to go on: %w", ch.deed.past, tasksChanged, err)
	case err != nil:
		return fmt.Errorf("%s %s, then: %w", ch.deed.past, tasksChanged, err)
	}
	fmt.Fprintf(out, "%s %s\n", ch.deed.past, tasksChanged)
	if missed > 0 {
		fmt.Fprintln(errs, plural.Of(missed, "other changed meanwhile, or is about to, and was left alone", "others changed meanwhile, or are about to, and were left alone"))
	}
	if left > 0 {
		return errors.New(plural.Of(left, "of the named tasks was left alone", "of the named tasks were left alone"))
	}
	return nil
}

// batches does the deed to the tasks of the selection, a transaction for each
// page of them. An end of ctx stops it between two.
func (ch *taskChange) batches(ctx context.Context, q taskAdmin, bar *progress) (changed, missed int, err error) {
	for page, err := range ch.selection.pages(ctx, q, 0, taskBatch) {
		if err != nil {
			return changed, missed, err
		}
		// By id, so that no task is touched twice: one that is retried may be
		// dead again before the last page is reached.
		match := queue.Filter{States: ch.selection.filter.States}
		for _, r := range page {
			match.IDs = append(match.IDs, r.ID)
		}
		// A batch that began is finished, so that what is said of it is true.
		n, err := ch.deed.do(context.WithoutCancel(ctx), q, match, len(page))
		changed += n
		if err != nil {
			return changed, missed, err
		}
		missed += len(page) - n
		bar.Add(len(page))
	}
	return changed, missed, nil
}

// total returns how many tasks there are in the selection, or -1 when that cannot
// be told at little cost.
func (ch *taskChange) total(ctx context.Context, q taskStater) (int64, error) {
	match := ch.selection.filter
	if len(ch.selection.named) > 0 || match.Key != 0 {
		return -1, nil
	}
	s, err := q.Stats(ctx)
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for _, t := range s.Tasks {
		if oneOf(match.States, t.State) && oneOf(match.Kinds, t.Kind) && oneOf(match.Queues, t.Queue) {
			total += int64(t.Count)
		}
		if s.More || t.Kind == queue.OtherKinds && len(match.Kinds) > 0 {
			return -1, nil
		}
	}
	for _, queue := range s.Queues {
		if queue.Capped {
			return -1, nil
		}
	}
	return total, nil
}
