package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	limits "golang.org/x/time/rate"

	"github.com/activityd/activityd/internal/api"
	"github.com/activityd/activityd/internal/check"
	"github.com/activityd/activityd/internal/inspect"
	"github.com/activityd/activityd/internal/member"
	"github.com/activityd/activityd/internal/recent"
	"github.com/activityd/activityd/internal/tasks"
)

// verifyOptions are the flags of verify.
type verifyOptions struct {
	after    uint64
	rate     int
	progress time.Duration
	repair   bool
	answers  float64
	output   string

	against string
	sample  int
	limit   int
}

func newVerify() *cobra.Command {
	c, v := &config{}, &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify " + rangeUse,
		Short: "Compare sets with MySQL, and say what is wrong",
		Long: "Compare the sets of all members, or of some, with MySQL, and say what is wrong: a contact that\n" +
			"is missing, a score that is too low, a set that is lost, and so on. Without a range, sets of deleted\n" +
			"members are looked for, too.\n\n" +
			"A finding is an error; or lag, when a task is pending that will see to it; or waste, which\n" +
			"does no harm but costs a place or memory. Each is looked at three times before it is called\n" +
			"an error or waste, so that changes which are under way raise no alarm. With --repair a refill is\n" +
			"enqueued for each set with an error or waste; workers do it.\n\n" +
			"A signal ends it, and so does a server that is away: what is printed says how to go on.\n\n" +
			"With --against nothing of that is done, and Redis is not asked: the statement by which your site finds\n" +
			"what a member is shown, one SELECT with :viewer, runs beside activityd's own walk through MySQL, for\n" +
			"--sample members, both in one read-only transaction. The first column is the id of a photo, in the\n" +
			"order in which they are shown. It prints how many answers differ in which way, and the smallest\n" +
			"example of each. --mysql-dsn may have a user with no right but SELECT.\n\n" +
			"Exit codes:\n" +
			"  0  nothing is wrong: waste is not, nor is lag\n" +
			"  2  errors were found, whether a repair was enqueued or not, or answers differ\n" +
			"  1  it could not be verified to the end" +
			outputHelp + " The last line is the summary.",
		Example: "  activityd verify 4711\n" +
			"  activityd verify --rate 500\n" +
			"  activityd verify 1-1000000 --repair --answers 0.01 -o json\n" +
			"  activityd verify --against \"$(cat homepage.sql)\" --sample 5000",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			members, wrong := parseRange(args)
			if err := errors.Join(wrong, v.check(), c.check(cmd.Flags())); err != nil {
				return err
			}
			if v.against != "" {
				return runAgainst(cmd, c, v, members)
			}
			return runVerify(cmd, c, members, v)
		},
	}
	f := cmd.Flags()
	f.Uint64Var(&v.after, "after", 0, "go on after this member")
	f.IntVar(&v.rate, "rate", 0, "max members a second; 0: as many as the servers can do")
	progressFlag(f, &v.progress)
	f.BoolVar(&v.repair, "repair", false, "enqueue a refill for each set that is wrong")
	f.Float64Var(&v.answers, "answers", 0, "`share` of the members whose answer is compared, too, 0 to 1: each costs a walk")
	f.StringVar(&v.against, "against", "", "your own `SELECT` with :viewer, whose answers are compared instead of the sets")
	f.IntVar(&v.sample, "sample", 1000, "members at most to compare with --against, chosen by chance")
	f.IntVar(&v.limit, "limit", defaultExplained, "photos that your page shows at most: the value of :limit with --against")
	for _, other := range []string{"repair", "answers", "after"} {
		cmd.MarkFlagsMutuallyExclusive("against", other)
	}
	outputFlag(f, &v.output)
	c.lookFlags(f)
	return cmd
}

func (v *verifyOptions) check() error {
	return errors.Join(within("answers", v.answers, 0, 1), within("rate", v.rate, 0, maxRate),
		within("sample", v.sample, 1, 1_000_000_000), within("limit", v.limit, 1, api.MaxPhotos))
}

// verification compares sets, and prints the findings.
type verification struct {
	backend
	*progress

	options *verifyOptions
	within  memberRange
	checker *check.Checker
	pace    *limits.Limiter
	batch   int // sets that are compared at once

	out     io.Writer
	json    *json.Encoder        // nil: text
	printed map[check.Weight]int // findings, as text
	sum     verified
	leftOut []member.ID // the first members whose answers were not compared
	undone  []member.ID // the first members that could not be compared
}

