package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
)

// verifyOptions are the flags of verify alone.
type verifyOptions struct {
	repair  bool
	answers float64
	maxLag  time.Duration
	output  string
}

func newVerify() *cobra.Command {
	c, o, v := &config{}, &bulkOptions{}, &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify " + rangeUse,
		Short: "Compare sets with MySQL, and say what is wrong",
		Long: "Compare the sets of all members, or of some, with MySQL, and say what is wrong: a contact that\n" +
			"is missing, a score that is too low, a set that is lost, and so on. With --all, or without a\n" +
			"range, sets of deleted members are looked for, too.\n\n" +
			"A finding is an error; or lag, when a task is pending that will see to it; or waste, which\n" +
			"does no harm but costs a place or memory. Each is looked at three times before it is called\n" +
			"an error or waste, so that changes which are under way raise no alarm. With --repair a refill is\n" +
			"enqueued for each set with an error or waste; workers do it.\n\n" +
			"It watches how fast MySQL and Redis answer, and goes slower where they do. While one of them\n" +
			"is away it waits. A signal finishes the batches under way; what is printed then says how to go\n" +
			"on, and with --resume the same command does. If Redis loses the sets while it runs, it ends.\n\n" +
			"Exit codes:\n" +
			"  0  nothing is wrong (waste is not, nor is lag younger than --max-lag)\n" +
			"  2  errors were found, whether a repair was enqueued or not, or lag is older than --max-lag\n" +
			"  1  it could not be verified to the end" +
			outputHelp + " The last line is the summary.",
		Example: "  activityd verify 4711\n" +
			"  activityd verify --rate 500 --resume verify.json\n" +
			"  activityd verify 1-1000000 --repair --answers 0.01 -o json",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, o.all)
			if err := errors.Join(wrong, o.check(cmd.Flags()), v.check(), c.check(cmd.Flags())); err != nil {
				return err
			}
			return runVerify(cmd, c, o, within, v)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&v.repair, "repair", false, "enqueue a refill for each set that is wrong")
	cmd.Flags().Float64Var(&v.answers, "answers", 0, "`share` of the members whose answer is compared, too, 0 to 1: each costs a walk")
	cmd.Flags().DurationVar(&v.maxLag, "max-lag", audit.DefaultLagLimit, "how long ago a pending task that explains a lag may have been enqueued")
	outputFlag(cmd.Flags(), &v.output)
	c.mysqlFlags(cmd.Flags())
	c.redisFlags(cmd.Flags())
	c.indexFlags(cmd.Flags())
	return cmd
}

func (v *verifyOptions) check() error {
	if !(v.answers >= 0 && v.answers <= 1) {
		return fmt.Errorf("--answers: is %g: want 0 to 1", v.answers)
	}
	if v.maxLag <= 0 {
		return fmt.Errorf("--max-lag (%s): is %v: want more than 0", environmentName("max-lag"), v.maxLag)
	}
	return nil
}

// text names the options that decide what is done.
func (v *verifyOptions) text() (text string) {
	if v.repair {
		text = "--repair"
	}
	if v.answers > 0 {
		text += fmt.Sprintf(" --answers %g", v.answers)
	}
	return text
}

// verification compares sets, and prints the findings.
type verification struct {
	*bulkCommand

	options *verifyOptions
	auditor *audit.Auditor
	printer *findingPrinter
	leftOut memberList // whose answers were not compared
}

func runVerify(cmd *cobra.Command, c *config, o *bulkOptions, within bulk.Range, options *verifyOptions) error {
	b, err := openBulk(cmd, c, o, bulk.Work{Command: "verify", Options: options.text()}, within, options.repair, false)
	if err != nil {
		return err
	}
	defer b.close()
	notifier, rung, err := openNotifier(cmd.Context(), c, b.reporter)
	if err != nil {
		return err
	}
	defer rung()
	v := &verification{
		bulkCommand: b, options: options, printer: newFindingPrinter(cmd.OutOrStdout(), options.output),
		auditor: audit.New(audit.Options{
			Sets: b.index, Truth: b.store,
			Tasks:      queue.NewMySQLQueue(b.db, queue.Options{Notifier: notifier, Owner: processName()}),
			Reader:     recent.NewReader(b.index, b.store, noHints{}, c.readerOptions(b.index.Settings())),
			ActiveOnly: c.materialize == materializeActive,
			LagLimit:   options.maxLag,
		}),
	}
	b.job.Visit = v.visit
	if within == bulk.All {
		b.job.Orphans, b.job.VisitOrphans = v.findOrphans, v.visitOrphans
	}
	r, err := b.run(cmd.Context())
	if err != nil && r.Counts == nil { // nothing was begun
		return err
	}
	if printing := v.printer.summary(r, v.leftOut.first(r.Counts[countLeftOut]), err == nil); err != nil || printing != nil {
		return errors.Join(err, printing)
	}
	return v.conclude(r.Counts)
}

