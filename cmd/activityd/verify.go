package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/plural"
	"github.com/activityd/activityd/internal/queue"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/sweep"
)

// verifyOptions are the flags of verify alone.
type verifyOptions struct {
	repair  bool
	answers float64
	maxLag  time.Duration
	output  string
}

func newVerify() *cobra.Command {
	c, o, v := &config{}, &longOptions{}, &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify " + rangeUse,
		Short: "Compare sets with MySQL, and say what is wrong",
		Long: "Compare the sets of all members, or of some, with MySQL, and say what is wrong: a contact that\n" +
			"is missing, a score that is too low, a set that is lost, and so on. With --all, or without a\n" +
			"range, sets of whoever is no member any more are looked for, too.\n\n" +
			"What is found is an error; or lag, when a task is pending that will see to it; or waste, which\n" +
			"does no harm but costs a place or memory. Each is looked at three times before it is called\n" +
			"an error or waste, so that changes which are under way raise no alarm. With --repair a refill is\n" +
			"enqueued for each set with an error or waste; workers do it.\n\n" +
			"It watches how fast MySQL and Redis answer, and goes slower where they do. While one of them\n" +
			"is away it waits. A signal finishes the batches under way; what is printed then says how to go\n" +
			"on, and with --resume the same command does. If Redis loses the sets meanwhile, it stops.\n\n" +
			"Exit codes:\n" +
			"  0  nothing is wrong (waste is not, nor is lag younger than --max-lag)\n" +
			"  2  errors were found, whether a repair was enqueued or not, or lag is older than --max-lag\n" +
			"  1  it could not be verified to the end" +
			outputHelp + " The last line is the summary.",
		Example: "  activityd verify 4711\n" +
			"  activityd verify --rate 500 --resume verify.json\n" +
			"  activityd verify 1-1000000 --repair --answers 0.01 -o json",
		Args: atMost(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, o.all)
			if err := errors.Join(wrong, o.check(cmd.Flags()), v.check(), c.check(cmd.Flags())); err != nil {
				return err
			}
			l := &longRun{options: o, within: within, work: kept{Command: "verify", Members: rangeText(within), Options: v.text()}}
			return runVerify(cmd, c, l, v)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&v.repair, "repair", false, "enqueue a refill for each set that is wrong")
	cmd.Flags().Float64Var(&v.answers, "answers", 0, "`share` of the members whose answer is compared, too, 0 to 1: each costs a walk; answers that the index has no part in are left out, and counted")
	cmd.Flags().DurationVar(&v.maxLag, "max-lag", audit.DefaultLagLimit, "how long ago a pending task that explains a lag may have been enqueued")
	asDeeds(cmd.Flags(), "repair", "answers")
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

// text names what decides about the work.
func (v *verifyOptions) text() (text string) {
	if v.repair {
		text = "--repair"
	}
	if v.answers > 0 {
		text += fmt.Sprintf(" --answers %g", v.answers)
	}
	return text
}

// verification compares sets, and keeps the findings.
type verification struct {
	*longRun

	options *verifyOptions
	auditor *audit.Auditor
	printer *findingPrinter
	leftOut firstMembers // whose answers were not compared
}

func runVerify(cmd *cobra.Command, c *config, l *longRun, o *verifyOptions) error {
	l.changes = o.repair
	done, err := openLong(cmd, c, l)
	if err != nil {
		return err
	}
	defer done()
	notifier, rung, err := openNotifier(cmd.Context(), c, l.teller)
	if err != nil {
		return err
	}
	defer rung()
	v := &verification{longRun: l, options: o, printer: newFindingPrinter(cmd.OutOrStdout(), o.output)}
	v.auditor = audit.New(audit.Options{
		Sets: l.index, Truth: l.store,
		Tasks:      queue.NewMySQLQueue(l.db, queue.Options{Notifier: notifier, Owner: processName()}),
		Reader:     recent.NewReader(l.index, l.store, noHints{}, c.readerOptions(l.index.Settings())),
		ActiveOnly: c.materialize == materializeActive,
		LagLimit:   o.maxLag,
	})
	l.visit = v.visit
	var last lastStep
	if l.within == sweep.All {
		last = v.orphans
	}
	r, err := l.run(cmd, last)
	if err != nil && r.Counts == nil { // it did not begin
		return err
	}
	if printing := v.printer.summary(r, v.leftOut.of(r.Counts[countLeftOut]), err == nil); err != nil || printing != nil {
		return errors.Join(err, printing)
	}
	return v.conclude(r.Counts)
}

// conclude returns the error that ends a verification: that some is wrong, or late
// for too long, or that some could not be judged.
func (v *verification) conclude(n sweep.Counts) error {
	undone := v.failed(n)
	if n[countUnsettled] > 0 {
		undone = errors.Join(undone, errors.New(plural.Of(n[countUnsettled], "set or answer", "sets or answers")+" changed too often to be judged: verify again"))
	}
	var wrong error
	if n[countErroneous] > 0 {
		then := "--repair enqueues refills"
		if v.options.repair {
			then = "refills are enqueued: verify again when the workers have done them"
		}
		wrong = fmt.Errorf("%s wrong; %s", plural.Of(n[countErroneous], "set or answer is", "sets or answers are"), then)
	}
	if n[countLasting] > 0 {
		wrong = errors.Join(wrong, fmt.Errorf("%s of lag for longer than --max-lag %v: tasks are pending and not done; do workers run, and does Redis take writes? /readyz says so",
			plural.Of(n[countLasting], "finding", "findings"), v.options.maxLag))
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

// visit compares the sets of users, and some of the answers.
func (v *verification) visit(ctx context.Context, users []member.ID) (sweep.Counts, []member.ID, error) {
	report, err := v.auditor.Check(ctx, users)
	if err != nil {
		return nil, users, err
	}
	counts := sweep.Counts{countChecked: int64(report.Checked)}
	answers, err := v.auditor.CheckAnswers(ctx, v.sample(users))
	if err != nil {
		return nil, users, err
	}
	counts[countAnswers], counts[countLeftOut] = int64(answers.Checked), int64(len(answers.Skipped))
	report.Add(answers)
	if err := v.tell(ctx, report, counts); err != nil {
		return nil, users, err
	}
	v.leftOut.add(answers.Skipped...)
	return counts, nil, nil
}

// sample chooses whose answers are compared.
func (v *verification) sample(users []member.ID) (chosen []member.ID) {
	for _, user := range users {
		if rand.Float64() < v.options.answers {
			chosen = append(chosen, user)
		}
	}
	return chosen
}

// tell counts, repairs and prints what was found.
func (v *verification) tell(ctx context.Context, r audit.Report, counts sweep.Counts) error {
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