// verified is the summary of a verification.
type verified struct {
	Complete  bool           `json:"complete"`
	Checked   int            `json:"checked"`
	Answers   int            `json:"answers"`
	LeftOut   int            `json:"answers_left_out"`
	Erroneous int            `json:"erroneous"`
	Unsettled int            `json:"unsettled"`
	Repairs   int            `json:"repairs"`
	Failed    int            `json:"failed"`
	Findings  map[string]int `json:"findings"` // by "class/cause"
	Seconds   float64        `json:"seconds"`
}

const (
	maxNamed    = 10  // members that a message names
	maxFindings = 100 // findings of a class that are printed as text; JSON has all
)

func runVerify(cmd *cobra.Command, c *config, members memberRange, o *verifyOptions) (err error) {
	c.setLife = 0 // a look does not prolong the life of a set
	v := &verification{
		progress: newProgress(cmd.ErrOrStderr(), o.progress, "members"), options: o, within: members, batch: 256,
		out: cmd.OutOrStdout(), printed: map[check.Weight]int{}, sum: verified{Findings: map[string]int{}},
	}
	if o.rate > 0 {
		v.batch = min(v.batch, o.rate)
	}
	if o.output == outputJSON {
		v.json = newLineEncoder(v.out)
	}
	if v.backend, err = openBackend(c, newLogger(c, v)); err != nil {
		return err
	}
	defer func() { _ = v.closers.close() }() // each call's own error was checked
	ctx := cmd.Context()
	if err := v.checkServers(ctx); err != nil {
		return err
	}
	defer runWake(ctx, v.wake, v)()
	v.checker = check.New(check.Options{
		Sets: v.index, Truth: v.store, Tasks: v.queue, ActiveOnly: c.materialize == materializeActive,
		Reader: recent.NewReader(v.index, v.store, noHints{}, c.readerOptions(v.index.Settings())),
	})
	v.pace = limits.NewLimiter(cmp.Or(limits.Limit(o.rate), limits.Inf), v.batch)
	total, err := v.store.CountMembers(ctx, members.first, members.last)
	if err == nil && total == 0 {
		err = members.checkNone()
	}
	if err != nil {
		return err
	}
	start := time.Now()
	err = v.run(ctx, total)
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", errSignalled, err)
	}
	v.sum.Complete, v.sum.Seconds = err == nil, time.Since(start).Seconds()
	if printing := v.printSummary(); err != nil || printing != nil {
		return errors.Join(err, printing)
	}
	return v.conclude()
}

// run compares the members of the range, and then, if it is all, the rest of the sets.
func (v *verification) run(ctx context.Context, total int64) error {
	args, seen := tasks.RangeArgs{After: max(v.within.first-1, member.ID(v.options.after)), To: v.within.last}, int64(0)
	for more := true; more; {
		page, next, further, err := tasks.PageOf(ctx, v.store, args, v.batch)
		if err == nil {
			err = v.visit(ctx, page)
		}
		if err != nil && seen > 0 {
			err = fmt.Errorf("%w\nall members up to %s are done; go on with --after %s", err, args.After, args.After)
		}
		if err != nil {
			return err
		}
		args, more, seen = next, further, seen+int64(len(page))
		v.moved(seen, total, "")
	}
	if v.within != allMembers {
		return nil
	}
	return v.runStored(ctx)
}

