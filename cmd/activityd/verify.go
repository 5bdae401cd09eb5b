package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/audit"
	"github.com/activityd/activityd/internal/bulk"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
)

// verifyOptions are the flags of verify alone.
type verifyOptions struct {
	repair  bool
	answers float64
	maxLag  time.Duration
	output  string

	against string
	sample  int
	limit   int
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
			"enqueued for each set with an error or waste; workers do it. The second of two with --repair\n" +
			"over the same range is refused.\n\n" +
			"It watches how fast MySQL and Redis answer, and goes slower where they do. While one of them\n" +
			"is away it waits. A signal finishes the batches under way; what is printed then says how to go\n" +
			"on, and with --resume the same command does. If Redis loses the sets while it runs, it ends.\n\n" +
			"With --against nothing of that is done, and Redis is not asked: the statement by which your site finds\n" +
			"what a member is shown, one SELECT with :viewer, runs beside activityd's own walk through MySQL, for\n" +
			"--sample members, both in one read-only transaction. The first column is the id of a photo, in the\n" +
			"order in which they are shown. It prints how many answers differ in which way, and the smallest\n" +
			"example of each. --mysql-dsn may have a user with no right but SELECT.\n\n" +
			"Exit codes:\n" +
			"  0  nothing is wrong (waste is not, nor is lag younger than --max-lag)\n" +
			"  2  errors were found, whether a repair was enqueued or not, or lag is older than --max-lag, or answers differ\n" +
			"  1  it could not be verified to the end" +
			outputHelp + " The last line is the summary.",
		Example: "  activityd verify 4711\n" +
			"  activityd verify --rate 500 --resume verify.json\n" +
			"  activityd verify 1-1000000 --repair --answers 0.01 -o json\n" +
			"  activityd verify --against \"$(cat homepage.sql)\" --sample 5000",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			within, wrong := parseRange(args, o.all)
			if err := errors.Join(wrong, o.check(cmd.Flags()), v.check(), c.check(cmd.Flags())); err != nil {
				return err
			}
			if v.against != "" {
				return runAgainst(cmd, c, o, v, within)
			}
			return runVerify(cmd, c, o, within, v)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&v.repair, "repair", false, "enqueue a refill for each set that is wrong")
	cmd.Flags().Float64Var(&v.answers, "answers", 0, "`share` of the members whose answer is compared, too, 0 to 1: each costs a walk")
	cmd.Flags().DurationVar(&v.maxLag, "max-lag", audit.DefaultLagLimit, "how long ago a pending task that explains a lag may have been enqueued")
	cmd.Flags().StringVar(&v.against, "against", "", "your own `SELECT` with :viewer, whose answers are compared instead of the sets")
	cmd.Flags().IntVar(&v.sample, "sample", 1000, "members at most to compare with --against, chosen by chance")
	cmd.Flags().IntVar(&v.limit, "limit", defaultExplained, "photos that your page shows at most: the value of :limit with --against")
	for _, other := range []string{"repair", "answers", "max-lag", "resume", "after"} {
		cmd.MarkFlagsMutuallyExclusive("against", other)
	}
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
		return fmt.Errorf("--max-lag: is %v: want more than 0", v.maxLag)
	}
	if v.sample < 1 || v.limit < 1 || v.limit > api.MaxPhotos {
		return fmt.Errorf("--sample: is %d: want 1 or more; --limit: is %d: want 1 to %d", v.sample, v.limit, api.MaxPhotos)
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
	defer runWake(cmd.Context(), b.wake, b.reporter)()
	v := &verification{
		bulkCommand: b, options: options, printer: newFindingPrinter(cmd.OutOrStdout(), options.output),
		auditor: audit.New(audit.Options{
			Sets: b.index, Truth: b.store, Tasks: b.queue,
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
	countCovered   = "private covered"
	countBeyond    = "private beyond"
)

// visit compares the sets of members, and some of the answers. It is a [bulk.Visit].
func (v *verification) visit(ctx context.Context, members []member.ID) (bulk.Counts, []member.ID, error) {
	report, err := v.auditor.Check(ctx, members)
	if err != nil {
		return nil, nil, err
	}
	left := report.Unreachable // its members are waited for
	sample := slices.DeleteFunc(slices.Clone(members), func(id member.ID) bool {
		return rand.Float64() >= v.options.answers || slices.Contains(left, id)
	})
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
	return counts, left, report.Away
}

// visitOrphans compares the sets of ids that are no members. It is a [bulk.Visit].
func (v *verification) visitOrphans(ctx context.Context, ids []member.ID) (bulk.Counts, []member.ID, error) {
	report, err := v.auditor.Check(ctx, ids)
	if err != nil {
		return nil, nil, err
	}
	counts := bulk.Counts{countChecked: int64(report.Checked)}
	if err := v.report(ctx, report, counts); err != nil {
		return nil, nil, err
	}
	return counts, report.Unreachable, report.Away
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
	counts[countCovered] += int64(r.PrivateCovered)
	counts[countBeyond] += int64(r.PrivateBeyond)
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
	return v.printer.print(r.Findings)
}

// maxFindings is how many findings of a class are printed one by one. JSON has all.
const maxFindings = 100

// findingPrinter writes findings as they come. It is safe for concurrent use.
type findingPrinter struct {
	mu       sync.Mutex
	w        io.Writer
	json     *json.Encoder       // nil: as text
	found    map[audit.Class]int // text: how many there were of each class
	lagSince time.Time           // the earliest; zero: none, or not known
}

func newFindingPrinter(w io.Writer, output string) *findingPrinter {
	p := &findingPrinter{w: w, found: map[audit.Class]int{}}
	if output == outputJSON {
		p.json = newLineEncoder(w)
	}
	return p
}

// findingJSON is a finding as a line of JSON.
type findingJSON struct {
	User    member.ID   `json:"user"`
	Contact member.ID   `json:"contact,omitzero"`
	Class   audit.Class `json:"class"`
	Cause   audit.Cause `json:"cause"`
	Stored  uint64      `json:"stored"`
	Actual  uint64      `json:"actual"`
	Since   time.Time   `json:"since,omitzero"`
	Lasting bool        `json:"lasting,omitzero"`
	Detail  string      `json:"detail,omitzero"`
}

// print writes findings, of each class the first, and as text no lag: it will pass, and
// is in the table.
func (p *findingPrinter) print(findings []audit.Finding) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range findings {
		if !f.Since.IsZero() && (p.lagSince.IsZero() || f.Since.Before(p.lagSince)) {
			p.lagSince = f.Since.UTC()
		}
		var err error
		switch {
		case p.json != nil:
			err = p.json.Encode(findingJSON{f.User, f.Contact, f.Class, f.Cause, f.Stored, f.Actual, f.Since.UTC(), f.Lasting, f.Detail})
		case f.Class != audit.Lag:
			p.found[f.Class]++
			if p.found[f.Class] <= maxFindings {
				_, err = fmt.Fprintln(p.w, inspect.OneLine(f.String()))
			}
		}
		if err != nil {
			return fmt.Errorf("print the findings: %w", err)
		}
	}
	return nil
}

// summary ends the output: how many there were of what, whether it came to the end
// or not. LeftOut names members whose answers were not compared.
func (p *findingPrinter) summary(r bulk.Result, leftOut string, complete bool) error {
	n := r.Counts
	if p.json != nil {
		summary := map[string]any{
			"complete": complete, "checked": n[countChecked], "answers": n[countAnswers], "answers_left_out": n[countLeftOut], "erroneous": n[countErroneous],
			"unsettled": n[countUnsettled], "repairs": n[countRepairs], "lasting": n[countLasting],
			"failed": n[bulk.Failed], "findings": findingCounts(n), "seconds": r.Took.Seconds(),
			"private_uploads": audit.MeaningOf(n[countCovered], n[countBeyond]), "private_newest": n[countCovered] + n[countBeyond], "private_newest_beyond": n[countBeyond],
		}
		if !p.lagSince.IsZero() {
			summary["lag_since"] = p.lagSince
		}
		return p.json.Encode(map[string]any{"summary": summary})
	}
	var text strings.Builder
	for _, class := range audit.Classes() {
		if more := p.found[class] - maxFindings; more > 0 {
			fmt.Fprintf(&text, "%s: and %d more, all of them with --output=json\n", class, more)
		}
	}
	if n[countLeftOut] > 0 {
		fmt.Fprintf(&text, "%d answers were not compared, as the index had no part in them: those of members %s\n", n[countLeftOut], leftOut)
	}
	if counts := findingCounts(n); len(counts) > 0 {
		table := newTable(&text)
		_, _ = fmt.Fprintln(table, "FOUND\tCLASS\tCAUSE") // into memory
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			class, cause, _ := strings.Cut(name, "/")
			_, _ = fmt.Fprintf(table, "%d\t%s\t%s\n", counts[name], class, cause)
		}
		_ = table.Flush()
	}
	if sum := n[countCovered] + n[countBeyond]; sum > 0 {
		meaning := "count, or these photos were made private later"
		if n[countBeyond] > 0 {
			meaning = "do not count for these"
		}
		fmt.Fprintf(&text, "of %d members whose newest photo is private, last_upload is earlier for %d: private uploads %s\n", sum, n[countBeyond], meaning)
	}
	text.WriteString("checked")
	if !complete {
		text.WriteString(" so far")
	}
	fmt.Fprintf(&text, ": %d sets, %d answers; %d wrong", n[countChecked], n[countAnswers], n[countErroneous])
	if n[countUnsettled] > 0 {
		fmt.Fprintf(&text, ", %d changed too often to be judged", n[countUnsettled])
	}
	if !p.lagSince.IsZero() {
		fmt.Fprintf(&text, ", lag since %s UTC (%s)", p.lagSince.Format(time.DateTime), inspect.Duration(time.Since(p.lagSince)))
	}
	if n[bulk.Failed] > 0 {
		fmt.Fprintf(&text, ", %d failed", n[bulk.Failed])
	}
	if n[countRepairs] > 0 {
		fmt.Fprintf(&text, ", %d refills enqueued", n[countRepairs])
	}
	_, err := fmt.Fprintf(p.w, "%s; %s\n", text.String(), rate(r, n[countChecked]))
	return err
}

// findingCounts are the counts of findings, by class and cause.
func findingCounts(n bulk.Counts) map[string]int64 {
	found := make(map[string]int64)
	for name, count := range n {
		if strings.Contains(name, "/") {
			found[name] = count
		}
	}
	return found
}