// conclude returns the error that ends a verification: that something is wrong, or
// late for too long, or could not be judged.
func (v *verification) conclude(n bulk.Counts) error {
	undone := v.errGivenUp(n)
	if n[countUnsettled] > 0 {
		undone = errors.Join(undone, fmt.Errorf("%d sets or answers changed too often to be judged: verify again", n[countUnsettled]))
	}
	var wrong error
	if n[countErroneous] > 0 {
		then := "--repair enqueues refills"
		if v.options.repair {
			then = "refills are enqueued: verify again when the workers have done them"
		}
		wrong = fmt.Errorf("%d sets or answers are wrong; %s", n[countErroneous], then)
	}
	if n[countLasting] > 0 {
		wrong = errors.Join(wrong, fmt.Errorf("%d findings of lag for longer than --max-lag %v: tasks are pending and not done; "+
			"do workers run, and does Redis take writes? /readyz says so", n[countLasting], v.options.maxLag))
	}
	if wrong == nil {
		return undone
	}
	return &exitError{exitWrong, errors.Join(wrong, undone)}
}

// What is counted beside the findings, each of which is counted by its class and
// cause.
const (
	countChecked   = "checked"
	countErroneous = "erroneous"
	countUnsettled = "unsettled"
	countAnswers   = "answers"
	countLeftOut   = "left out" // answers
	countRepairs   = "repairs"
	countLasting   = "lasting" // lags
)

// visit compares the sets of members, and some of the answers. It is a [bulk.Visit].
func (v *verification) visit(ctx context.Context, members []member.ID) (bulk.Counts, []member.ID, error) {
	report, err := v.auditor.Check(ctx, members)
	if err != nil {
		return nil, nil, err
	}
	sample := slices.DeleteFunc(slices.Clone(members), func(member.ID) bool { return rand.Float64() >= v.options.answers })
	answers, err := v.auditor.CheckAnswers(ctx, sample)
	if err != nil {
		return nil, nil, err
	}
	counts := bulk.Counts{
		countChecked: int64(report.Checked), countAnswers: int64(answers.Checked), countLeftOut: int64(len(answers.Skipped)),
	}
	report.Add(answers)
	if err := v.report(ctx, report, counts); err != nil {
		return nil, nil, err
	}
	v.leftOut.add(answers.Skipped...)
	return counts, nil, nil
}

// visitOrphans compares the sets of ids that are no members. It is a [bulk.Visit].
func (v *verification) visitOrphans(ctx context.Context, ids []member.ID) (bulk.Counts, []member.ID, error) {
	report, err := v.auditor.Check(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	counts := bulk.Counts{countChecked: int64(report.Checked)}
	return counts, nil, v.report(ctx, report, counts)
}

// findOrphans returns the owners of sets that are no members, which a walk over the
// members does not meet.
func (v *verification) findOrphans(ctx context.Context, pacer *bulk.Pacer) (orphans []member.ID, err error) {
	err = v.index.EachStored(ctx, func(ctx context.Context, owners []member.ID) error {
		for some := range slices.Chunk(owners, v.job.Batch()) {
			leave, err := pacer.Enter(ctx, len(some))
			if err != nil {
				return err
			}
			found, err := v.auditor.Orphans(ctx, some)
			leave()
			if err != nil {
				return err
			}
			orphans = append(orphans, found...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("look for sets of no member: %w", err)
	}
	slices.Sort(orphans)
	return slices.Compact(orphans), nil
}

// report counts, repairs and prints what was found.
func (v *verification) report(ctx context.Context, r audit.Report, counts bulk.Counts) error {
	counts[countErroneous] += int64(r.Erroneous)
	counts[countUnsettled] += int64(r.Unsettled)
	for _, f := range r.Findings {
		counts[string(f.Class)+"/"+string(f.Cause)]++
		if f.Lasting {
			counts[countLasting]++
		}
	}
	if v.options.repair {
		n, err := v.auditor.Repair(ctx, r.Users(audit.Error, audit.Waste))
		if err != nil {
			return err
		}
		counts[countRepairs] += int64(n)
	}
	if len(r.Findings) == 0 {
		return nil
	}
	return v.aside(func() error { return v.printer.print(r.Findings) })
}
