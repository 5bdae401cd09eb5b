package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/mysql"
)

// taskWatch is what the flags of stats say.
type taskWatch struct {
	output string
	every  time.Duration // 0: once
}

// leastWatch keeps a watch from being a load.
const leastWatch = 100 * time.Millisecond

func newTasksStats() *cobra.Command {
	c, w := &config{}, taskWatch{}
	cmd := &cobra.Command{
		Use:   "stats",
		Short: "Say how full the queues are",
		Long: "Say how full the queues are: tasks by queue, type and state, and the age of the oldest waiting\n" +
			"one. Of each queue and state only the first 100000 tasks are counted, so that it costs little\n" +
			"whatever waits; where there are more, the numbers have a \"≥\". Types without a handler are\n" +
			"counted as \"other\"; of queues that are neither standard nor paused, the first 32." + outputHelp,
		Example: "  activityd tasks stats\n  activityd tasks stats --watch 2s",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return onTasks(cmd, c, w.check(), func(ctx context.Context, q taskAdmin) error {
				return w.run(ctx, q, cmd.OutOrStdout(), cmd.ErrOrStderr())
			})
		},
	}
	f := cmd.Flags()
	f.DurationVar(&w.every, "watch", 0, "look again after this time, until interrupted; 0: look once")
	outputFlag(f, &w.output)
	c.mysqlFlags(f)
	return cmd
}

func (w taskWatch) check() error {
	if w.every != 0 && w.every < leastWatch {
		return fmt.Errorf("--watch: is %v: want at least %v, or 0", w.every, leastWatch)
	}
	return nil
}

// run prints the statistics, once or until ctx ends. A database that goes away
// while one watches does not end the watch.
func (w taskWatch) run(ctx context.Context, q taskStater, out, errs io.Writer) error {
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

// look prints the statistics of now; on a terminal that is watched, in the place
// of those before.
func (w taskWatch) look(ctx context.Context, q taskStater, out io.Writer) error {
	s, err := q.Stats(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	if w.output == outputJSON {
		return newLineEncoder(out).Encode(newStatsJSON(s, now))
	}
	if w.every > 0 {
		before := "\n"
		if terminal(out) != nil {
			before = "\x1b[H\x1b[2J" // home, and clear
		}
		fmt.Fprint(unescaped(out), before)
		fmt.Fprintf(out, "%s, every %v\n", now.UTC().Format("2006-01-02 15:04:05 UTC"), w.every)
	}
	return printStats(out, s)
}
