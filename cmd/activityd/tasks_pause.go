package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/tasks"
)

func newTasksPause() *cobra.Command {
	return queueCommand(&cobra.Command{
		Use:   "pause QUEUE",
		Short: "Let no task of a queue start until it is resumed",
		Long: "Let no task of a queue start until it is resumed. Tasks that run go on, and tasks can be\n" +
			"enqueued as ever. All processes notice within a second. It outlives restarts.",
		Example: "  activityd tasks pause fan_out",
	}, pauseQueue)
}

func newTasksResume() *cobra.Command {
	return queueCommand(&cobra.Command{
		Use:     "resume QUEUE",
		Short:   "End the pause of a queue",
		Example: "  activityd tasks resume fan_out",
	}, resumeQueue)
}

// queueCommand completes a command that does something with one queue.
func queueCommand(cmd *cobra.Command, do func(ctx context.Context, q taskAdmin, queue string, out io.Writer) error) *cobra.Command {
	c := &config{}
	cmd.Args, cmd.ValidArgs = exactly("QUEUE"), knownQueues()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return onTasks(cmd, c, nil, func(ctx context.Context, q taskAdmin) error {
			strange, err := isStrangeQueue(ctx, q, args[0])
			if err != nil {
				return err
			}
			if strange {
				fmt.Fprintf(cmd.ErrOrStderr(), "activityd: no task is in a queue %q, and it is none of %s: is it misspelt?\n", args[0], strings.Join(knownQueues(), ", "))
			}
			return do(ctx, q, args[0], cmd.OutOrStdout())
		})
	}
	c.mysqlFlags(cmd.Flags())
	return cmd
}

// knownQueues returns the queues for which there are workers unless --workers says
// otherwise.
func knownQueues() (names []string) {
	for _, w := range tasks.DefaultWorkers() {
		names = append(names, w.Queue)
	}
	return names
}

// isStrangeQueue tells of a queue that its name may be misspelt. That is no reason
// to refuse it: a site's own queue may be paused before its first task comes, and
// nobody here knows which queues the workers of other processes work on.
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

func pauseQueue(ctx context.Context, q taskAdmin, queue string, out io.Writer) error {
	changed, err := q.Pause(ctx, queue)
	if err != nil {
		return err
	}
	if !changed {
		_, err = fmt.Fprintf(out, "queue %s was paused already\n", queue)
		return err
	}
	_, err = fmt.Fprintf(out, "queue %s is paused: end it with activityd tasks resume %[1]s\n", queue)
	return err
}

func resumeQueue(ctx context.Context, q taskAdmin, queue string, out io.Writer) error {
	changed, err := q.Resume(ctx, queue)
	if err != nil {
		return err
	}
	if !changed {
		_, err = fmt.Fprintf(out, "queue %s was not paused\n", queue)
		return err
	}
	_, err = fmt.Fprintf(out, "queue %s is resumed\n", queue)
	return err
}
