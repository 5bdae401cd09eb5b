package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/backfill"
	"github.com/activityd/activityd/internal/sweep"
	"github.com/activityd/activityd/internal/tasks"
)

func newBackfill() *cobra.Command {
	c, o := &config{}, &longOptions{}
	var existing bool
	cmd := &cobra.Command{
		Use:   "backfill " + rangeUse,
		Short: "Build the sets of all members, or of some",
		Long: "Build the sets of all members, or of some: for a Redis that is new or was emptied. Sets that\n" +
			"are there are left alone, unless --existing says otherwise. It needs no workers, and may run\n" +
			"beside the live traffic and beside itself: it is guarded as every task is.\n\n" +
			"It watches how fast MySQL and Redis answer, and goes slower where they do. While one of them\n" +
			"is away it waits. A signal finishes the batches under way; what is printed then says how to go\n" +
			"on, and with --resume the same command does. It may also be killed.\n\n" +
			"With --materialize=active nobody's missing set is built: they come as their members do.\n" +
			"--existing refills those that are there.\n\n" +
			"Whoever fails every time, for a reason of his own, is given up in the end, and named. If Redis\n" +
			"loses the sets meanwhile, it stops: run it again.\n\n" +
			"Exit codes: 0 it is done; 1 it is not, or not for everybody.",
		Example: "  activityd backfill\n" +
			"  activityd backfill 1000000-1999999 --resume backfill.json\n" +
			"  activityd backfill 4711 --existing",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, o.all)
			if err := errors.Join(wrong, o.check(cmd.Flags()), c.check(cmd.Flags()), checkActive(c, existing)); err != nil {
				return err
			}
			l := &longRun{options: o, within: within, work: kept{Command: "backfill", Members: rangeText(within)}}
			if existing {
				l.work.Options = "--existing"
			}
			return runBackfill(cmd, c, l, existing)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&existing, "existing", false, "refill sets that are there, too")
	c.mysqlFlags(cmd.Flags())
	c.redisFlags(cmd.Flags())
	c.indexFlags(cmd.Flags())
	return cmd
}

// errActive: there is nothing to do, and doing something else would surprise.
var errActive = errors.New("missing sets are built as their members come, and not before: want --existing, " +
	"to refill those that are there")

func checkActive(c *config, existing bool) error {
	if c.materialize == materializeActive && !existing {
		return fmt.Errorf("--materialize=%s: %w", materializeActive, errActive)
	}
	return nil
}

func runBackfill(cmd *cobra.Command, c *config, l *longRun, existing bool) error {
	l.changes, l.prolongs = true, true
	done, err := openLong(cmd, c, l)
	if err != nil {
		return err
	}
	defer done()
	b := &backfill.Builder{
		Index: l.index, Refiller: &tasks.RefillHandler{Index: l.index, Store: l.store},
		Existing: existing, ActiveOnly: c.materialize == materializeActive,
	}
	l.visit = b.Build
	r, err := l.run(cmd, nil)
	switch {
	case err != nil && r.Counts == nil: // it did not begin
		return err
	case err != nil:
		return fmt.Errorf("%w\n%s", err, backfillSummary(r))
	}
	if _, err = fmt.Fprintln(cmd.OutOrStdout(), backfillSummary(r)); err != nil {
		return err
	}
	return l.failed(r.Counts)
}

// backfillSummary says what was done, in one line.
func backfillSummary(r result) string {
	n := r.Counts
	text := fmt.Sprintf("%d members seen: %d sets built, %d skipped because they were there, %d with nobody to put in", n[backfill.Seen],
		n[backfill.Built], n[backfill.Skipped], n[backfill.Empty])
	if n[backfill.Absent] > 0 {
		text += fmt.Sprintf(", %d left without a set", n[backfill.Absent])
	}
	if n[sweep.Failed] > 0 {
		text += fmt.Sprintf(", %d failed", n[sweep.Failed])
	}
	return text + "; " + r.rate(n[backfill.Seen])
}
