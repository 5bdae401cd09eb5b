package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/queue"
)

// taskList is what the flags of list say.
type taskList struct {
	selection selection
	output    string
	limit     int
	after     uint64
}

func newTasksList() *cobra.Command {
	c, chosen, l := &config{}, &taskFlags{}, taskList{}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tasks, the oldest first",
		Long:  "List tasks, the oldest first. Ages are by this machine's clock." + outputHelp,
		Example: "  activityd tasks list --state dead --type upload\n" +
			"  activityd tasks list --subject 12345 -o json\n" +
			"  activityd tasks list --state dead --limit 0 -o json > dead.ndjson",
		Args: exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := chosen.selection(cmd.Flags(), queue.States())
			l.selection = s
			return onTasks(cmd, c, errors.Join(err, l.check()), func(ctx context.Context, q taskAdmin) error {
				return l.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	chosen.register(cmd, queue.States(), "")
	f.IntVar(&l.limit, "limit", 50, "how many to list; 0 stands for all")
	f.Uint64Var(&l.after, "after", 0, "only those after the task with this `id`: the way to the next page")
	outputFlag(f, &l.output)
	c.mysqlFlags(f)
	return cmd
}

func (l taskList) check() error {
	if l.limit < 0 {
		return fmt.Errorf("--limit: is %d: want at least 0", l.limit)
	}
	return nil
}

// run lists the tasks, and says on errs when there are none or more: out may be
// read by a program.
func (l taskList) run(ctx context.Context, q taskLister, out, errs io.Writer) error {
	size := taskBatch
	if l.limit > 0 {
		size = min(taskBatch, l.limit+1)
	}
	printer := newTaskPrinter(out, l.output, false)
	listed, last, more := 0, uint64(0), false
	for r, err := range l.selection.records(ctx, q, l.after, size) {
		if err != nil {
			return err
		}
		if more = l.limit > 0 && listed == l.limit; more {
			break
		}
		if err := printer.print(r); err != nil {
			return err
		}
		listed++
		last = r.ID
	}
	if err := printer.end(); err != nil {
		return err
	}
	switch {
	case more:
		fmt.Fprintf(errs, "there are more: go on with --after %d, or list all with --limit 0\n", last)
	case listed == 0:
		fmt.Fprintln(errs, "no such tasks")
	}
	return nil
}
