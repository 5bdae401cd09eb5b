package main

import (
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/activityd/activityd/internal/queue"
)

// taskAdmin is what the operator's commands ask of a queue.
type taskAdmin interface {
	taskLister
	Retry(ctx context.Context, match queue.Filter, limit int) (int, error)
	Discard(ctx context.Context, match queue.Filter, limit int) (int, error)
	Pause(ctx context.Context, queue string) (changed bool, err error)
	Resume(ctx context.Context, queue string) (changed bool, err error)
	Paused(ctx context.Context) ([]string, error)
	Stats(ctx context.Context) (queue.Stats, error)
}

func newTasks() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tasks",
		Short: "Look at tasks; retry, discard or hold them back",
		Long: "Look at tasks, retry or discard those that failed for good, and hold queues back.\n\n" +
			"A task is waiting for a worker, scheduled for later, running, dead (it failed for good and is\n" +
			"kept with its reason) or done (finished ones are kept only where so configured).",
		Example: "  activityd tasks stats\n" +
			"  activityd tasks list --state dead\n" +
			"  activityd tasks show 4711\n" +
			"  activityd tasks retry --all --dry-run\n" +
			"  activityd tasks pause fan_out",
		Args: onlyCommands,
		RunE: help,
	}
	cmd.AddCommand(newTasksList(), newTasksShow(), newTasksRetry(), newTasksDiscard(), newTasksPause(), newTasksResume(), newTasksStats())
	for _, sub := range cmd.Commands() {
		markDeeds(sub.Flags())
	}
	return cmd
}

// markDeeds says of all flags that are no settings that they are deeds: which
// tasks were meant once must not decide about later ones.
func markDeeds(f *pflag.FlagSet) {
	settings := []string{"mysql-dsn", "mysql-connections", "redis-url", "output", "progress"}
	f.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(settings, flag.Name) {
			flag.Annotations = map[string][]string{deedAnnotation: nil}
		}
	})
}

// onTasks does something with the queue in MySQL; if a Redis is named, the workers
// are woken for what may start by it. Wrong is what is wrong with
// the command's own flags: it is told together with what is wrong with others.
func onTasks(cmd *cobra.Command, c *config, wrong error, do func(context.Context, taskAdmin) error) error {
	if err := errors.Join(wrong, c.check(cmd.Flags())); err != nil {
		return err
	}
	db, err := openMySQL(c)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }() // every statement's own error was looked at
	notifier, rung, err := openNotifier(cmd.Context(), c, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	defer rung()
	return do(cmd.Context(), queue.NewMySQLQueue(db, queue.Options{Notifier: notifier, Owner: processName()}))
}

// The choices of --output.
const (
	outputTable = "table"
	outputJSON  = "json"
)

const outputHelp = "\n\nWith --output=json every object is one line; ids are strings, times are RFC 3339 in UTC with\n" +
	"milliseconds, and what a task has not got is left out."

func outputFlag(f *pflag.FlagSet, output *string) {
	f.VarP(newChoice(output, outputTable, outputJSON), "output", "o", "form of the output")
}
