package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/mysql"
	"github.com/activityd/activityd/internal/retry"
	"github.com/activityd/activityd/queue"
)

// taskWatch is what the flags of stats say, and the look before.
type taskWatch struct {
	output string
	over   time.Duration // between the two looks that changes need; 0: none
	every  time.Duration // 0: once
	before *queue.Stats
	looked time.Time
}

// looker is what stats needs of a queue.
type looker interface {
	Stats(ctx context.Context) (queue.Stats, error)
}

// minWatch keeps a watch from being a load.
const (
	minWatch = 100 * time.Millisecond
	maxOver  = 30 * time.Second
)

func newTasksStats() *cobra.Command {
	c, w := &config{}, taskWatch{}
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Say how full the queues are, and how fast that changes",
		Long: "Say how full the queues are: tasks by queue, type and state, and the age of the oldest waiting\n" +
			"one; how fast what waits changes; and when none will wait if that goes on, or that it grows. Of\n" +
			"each queue and state only the first 100000 tasks are counted, so that it costs little whatever\n" +
			"waits; larger numbers have a \"≥\". Of queues that are neither standard nor paused it counts the\n" +
			"first 32. The changes are from two looks at the tables; with --watch, each look is compared with\n" +
			"the one before." + outputHelp,
		Example: "  activityd tasks stats\n  activityd tasks stats --over 10s\n  activityd tasks stats --watch 2s",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case w.every != 0 && (w.every < minWatch || w.every > maxOver):
				return fmt.Errorf("--watch: is %v: want %v to %v, or 0", w.every, minWatch, maxOver)
			case w.over != 0 && (w.over < minWatch || w.over > maxOver):
				return fmt.Errorf("--over: is %v: want %v to %v, or 0", w.over, minWatch, maxOver)
			}
			return withTasks(cmd, c, func(ctx context.Context, q *queue.Queue) error {
				return w.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&w.over, "over", 2*time.Second, "measure the changes over this time; 0: look once, without changes")
	f.DurationVar(&w.every, "watch", 0, "look again after this time, until interrupted; 0: do not")
	outputFlag(f, &w.output)
	c.mysqlFlags(f)
	return cmd
}

// run prints the statistics, once or until ctx ends. A database that goes away
// during a watch does not end it.
func (w *taskWatch) run(ctx context.Context, q looker, out, errs io.Writer) error {
	if w.over > 0 {
		first, err := q.Stats(ctx)
		if err != nil {
			return err
		}
		if w.before, w.looked = &first, time.Now(); retry.Sleep(ctx, w.over) != nil {
			return errSignalled
		}
	}
	if err := w.look(ctx, q, out); err != nil || w.every == 0 {
		return err
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		err := w.look(ctx, q, out)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, mysql.ErrUnavailable):
			fmt.Fprintf(errs, "activityd: %v\n", err)
		case err != nil:
			return err
		}
	}
}

// look prints the statistics of now.
func (w *taskWatch) look(ctx context.Context, q looker, out io.Writer) error {
	is, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	stats := inspect.NewQueues(is, w.before, now.Sub(w.looked), now)
	w.before, w.looked = &is, now
	if w.output == outputJSON {
		return newLineEncoder(out).Encode(stats)
	}
	if w.every > 0 {
		fmt.Fprintf(out, "\n%s, every %v\n", stats.At, w.every)
	}
	return printQueues(out, stats)
}

func printQueues(w io.Writer, stats inspect.Queues) error {
	if len(stats.Queues) == 0 {
		_, err := fmt.Fprintln(w, "there are no tasks, and no queue is paused")
		return err
	}
	if err := printTable(w, stats.Table()); err != nil || !stats.More {
		return err
	}
	_, err := fmt.Fprintln(w, "there are tasks in more queues, which are not counted: activityd tasks list shows them")
	return err
}

// printTable writes a table with its columns aligned.
func printTable(w io.Writer, t inspect.Table) error {
	table := newTable(w)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		_, _ = fmt.Fprintln(table, strings.Join(row, "\t")) // Flush returns its error
	}
	return table.Flush()
}