// runStored compares the sets of no member.
func (v *verification) runStored(ctx context.Context) error {
	err := v.index.EachStored(ctx, func(ctx context.Context, owners []member.ID) error {
		for some := range slices.Chunk(owners, v.batch) {
			err := v.pace.WaitN(ctx, len(some))
			if err == nil {
				some, err = v.checker.Orphans(ctx, some)
			}
			if err == nil {
				err = v.check(ctx, v.checker.Check, &v.sum.Checked, some)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for sets of no member: %w", err)
	}
	return nil
}

// visit compares the sets of members, and some of the answers.
func (v *verification) visit(ctx context.Context, members []member.ID) error {
	if err := v.pace.WaitN(ctx, len(members)); err != nil {
		return err
	}
	if err := v.check(ctx, v.checker.Check, &v.sum.Checked, members); err != nil {
		return err
	}
	members = slices.DeleteFunc(slices.Clone(members), func(member.ID) bool { return rand.Float64() >= v.options.answers })
	return v.check(ctx, v.checker.CheckAnswers, &v.sum.Answers, members)
}

// check compares the sets or the answers of members, counts them, and repairs and prints the findings.
func (v *verification) check(
	ctx context.Context, compare func(context.Context, []member.ID) (check.Report, error), checked *int, members []member.ID,
) error {
	if len(members) == 0 {
		return nil
	}
	r, err := compare(ctx, members)
	if err != nil {
		return err
	}
	if v.options.repair {
		n, err := v.checker.Repair(ctx, r.Wrong())
		if v.sum.Repairs += n; err != nil {
			return err
		}
	}
	for id, err := range r.Failed {
		if len(r.Failed) == len(members) {
			return err // the node is away, if there is but one
		}
		v.say("member %s could not be compared: %v", id, err)
		v.undone = append(v.undone, id)
	}
	v.leftOut = append(v.leftOut, r.Skipped...)
	v.undone, v.leftOut = v.undone[:min(len(v.undone), maxNamed)], v.leftOut[:min(len(v.leftOut), maxNamed)]
	*checked += r.Checked
	v.sum.Failed += len(r.Failed)
	v.sum.LeftOut += len(r.Skipped)
	v.sum.Erroneous += r.Erroneous()
	v.sum.Unsettled += r.Unsettled
	for _, f := range r.Findings {
		if err := v.found(f); err != nil {
			return fmt.Errorf("print the findings: %w", err)
		}
	}
	return nil
}

// findingJSON is a finding as a line of JSON.
type findingJSON struct {
	User    member.ID    `json:"user"`
	Contact member.ID    `json:"contact,omitzero"`
	Class   check.Weight `json:"class"`
	Cause   check.Cause  `json:"cause"`
	Stored  uint64       `json:"stored"`
	Actual  uint64       `json:"actual"`
	Detail  string       `json:"detail,omitzero"`
}

// found counts and prints a finding: as text the first of each class, and no lag: it will pass, and is in the table.
func (v *verification) found(f check.Finding) error {
	v.sum.Findings[string(f.Weight)+"/"+string(f.Cause)]++
	if v.json != nil {
		return v.json.Encode(findingJSON{f.User, f.Contact, f.Weight, f.Cause, f.Stored, f.Actual, f.Detail})
	}
	if v.printed[f.Weight]++; f.Weight == check.Lag || v.printed[f.Weight] > maxFindings {
		return nil
	}
	_, err := fmt.Fprintln(v.out, inspect.OneLine(f.String()))
	return err
}

// conclude returns the error that ends a verification: a difference, or members without a verdict.
func (v *verification) conclude() (err error) {
	if n := v.sum.Failed; n > 0 {
		err = fmt.Errorf("%d members could not be compared: %s; run it for them again", n, firstOf(v.undone, n))
	}
	if n := v.sum.Unsettled; n > 0 {
		err = errors.Join(err, fmt.Errorf("%d sets or answers changed too often to be judged: verify again", n))
	}
	if v.sum.Erroneous == 0 {
		return err
	}
	then := "--repair enqueues refills"
	if v.options.repair {
		then = "refills are enqueued: verify again when the workers have done them"
	}
	return &exitError{exitWrong, errors.Join(fmt.Errorf("%d sets or answers are wrong; %s", v.sum.Erroneous, then), err)}
}

// printSummary ends the output.
func (v *verification) printSummary() error {
	n := v.sum
	if v.json != nil {
		return v.json.Encode(map[string]verified{"summary": n})
	}
	var text strings.Builder
	for _, class := range []check.Weight{check.Error, check.Waste} {
		if more := v.printed[class] - maxFindings; more > 0 {
			fmt.Fprintf(&text, "%s: and %d more, all of them with --output=json\n", class, more)
		}
	}
	if n.LeftOut > 0 {
		fmt.Fprintf(&text, "%d answers were not compared, as the index had no part in them: those of members %s\n", n.LeftOut, firstOf(v.leftOut, n.LeftOut))
	}
	if len(n.Findings) > 0 {
		table := inspect.Table{Head: []string{"FOUND", "CLASS", "CAUSE"}}
		for _, name := range slices.Sorted(maps.Keys(n.Findings)) {
			class, cause, _ := strings.Cut(name, "/")
			table.Rows = append(table.Rows, []string{fmt.Sprint(n.Findings[name]), class, cause})
		}
		_ = printTable(&text, table) // into memory
	}
	text.WriteString(map[bool]string{true: "checked", false: "checked so far"}[n.Complete])
	fmt.Fprintf(&text, ": %d sets, %d answers; %d wrong", n.Checked, n.Answers, n.Erroneous)
	for _, part := range []struct {
		n    int
		what string
	}{{n.Unsettled, "changed too often to be judged"}, {n.Failed, "failed"}, {n.Repairs, "refills enqueued"}} {
		if part.n > 0 {
			fmt.Fprintf(&text, ", %d %s", part.n, part.what)
		}
	}
	_, err := fmt.Fprintf(v.out, "%s; %.1fs, %.0f a second\n", text.String(), n.Seconds, float64(n.Checked)/max(n.Seconds, 0.001))
	return err
}

// firstOf names members as the first of n.
func firstOf(members []member.ID, n int) string {
	var names []string
	for _, id := range members {
		names = append(names, id.String())
	}
	if len(names) < n {
		names = append(names, "…")
	}
	return strings.Join(names, ", ")
}
