package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/tasks"
)

func newBackfill() *cobra.Command {
	c, o := &config{}, &bulkOptions{}
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
			"With --materialize=active no missing set is built: they are built as members read.\n" +
			"--existing refills those that are there.\n\n" +
			"A member that fails every time, for a reason of its own, is given up in the end, and named. If\n" +
			"Redis loses the sets while it runs, the command ends: run it again.\n\n" +
			"Exit codes: 0 it is done; 1 it is not, or not for all members.",
		Example: "  activityd backfill\n" +
			"  activityd backfill 1000000-1999999 --resume backfill.json\n" +
			"  activityd backfill 4711 --existing",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, o.all)
			errs := []error{wrong, o.check(cmd.Flags()), c.check(cmd.Flags())}
			if c.materialize == materializeActive && !existing {
				errs = append(errs, fmt.Errorf("--materialize=%s: missing sets are built as members read, and not before: "+
					"want --existing, to refill those that are there", materializeActive))
			}
			if err := errors.Join(errs...); err != nil {
				return err
			}
			return runBackfill(cmd, c, o, within, existing)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&existing, "existing", false, "refill sets that are there, too")
	c.mysqlFlags(cmd.Flags())
	c.redisFlags(cmd.Flags())
	c.indexFlags(cmd.Flags())
	return cmd
}

func runBackfill(cmd *cobra.Command, c *config, o *bulkOptions, within bulk.Range, existing bool) error {
	work := bulk.Work{Command: "backfill"}
	if existing {
		work.Options = "--existing"
	}
	b, err := openBulk(cmd, c, o, work, within, true, true)
	if err != nil {
		return err
	}
	defer b.close()
	builder := &bulk.Builder{
		Index: b.index, Refiller: &tasks.RefillHandler{Index: b.index, Store: b.store},
		Existing: existing, ActiveOnly: c.materialize == materializeActive,
	}
	b.job.Visit = builder.Build
	r, err := b.run(cmd.Context())
	switch {
	case err != nil && r.Counts == nil: // nothing was begun
		return err
	case err != nil:
		return fmt.Errorf("%w\n%s", err, backfillSummary(r))
	}
	if _, err = fmt.Fprintln(cmd.OutOrStdout(), backfillSummary(r)); err != nil {
		return err
	}
	return b.errGivenUp(r.Counts)
}

// backfillSummary says what was done, in one line.
func backfillSummary(r bulk.Result) string {
	n := r.Counts
	text := fmt.Sprintf("%d members seen: %d sets built, %d skipped because they were there, %d with nobody to put in",
		n[bulk.Seen], n[bulk.Built], n[bulk.Skipped], n[bulk.Empty])
	if n[bulk.Absent] > 0 {
		text += fmt.Sprintf(", %d left without a set", n[bulk.Absent])
	}
	if n[bulk.Failed] > 0 {
		text += fmt.Sprintf(", %d failed", n[bulk.Failed])
	}
	return text + "; " + rate(r, n[bulk.Seen])
}
