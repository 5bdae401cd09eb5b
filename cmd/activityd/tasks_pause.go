package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/queue"
)

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
		return withTasks(cmd, c, func(ctx context.Context, q *queue.MySQLQueue) error {
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
